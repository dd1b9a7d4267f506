"""What a change asked for by a client makes of the stored overrides, or why it is refused.

Pure functions from the overrides there are to the overrides there will be. The caller (the
controller for topics, the broker concerned for broker settings) stores the result; nothing is
half done. IncrementalAlterConfigs takes single operations, the older AlterConfigs replaces all.

Refusals carry Kafka's error codes: INVALID_REQUEST for a malformed request and for every refused
broker setting, INVALID_CONFIG for the rest. Where two were wrong at once, the same one is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

from broker.config.broker_config import BrokerConfig, validate_broker_dynamic
from broker.config.broker_keys import find_broker_key
from broker.config.definition import ConfigError, ConfigKey, ConfigType, check_length
from broker.config.topic_config import validate_topic_overrides
from broker.config.topic_keys import TOPIC_KEYS
from broker.model.error_code import ErrorCode


class AlterOp(IntEnum):
    """Operations by their numbers in IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


#: Name, operation (its number), value; DELETE needs no value.
Change = tuple[str, int, str | None]


def alter_topic(
    current: Mapping[str, str], changes: Sequence[Change], broker: BrokerConfig
) -> dict[str, str]:
    """IncrementalAlterConfigs of a topic. Raises ConfigError; ``current`` stays as it is."""
    after = apply_incremental(current, changes, TOPIC_KEYS.get)
    validate_topic_overrides(after, broker)
    return after


def alter_broker(
    current: Mapping[str, str], changes: Sequence[Change], per_broker: bool, broker: BrokerConfig
) -> dict[str, str]:
    """IncrementalAlterConfigs of one broker, or of all of them. ``current`` are their stored
    dynamic settings, ``broker`` the settings in effect on the broker that answers."""
    for name, op, _ in changes:
        if op in (AlterOp.APPEND, AlterOp.SUBTRACT) and find_broker_key(name) is None:
            raise ConfigError(name, f"Unknown broker setting {name} is no list")
    after = apply_incremental(current, changes, find_broker_key)
    validate_broker_dynamic(after, per_broker, broker)
    return after


def replace_topic(
    settings: Sequence[tuple[str, str | None]], broker: BrokerConfig
) -> dict[str, str]:
    """AlterConfigs of a topic: ``settings`` are all overrides from now on."""
    after = all_given(settings)
    validate_topic_overrides(after, broker)
    return after


def replace_broker(
    settings: Sequence[tuple[str, str | None]], per_broker: bool, broker: BrokerConfig
) -> dict[str, str]:
    """AlterConfigs of one broker, or of all of them."""
    after = all_given(settings)
    validate_broker_dynamic(after, per_broker, broker)
    return after


def apply_incremental(
    current: Mapping[str, str],
    changes: Sequence[Change],
    find_key: Callable[[str], ConfigKey | None] = TOPIC_KEYS.get,
) -> dict[str, str]:
    """``current`` after ``changes``. The values in the result are not checked yet."""
    _check_each_once([name for name, _, _ in changes])
    missing = [name for name, op, value in changes if value is None and op != AlterOp.DELETE]
    _check_none_missing(missing)
    after = dict(current)
    for name, op, value in changes:
        if op == AlterOp.DELETE:
            after.pop(name, None)
        else:
            assert value is not None
            after[name] = _changed(name, op, value, current.get(name), find_key(name))
            check_length(name, after[name])
    return after


def _changed(name: str, op: int, value: str, current: str | None, key: ConfigKey | None) -> str:
    if op == AlterOp.SET:
        return value
    if op not in (AlterOp.APPEND, AlterOp.SUBTRACT):
        raise ConfigError(name, f"Unknown operation {op} on {name}", ErrorCode.INVALID_REQUEST)
    if key is None or key.type is not ConfigType.LIST:
        verb = "append to" if op == AlterOp.APPEND else "subtract from"
        raise ConfigError(name, f"Cannot {verb} {name}, which is no list")
    start = current if current is not None else key.default or ""
    items = [item for item in _split(start) if item]
    for item in _split(value):
        if op == AlterOp.SUBTRACT:
            if item in items:
                items.remove(item)
        elif item not in items:
            items.append(item)
    return ",".join(items)


def _split(text: str) -> list[str]:
    """Java's ``split(",")``: empty items at the end do not count, but one of nothing does."""
    if not text:
        return [""]
    items = text.split(",")
    while items and not items[-1]:
        items.pop()
    return items


def all_given(settings: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    """What AlterConfigs says. The values are not checked yet."""
    _check_each_once([name for name, _ in settings])
    _check_none_missing([name for name, value in settings if value is None])
    given = {name: value for name, value in settings if value is not None}
    for name, value in given.items():
        check_length(name, value)
    return given


def _check_each_once(names: Sequence[str]) -> None:
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise ConfigError(
            repeated[0], f"Named more than once: {', '.join(repeated)}", ErrorCode.INVALID_REQUEST
        )


def _check_none_missing(names: Sequence[str]) -> None:
    if names:
        raise ConfigError(
            names[0], f"No value given for {', '.join(names)}", ErrorCode.INVALID_REQUEST
        )
