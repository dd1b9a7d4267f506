from __future__ import annotations

import pytest

from broker.config.broker_keys import (
    BROKER_KEYS,
    SUBJECTS,
    find_broker_key,
    is_per_broker,
    synonyms_of,
    without_listener_prefix,
)
from broker.config.definition import render
from broker.config.topic_keys import TOPIC_KEYS
from tests.broker.config import golden
from tests.support.requests import NOT_KAFKAS


def test_no_setting_is_in_two_tables() -> None:
    assert sum(map(len, SUBJECTS.values())) == len(BROKER_KEYS)


@pytest.mark.parametrize("keys", [TOPIC_KEYS, BROKER_KEYS])
def test_defaults_are_valid_and_in_their_normal_form(keys: object) -> None:
    assert isinstance(keys, dict)
    for key in keys.values():
        if key.default is not None:
            assert render(key.check(key.default)) == key.default, key.name


def test_every_setting_of_kafka_is_known() -> None:
    stage = golden.load("described")["stages"][0]
    known_to_kafka = {name for name in stage["broker"] if not name.startswith("some.")}
    assert known_to_kafka <= BROKER_KEYS.keys()
    assert stage["plain"].keys() <= TOPIC_KEYS.keys()


def test_only_our_own_prefix_and_what_kafka_once_had_are_unknown_to_it() -> None:
    stage = golden.load("described")["stages"][1]
    ours = [
        name
        for name, key in BROKER_KEYS.items()
        if name not in stage["broker"] and not key.is_internal
    ]
    internal = "replica.alter.log.dirs.io.max.bytes.per.second"
    assert all(name.startswith(NOT_KAFKAS) or name == internal for name in ours)


def test_defaults_of_topics_come_from_broker_settings_that_exist() -> None:
    for key in TOPIC_KEYS.values():
        assert all(synonym in BROKER_KEYS for synonym in key.synonyms)


def test_texts_are_sentences() -> None:
    for key in [*TOPIC_KEYS.values(), *BROKER_KEYS.values()]:
        assert key.doc[0].isupper(), key.name
        assert key.doc.endswith("."), key.name
        assert len(key.doc) < 120, key.name


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("listener.name.outside.ssl.protocol", "ssl.protocol"),
        ("listener.name.outside.plain.sasl.jaas.config", "sasl.jaas.config"),
        ("listener.name.outside.connections.max.reauth.ms", "connections.max.reauth.ms"),
        ("listeners", None),
        ("listener.name.outside", None),
    ],
)
def test_listener_prefix_is_taken_off(name: str, base: str | None) -> None:
    assert without_listener_prefix(name) == base
    if base is not None:
        assert find_broker_key(name) is BROKER_KEYS[base]
        assert synonyms_of(name) == (name, base)


def test_behind_a_listener_only_limits_of_connections_are_cluster_wide() -> None:
    assert not is_per_broker("listener.name.outside.max.connections")
    assert is_per_broker("listener.name.outside.ssl.protocol")
    assert is_per_broker("ssl.protocol")
    assert not is_per_broker("no.such.setting")
