from __future__ import annotations

import pytest

from broker.config.broker_config import resolve_broker_config
from broker.config.definition import ConfigError
from broker.config.topic_config import (
    DEFAULT_TOPIC_CONFIG,
    resolve_topic_config,
    validate_topic_overrides,
)
from broker.model.error_code import ErrorCode
from tests.broker.config import golden

BROKER = resolve_broker_config({})

#: Where we refuse what Kafka takes. A segment needs a size, even in tests.
STRICTER = {"internal.segment.bytes": {"-131073", "-131072", "-3", "-2", "-1", "0", "-0"}}


def verdict(overrides: dict[str, str | None]) -> int:
    try:
        validate_topic_overrides(overrides, BROKER)
    except ConfigError as error:
        return error.code
    return 0


@pytest.mark.parametrize("name", sorted(golden.load("verdicts")["topic"]))
def test_values_are_accepted_and_refused_as_by_kafka(name: str) -> None:
    expected = golden.verdicts("topic", name)
    for value in STRICTER.get(name, ()):
        if value in expected:
            expected[value] = ErrorCode.INVALID_CONFIG
    assert {value: verdict({name: value}) for value in expected} == expected


def test_missing_value_is_refused() -> None:
    assert verdict({"retention.ms": None}) == ErrorCode.INVALID_CONFIG


def test_contradicting_compaction_lags_are_refused() -> None:
    lags: dict[str, str | None] = {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}
    assert verdict(lags) == ErrorCode.INVALID_CONFIG


def test_compaction_lag_that_contradicts_the_broker_is_refused() -> None:
    broker = resolve_broker_config({"log.cleaner.max.compaction.lag.ms": "1"})
    with pytest.raises(ConfigError, match=r"max\.compaction\.lag\.ms \(1\)"):
        validate_topic_overrides({"min.compaction.lag.ms": "2"}, broker)


def test_value_longer_than_kafkas_bound_is_refused() -> None:
    replicas = ",".join(["0:1"] * 8192)
    assert len(replicas) == 32767
    assert verdict({"leader.replication.throttled.replicas": replicas}) == 0
    longer = verdict({"leader.replication.throttled.replicas": replicas + ","})
    assert longer == ErrorCode.INVALID_CONFIG


def test_number_of_a_thousand_digits_is_refused_without_being_computed() -> None:
    assert verdict({"retention.ms": "9" * 30000}) == ErrorCode.INVALID_CONFIG
    assert verdict({"min.cleanable.dirty.ratio": "0." + "9" * 30000}) == ErrorCode.INVALID_CONFIG


def test_topics_with_equal_overrides_share_one_config() -> None:
    first = resolve_topic_config({"segment.ms": "5", "flush.ms": "6"}, BROKER)
    second = resolve_topic_config({"flush.ms": "6", "segment.ms": "5"}, BROKER)
    assert first is second
    assert resolve_topic_config({}, BROKER) is resolve_topic_config({}, BROKER)


def test_broker_settings_are_the_defaults_of_topics() -> None:
    broker = resolve_broker_config(
        {
            "log.retention.minutes": "2",
            "log.roll.hours": "3",
            "log.roll.jitter.hours": "1",
            "log.flush.scheduler.interval.ms": "4",
            "message.max.bytes": "5",
            "log.cleanup.policy": "compact, delete",
            "odradek.produce.validation": "strict",
        },
        {"log.cleaner.min.cleanable.ratio": "0.25"},
        {"min.insync.replicas": "2"},
    )
    config = resolve_topic_config({}, broker)
    assert config.retention_ms == 120_000
    assert config.segment_ms == 3 * 3_600_000
    assert config.segment_jitter_ms == 3_600_000
    assert config.flush_ms == 4
    assert config.max_message_bytes == 5
    assert config.is_compacted
    assert config.is_deleted
    assert config.validation_strict
    assert config.min_cleanable_dirty_ratio == 0.25
    assert config.min_insync_replicas == 2


def test_overrides_are_stronger_than_the_broker() -> None:
    broker = resolve_broker_config({"log.retention.ms": "1000", "log.cleanup.policy": "compact"})
    config = resolve_topic_config({"retention.ms": "-1", "cleanup.policy": ""}, broker)
    assert config.retention_ms == -1
    assert not config.is_compacted
    assert not config.is_deleted


def test_broker_retention_below_minus_one_is_no_limit() -> None:
    broker = resolve_broker_config({}, {"log.retention.ms": "-5"})
    assert resolve_topic_config({}, broker).retention_ms == -1


def test_internal_segment_bytes_is_stronger_than_segment_bytes() -> None:
    overrides = {"internal.segment.bytes": "100", "segment.bytes": "1048576"}
    assert resolve_topic_config(overrides, BROKER).segment_bytes == 100


def test_unknown_stored_override_is_passed_over() -> None:
    config = resolve_topic_config({"message.format.version": "2.8"}, BROKER)
    assert config == DEFAULT_TOPIC_CONFIG


def test_invalid_stored_override_is_named() -> None:
    with pytest.raises(ConfigError, match=r"retention\.ms"):
        resolve_topic_config({"retention.ms": "soon"}, BROKER)


def test_defaults_of_a_topic_are_those_of_kafka() -> None:
    assert DEFAULT_TOPIC_CONFIG.segment_bytes == 1 << 30
    assert DEFAULT_TOPIC_CONFIG.retention_ms == 7 * 24 * 3_600_000
    assert DEFAULT_TOPIC_CONFIG.retention_bytes == -1
    assert DEFAULT_TOPIC_CONFIG.max_message_bytes == 1_048_588
    assert DEFAULT_TOPIC_CONFIG.cleanup_policy == {"delete"}
    assert DEFAULT_TOPIC_CONFIG.compression_type == "producer"
    assert not DEFAULT_TOPIC_CONFIG.is_log_append_time
