from __future__ import annotations

from typing import Any

import pytest

from broker.config.broker_config import resolve_broker_config
from broker.config.definition import ConfigSource, ConfigType
from broker.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_cluster_default,
    describe_created_topic,
    describe_topic,
)
from tests.broker.config import golden
from tests.support.requests import NOT_KAFKAS

BROKER = resolve_broker_config({})


def as_golden(entries: list[ConfigEntry]) -> dict[str, Any]:
    """Without our own settings, in the form of the golden file."""
    return {
        entry.name: {
            "value": entry.value,
            "source": entry.source,
            "read_only": entry.is_read_only,
            "sensitive": entry.is_sensitive,
            "type": entry.type,
            "documented": entry.documentation is not None,
            "synonyms": [[name, value, source] for name, value, source in entry.synonyms],
        }
        for entry in entries
        if not entry.name.startswith(NOT_KAFKAS)
    }


def kafka(stage: int, what: str) -> dict[str, Any]:
    """Kafka's answer, but for plugins' static settings, which we refuse, and for documentation of
    settings that exist dynamically only, of which Kafka has none."""
    entries = golden.load("described")["stages"][stage][what]
    return {
        name: entry | {"documented": entry["documented"] or "throttled.rate" in name}
        for name, entry in entries.items()
        if name != "some.plugin.setting"
    }


@pytest.mark.parametrize("stage", [0, 1])
def test_broker_is_described_as_by_kafka(stage: int) -> None:
    broker = golden.described_broker(stage)
    assert as_golden(describe_broker(broker)) == kafka(stage, "broker")


@pytest.mark.parametrize("stage", [0, 1])
def test_cluster_defaults_are_described_as_by_kafka(stage: int) -> None:
    broker = golden.described_broker(stage)
    assert as_golden(describe_cluster_default(broker)) == kafka(stage, "cluster")


@pytest.mark.parametrize("stage", [0, 1])
@pytest.mark.parametrize("topic", ["plain", "overridden"])
def test_topic_is_described_as_by_kafka(stage: int, topic: str) -> None:
    broker = golden.described_broker(stage)
    overrides = golden.load("described")["overrides"] if topic == "overridden" else {}
    assert as_golden(describe_topic(overrides, broker)) == kafka(stage, topic)


@pytest.mark.parametrize(
    ("topic", "stage", "overrides"),
    [
        ("plain", 0, {}),
        ("overridden", 0, golden.load("described")["overrides"]),
        ("late", 1, {"retention.ms": " 5"}),
    ],
)
def test_created_topic_is_told_as_by_kafka(
    topic: str, stage: int, overrides: dict[str, str]
) -> None:
    broker = golden.described_broker(stage)
    told = {
        entry.name: {
            "value": entry.value,
            "source": entry.source,
            "read_only": entry.is_read_only,
            "sensitive": entry.is_sensitive,
        }
        for entry in describe_created_topic(overrides, broker)
        if not entry.name.startswith(NOT_KAFKAS)
    }
    expected = golden.load("described")["created"][topic]
    # Kafka's controller leaves its own first setting of it out here.
    told["min.insync.replicas"]["source"] = expected["min.insync.replicas"]["source"]
    assert told == expected


def test_asked_names_that_exist_are_described_and_no_others() -> None:
    entries = describe_topic({}, BROKER, ["retention.ms", "no.such.name", "segment.bytes"])
    assert [entry.name for entry in entries] == ["retention.ms", "segment.bytes"]


def test_an_empty_list_of_names_asks_for_everything() -> None:
    assert describe_topic({}, BROKER, []) == describe_topic({}, BROKER)
    assert describe_broker(BROKER, []) == describe_broker(BROKER)


def test_unknown_stored_override_is_shown_like_a_secret() -> None:
    (entry,) = describe_topic({"from.the.future": "1"}, BROKER, ["from.the.future"])
    assert entry.value is None
    assert entry.is_sensitive
    assert entry.type is ConfigType.UNKNOWN
    assert entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG


def test_passwords_are_never_shown() -> None:
    broker = resolve_broker_config(
        {"ssl.keystore.password": "hush", "listener.name.a.ssl.key.password": "hush"}
    )
    assert not any("hush" in repr(entry) for entry in describe_broker(broker))


def test_our_own_settings_are_described_too() -> None:
    (entry,) = describe_topic({}, BROKER, ["odradek.produce.validation"])
    assert entry.value == "relaxed"
    assert entry.is_default


def test_every_described_setting_has_a_documentation() -> None:
    entries = describe_broker(BROKER) + describe_topic({}, BROKER)
    assert [entry.name for entry in entries if not entry.documentation] == []
