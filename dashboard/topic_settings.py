"""Words about a topic's settings: what they mean, which belong together, values as people say them.

Descriptions, types and ranges come from the broker's own table, which holds every setting of
Apache Kafka too; a setting that it does not know is shown as the cluster tells it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from broker.config.definition import INT_MAX, LONG_MAX, ConfigKey, ConfigType, DistinctItems, OneOf
from broker.config.topic_keys import TOPIC_KEYS, UNITS_MS
from dashboard.cluster import ConfigView
from dashboard.templatetags.show import duration, size

MAIN = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
    "min.insync.replicas",
    "compression.type",
)
"""What people set most: first on the form of a new topic."""
GROUPS = {
    "Retention": ("cleanup.policy", "retention.", "file.delete."),
    "Compaction": ("delete.retention", "min.compaction", "max.compaction", "min.cleanable"),
    "Records": ("max.", "message.", "compression.", "odradek."),
    "Replication": ("min.insync", "unclean.", "leader.", "follower."),
    "Segments and indexes": ("segment.", "index.", "preallocate", "internal.segment"),
    "Flushing to the disk": ("flush.",),
    "Tiered storage": ("local.", "remote."),
}
"""Beginnings of names, by heading; the first that fits counts."""
OTHER_GROUP = "Other"
_TYPES = {
    ConfigType.BOOLEAN: "true or false",
    ConfigType.STRING: "text",
    ConfigType.INT: "whole number (32 bits)",
    ConfigType.SHORT: "whole number (16 bits)",
    ConfigType.LONG: "whole number (64 bits)",
    ConfigType.DOUBLE: "number",
    ConfigType.LIST: "list, separated by commas",
    ConfigType.CLASS: "class",
    ConfigType.PASSWORD: "password",
}


class Unit(Enum):
    """What a number counts, by the end of the setting's name."""

    TIME = "time"
    SIZE = "size"
    NONE = "none"


class Words(NamedTuple):
    """What is told about one setting."""

    name: str
    doc: str
    type: str
    values: str
    """Which values it takes, in words; empty: all of its type."""
    default: str | None
    """Of the table; the cluster's own may differ."""
    options: tuple[str, ...]
    """Where it is one of a few values."""
    note: str
    """What an Odradek broker does differently."""


_FACTORS = {
    Unit.TIME: {
        "ms": 1,
        "s": 1000,
        "sec": 1000,
        "min": 60_000,
        "m": 60_000,
        "h": 3_600_000,
        "d": 86_400_000,
        "w": 7 * 86_400_000,
    },
    Unit.SIZE: {
        "b": 1,
        "kib": 1024,
        "k": 1024,
        "kb": 1000,
        "mib": 1024**2,
        "m": 1024**2,
        "mb": 1000**2,
        "gib": 1024**3,
        "g": 1024**3,
        "gb": 1000**3,
        "tib": 1024**4,
        "t": 1024**4,
        "tb": 1000**4,
    },
}
_WITH_UNIT = re.compile(r"(\d{1,19}(?:\.\d{1,6})?)\s*([a-z]+)", re.IGNORECASE | re.ASCII)


def words_of(name: str) -> Words:
    key = TOPIC_KEYS.get(name)
    if key is None:
        return Words(name, "", "", "", None, (), "")
    return Words(
        name,
        key.doc,
        _TYPES.get(key.type, "text"),
        str(key.validator) if key.validator is not None else "",
        key.default,
        _options(key),
        key.note or ("" if key.has_effect else "An Odradek broker keeps it and does not use it."),
    )


def _options(key: ConfigKey) -> tuple[str, ...]:
    if key.type is ConfigType.BOOLEAN:
        return ("true", "false")
    if isinstance(key.validator, OneOf):
        return key.validator.words
    if isinstance(key.validator, DistinctItems) and key.validator.words:
        return ("delete", "compact", "compact,delete", "")  # the last: neither
    return ()


def group_of(name: str) -> str:
    """The heading under which a setting is found."""
    for group, beginnings in GROUPS.items():
        if name.startswith(beginnings):
            return group
    return OTHER_GROUP


def unit_of(name: str) -> Unit:
    if name.endswith(".ms"):
        return Unit.TIME
    return Unit.SIZE if name.endswith(".bytes") else Unit.NONE


def in_words(name: str, value: str | None) -> str:
    """``604800000`` of a time as ``7 d``; empty where the value says it itself."""
    unit = unit_of(name)
    if value is None or unit is Unit.NONE or not re.fullmatch(r"-?\d{1,19}", value):
        return ""
    count = int(value)
    if count == -1:
        return "no limit" if "retention" in name else ""
    if count == LONG_MAX or (count >= INT_MAX - 8 and unit is Unit.SIZE and count <= INT_MAX):
        return "no limit"
    if count < 0 or (unit is Unit.SIZE and count < 1024) or (unit is Unit.TIME and count < 1000):
        return ""
    return duration(count) if unit is Unit.TIME else size(count)


def read(name: str, text: str) -> str:
    """A value as it was typed, in the setting's own unit: ``7 d`` as milliseconds. What is no
    number with a unit goes to the broker as it is, and the broker says what is wrong with it."""
    text = text.strip()
    match = _WITH_UNIT.fullmatch(text)
    factor = _FACTORS.get(unit_of(name), {}).get(match[2].lower()) if match else None
    if match is None or factor is None:
        return text
    whole, _, fraction = match[1].partition(".")
    count = int(whole) * factor
    if fraction:
        count += int(fraction) * factor // 10 ** len(fraction)
    return str(count)


def defaults(broker_settings: Iterable[ConfigView]) -> dict[str, str | None]:
    """What a new topic gets for each setting, by the settings of a broker."""
    told = {view.name: view.value for view in broker_settings}
    found: dict[str, str | None] = {}
    for name, key in TOPIC_KEYS.items():
        found[name] = key.default
        for synonym in key.synonyms:
            value = told.get(synonym)
            if value not in (None, ""):
                assert value is not None
                found[name] = (
                    str(int(value) * UNITS_MS.get(synonym, 1))
                    if (synonym in UNITS_MS and re.fullmatch(r"-?\d{1,19}", value))
                    else value
                )
                break
    return found


def settable(broker_settings: Iterable[ConfigView]) -> list[str]:
    """Names that this cluster's topics can have, the most used first; ours only on our brokers."""
    is_odradek = any(view.name.startswith("odradek.") for view in broker_settings)
    names = [
        name
        for name, key in TOPIC_KEYS.items()
        if not key.is_internal and (is_odradek or not name.startswith("odradek."))
    ]
    return [*MAIN, *(name for name in names if name not in MAIN)]
