"""Settings of single consumer groups (config resource GROUP), over the broker's own for all groups.

Names, defaults and bounds are those of Apache Kafka 4.4. Its settings of share and streams groups are not
known here, as there are no such groups. A group's own value holds within the bounds that the brokers have
now: it was checked against those of the time when it was set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from broker.config.alter import Change, all_given, apply_incremental
from broker.config.broker_config import BrokerConfig
from broker.config.definition import ConfigError, ConfigKey, ConfigType, Range
from broker.model.error_code import ErrorCode

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL: Final = "consumer.assignment.interval.ms"

_TABLE = (
    ConfigKey(
        ASSIGNMENT_INTERVAL,
        ConfigType.INT,
        "1000",
        "Shortest time between two assignments of the group.",
        Range(0),
        synonyms=("group.consumer.assignment.interval.ms",),
        has_effect=True,
    ),
    ConfigKey(
        "consumer.assignor.offload.enable",
        ConfigType.BOOLEAN,
        "true",
        "Whether assignments of the group are computed in a background thread.",
        synonyms=("group.consumer.assignor.offload.enable",),
        is_internal=True,
    ),
    ConfigKey(
        HEARTBEAT_INTERVAL,
        ConfigType.INT,
        "5000",
        "How often members of the group are told to report.",
        Range(1),
        synonyms=("group.consumer.heartbeat.interval.ms",),
        has_effect=True,
    ),
    ConfigKey(
        SESSION_TIMEOUT,
        ConfigType.INT,
        "45000",
        "Silence after which a member of the group is taken out.",
        Range(1),
        synonyms=("group.consumer.session.timeout.ms",),
        has_effect=True,
    ),
)
GROUP_KEYS: Final[Mapping[str, ConfigKey]] = {key.name: key for key in _TABLE}


class GroupConfig(NamedTuple):
    """What holds for one group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


def resolve_group_config(overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
    """Texts that are no numbers, from whatever store they came, are passed over."""
    return _resolve(tuple(sorted(overrides.items())), broker)


@lru_cache(maxsize=1024)
def _resolve(overrides: tuple[tuple[str, str], ...], broker: BrokerConfig) -> GroupConfig:
    found = _defaults(broker)
    for name, text in overrides:
        bounds = _bounds(broker).get(name)
        if bounds is not None:
            try:
                value = GROUP_KEYS[name].parse(text)
            except ConfigError:
                continue
            if isinstance(value, int):
                found[name] = min(max(value, bounds[0]), bounds[1])
    return GroupConfig(
        found[SESSION_TIMEOUT], found[HEARTBEAT_INTERVAL], found[ASSIGNMENT_INTERVAL]
    )


def _defaults(broker: BrokerConfig) -> dict[str, int]:
    return {
        SESSION_TIMEOUT: broker.group_consumer_session_timeout_ms,
        HEARTBEAT_INTERVAL: broker.group_consumer_heartbeat_interval_ms,
        ASSIGNMENT_INTERVAL: broker.group_consumer_assignment_interval_ms,
    }


def _bounds(broker: BrokerConfig) -> dict[str, tuple[int, int]]:
    """What a group may choose, both ends in it."""
    return {
        HEARTBEAT_INTERVAL: (
            broker.group_consumer_min_heartbeat_interval_ms,
            broker.group_consumer_max_heartbeat_interval_ms,
        ),
        SESSION_TIMEOUT: (
            broker.group_consumer_min_session_timeout_ms,
            broker.group_consumer_max_session_timeout_ms,
        ),
        ASSIGNMENT_INTERVAL: (
            broker.group_consumer_min_assignment_interval_ms,
            broker.group_consumer_max_assignment_interval_ms,
        ),
    }


def alter_group(
    current: Mapping[str, str], changes: Sequence[Change], broker: BrokerConfig
) -> dict[str, str]:
    """IncrementalAlterConfigs of a group. Raises ConfigError."""
    after = apply_incremental(current, changes, GROUP_KEYS.get)
    _validate(after, broker)
    return after


def replace_group(
    settings: Sequence[tuple[str, str | None]], broker: BrokerConfig
) -> dict[str, str]:
    """AlterConfigs of a group: ``settings`` are all overrides from now on."""
    after = all_given(settings)
    _validate(after, broker)
    return after


def _validate(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    for name in overrides:
        if name not in GROUP_KEYS:
            raise ConfigError(name, f"Unknown group config name: {name}")
    values = _defaults(broker)
    for name, text in overrides.items():
        value = GROUP_KEYS[name].check(text)
        if name in values and isinstance(value, int):
            values[name] = value
    for name, (least, most) in _bounds(broker).items():
        if name in overrides and not least <= values[name] <= most:
            raise _refused(name, f"{name} must be in the range {least} to {most} inclusive.")
    if values[SESSION_TIMEOUT] <= values[HEARTBEAT_INTERVAL]:
        raise _refused(
            SESSION_TIMEOUT, f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}"
        )


def _refused(name: str, reason: str) -> ConfigError:
    return ConfigError(name, reason, ErrorCode.INVALID_CONFIG)
