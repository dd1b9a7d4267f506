"""What holds for one topic: its overrides over the broker's defaults, resolved and typed.

Topics with equal overrides share one ``TopicConfig``: five thousand topics without overrides
cost one object. A change of the broker's defaults means resolving again, which gives new objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from broker.config.broker_config import BrokerConfig, resolve_broker_config
from broker.config.definition import ConfigError, ConfigValue, check_length
from broker.config.topic_keys import TOPIC_KEYS


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Settings of a topic that the broker uses. Field names are Kafka's with underscores."""

    cleanup_policy: frozenset[str]
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    #: ``partition:broker``, or ``*``.
    follower_replication_throttled_replicas: frozenset[str]
    index_interval_bytes: int
    leader_replication_throttled_replicas: frozenset[str]
    max_compaction_lag_ms: int
    max_decompressed_message_bytes: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    #: -1 is no limit, as in ``retention_ms``.
    retention_bytes: int
    retention_ms: int
    #: ``internal.segment.bytes`` if that was given.
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool
    #: ``odradek.import.from``; empty: anybody may write.
    import_from: str
    #: ``odradek.produce.validation=strict``.
    validation_strict: bool

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether segments are deleted by age and size (start offsets count in any case)."""
        return "delete" in self.cleanup_policy

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"


def resolve_topic_config(overrides: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
    """Raises ConfigError if an override's value is invalid.

    Unknown names are passed over: another version of Kafka may have brought them along.
    """
    known = tuple(sorted((name, text) for name, text in overrides.items() if name in TOPIC_KEYS))
    return _resolve(known, broker)


def validate_topic_overrides(overrides: Mapping[str, str | None], broker: BrokerConfig) -> None:
    """Raise ConfigError unless a topic may have exactly these overrides."""
    for name in overrides:
        if name not in TOPIC_KEYS:
            raise ConfigError(name, f"Unknown topic setting {name}")
    missing = sorted(name for name, text in overrides.items() if text is None)
    if missing:
        raise ConfigError(missing[0], f"No value given for {', '.join(missing)}")
    given = {name: text for name, text in overrides.items() if text is not None}
    for name, text in given.items():
        check_length(name, text)
    values = topic_values(given, broker)
    minimum, maximum = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(minimum, int)
    assert isinstance(maximum, int)
    if minimum > maximum:
        raise ConfigError(
            "min.compaction.lag.ms",
            f"min.compaction.lag.ms ({minimum}) must not exceed max.compaction.lag.ms ({maximum})",
        )
    if values["remote.storage.enable"]:
        raise ConfigError("remote.storage.enable", "There is no tiered storage on this broker")


_SETS = (
    "cleanup_policy",
    "follower_replication_throttled_replicas",
    "leader_replication_throttled_replicas",
)


@lru_cache(maxsize=1024)
def _resolve(overrides: tuple[tuple[str, str], ...], broker: BrokerConfig) -> TopicConfig:
    values = topic_values(dict(overrides), broker)
    typed: dict[str, Any] = {}
    for field in fields(TopicConfig):
        setting = field.name.replace("_", ".")
        if setting in values:
            typed[field.name] = values[setting]
    for listed in _SETS:
        typed[listed] = frozenset(typed[listed])
    typed["segment_bytes"] = values["internal.segment.bytes"] or values["segment.bytes"]
    typed["import_from"] = values["odradek.import.from"]
    typed["validation_strict"] = values["odradek.produce.validation"] == "strict"
    return TopicConfig(**typed)


def topic_values(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, ConfigValue]:
    """All settings of a topic, parsed and checked; ``overrides`` are of known names."""
    values = dict(_broker_defaults(broker))
    for name, text in overrides.items():
        values[name] = TOPIC_KEYS[name].check(text)
    return values


@lru_cache(maxsize=8)
def _broker_defaults(broker: BrokerConfig) -> dict[str, ConfigValue]:
    """What a topic without overrides gets on ``broker``."""
    return {
        name: broker.values[key.synonyms[0]] if key.synonyms else key.parse(key.default)
        for name, key in TOPIC_KEYS.items()
    }


#: A topic without overrides on a broker without settings, for tests and tools.
DEFAULT_TOPIC_CONFIG = resolve_topic_config({}, resolve_broker_config({}))
