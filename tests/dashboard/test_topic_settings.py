"""Values as people type and read them, and the defaults of a new topic."""

import pytest

from broker.config.topic_keys import TOPIC_KEYS
from dashboard import topic_settings
from dashboard.cluster import ConfigSource, ConfigView


@pytest.mark.parametrize(
    ("name", "typed", "meant"),
    [
        ("retention.ms", "7 d", "604800000"),
        ("retention.ms", "1.5h", "5400000"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "7 parsecs", "7 parsecs"),
        ("retention.bytes", "1 GiB", "1073741824"),
        ("segment.bytes", "100MB", "100000000"),
        ("max.message.bytes", " 2m ", "2097152"),
        ("cleanup.policy", "7 d", "7 d"),
        ("retention.ms", "9223372036854775807 w", str((2**63 - 1) * 604_800_000)),
    ],
)
def test_a_unit_is_read_in_the_settings_own(name: str, typed: str, meant: str) -> None:
    assert topic_settings.read(name, typed) == meant


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention.ms", "604800000", "7 d"),
        ("retention.ms", "-1", "no limit"),
        ("flush.ms", "9223372036854775807", "no limit"),
        ("retention.bytes", "1073741824", "1.00 GiB"),
        ("local.retention.ms", "-2", ""),
        ("cleanup.policy", "compact", ""),
        ("min.cleanable.dirty.ratio", "0.5", ""),
    ],
)
def test_a_value_is_said_in_words(name: str, value: str, words: str) -> None:
    assert topic_settings.in_words(name, value) == words


def test_defaults_follow_the_brokers_settings_in_their_own_units() -> None:
    def told(name: str, value: str | None) -> ConfigView:
        source = ConfigSource.STATIC_BROKER_CONFIG
        return ConfigView(name, value, source, is_read_only=True, is_sensitive=False, synonyms=())

    found = topic_settings.defaults(
        [
            told("log.retention.ms", None),
            told("log.retention.hours", "48"),
            told("log.segment.bytes", "1048576"),
        ]
    )

    assert found["retention.ms"] == str(48 * 3_600_000)
    assert found["segment.bytes"] == "1048576"
    assert found["compression.type"] == "producer"


def test_every_setting_is_explained_and_has_its_place() -> None:
    for name in TOPIC_KEYS:
        words = topic_settings.words_of(name)
        assert words.doc.endswith("."), name
        assert words.type, name
    placed = {name for name in TOPIC_KEYS if topic_settings.group_of(name) != "Other"}
    assert set(TOPIC_KEYS) - placed == {"errors.deadletterqueue.group.enable"}


def test_our_own_settings_are_offered_on_our_brokers_only() -> None:
    ours = ConfigView(
        "odradek.produce.validation",
        "relaxed",
        ConfigSource.DEFAULT_CONFIG,
        is_read_only=False,
        is_sensitive=False,
        synonyms=(),
    )

    assert "odradek.produce.validation" in topic_settings.settable([ours])
    assert "odradek.produce.validation" not in topic_settings.settable([])
