from __future__ import annotations

import pytest

from broker.config.broker_config import resolve_broker_config
from broker.config.definition import ConfigError
from broker.config.listeners import Listener


def test_defaults_are_those_of_kafka() -> None:
    config = resolve_broker_config({})
    assert config.node_id == 1
    assert config.num_partitions == 1
    assert config.auto_create_topics_enable
    assert config.message_max_bytes == 1_048_588
    assert config.socket_request_max_bytes == 104_857_600
    assert config.queued_max_request_bytes == -1
    assert config.log_retention_ms == 7 * 24 * 3_600_000
    assert config.log_roll_ms == 7 * 24 * 3_600_000
    assert config.log_flush_interval_ms == 2**63 - 1
    assert config.producer_id_expiration_ms == 86_400_000
    assert config.listeners == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert config.advertised_listeners == ()
    assert config.log_append_mode == "auto"


def test_later_layers_are_stronger() -> None:
    config = resolve_broker_config(
        {"max.connections": "1", "message.max.bytes": "1", "log.segment.delete.delay.ms": "1"},
        {"max.connections": "2", "message.max.bytes": "2"},
        {"max.connections": "3"},
    )
    assert config.max_connections == 3
    assert config.message_max_bytes == 2
    assert config.log_segment_delete_delay_ms == 1


def test_finest_unit_that_was_given_counts() -> None:
    hours = {"log.retention.hours": "1", "log.roll.hours": "1", "log.roll.jitter.hours": "1"}
    config = resolve_broker_config(hours)
    assert config.log_retention_ms == config.log_roll_ms == config.log_roll_jitter_ms == 3_600_000
    assert resolve_broker_config(hours | {"log.retention.minutes": "2"}).log_retention_ms == 120_000
    finest = hours | {"log.retention.minutes": "2", "log.retention.ms": "3"}
    assert resolve_broker_config(finest).log_retention_ms == 3


def test_dynamic_setting_silences_static_synonyms() -> None:
    config = resolve_broker_config({"log.retention.minutes": "2"}, {"log.retention.ms": "5"})
    assert config.log_retention_ms == 5
    assert "log.retention.minutes" not in config.given


def test_node_id_and_broker_id_stand_for_each_other() -> None:
    assert resolve_broker_config({"broker.id": "7"}).node_id == 7
    assert resolve_broker_config({"node.id": "7"}).static["broker.id"] == "7"


def test_log_dirs_is_stronger_than_log_dir() -> None:
    assert resolve_broker_config({"log.dir": "/a"}).log_dirs == ("/a",)
    assert resolve_broker_config({"log.dir": "/a", "log.dirs": "/b, /c"}).log_dirs == ("/b", "/c")


def test_unknown_static_setting_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"did you mean log\.retention\.hours"):
        resolve_broker_config({"log.retention.hour": "1"})
    with pytest.raises(ConfigError, match=r"Unknown setting zookeeper\.set\.acl$"):
        resolve_broker_config({"zookeeper.set.acl": "true"})


def test_setting_behind_a_listeners_name_is_known() -> None:
    resolve_broker_config({"listener.name.outside.max.connections": "5"})
    with pytest.raises(ConfigError, match="Unknown"):
        resolve_broker_config({"listener.name.outside.max.connection": "5"})


def test_invalid_stored_dynamic_setting_does_not_stop_the_start() -> None:
    config = resolve_broker_config(
        {}, {"message.max.bytes": "-1", "max.connections": "5"}, {"num.partitions": "9"}
    )
    assert config.max_connections == 5
    assert config.message_max_bytes == 1_048_588
    assert config.num_partitions == 1
    assert sorted(error.name for error in config.ignored) == ["message.max.bytes", "num.partitions"]


def test_contradicting_stored_dynamic_settings_do_not_stop_the_start() -> None:
    config = resolve_broker_config(
        {},
        {"log.cleaner.min.compaction.lag.ms": "100", "max.connections": "5"},
        {"log.cleaner.max.compaction.lag.ms": "99"},
    )
    assert config.max_connections == 5
    assert config.dynamic_broker == {}
    assert [error.name for error in config.ignored] == ["log.cleaner.min.compaction.lag.ms"]
    config = resolve_broker_config({}, {"log.roll.ms": "0"}, {"max.connections": "5"})
    assert config.dynamic_default == config.dynamic_broker == {}


def test_unknown_stored_dynamic_setting_is_kept() -> None:
    assert resolve_broker_config({}, {"some.plugin": "1"}).dynamic_default == {"some.plugin": "1"}


def test_listeners_of_a_kraft_controller_are_passed_over() -> None:
    config = resolve_broker_config(
        {
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "advertised.listeners": "PLAINTEXT://a:1",
        }
    )
    assert [str(item) for item in config.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert [str(item) for item in config.advertised_listeners] == ["PLAINTEXT://a:1"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"advertised.listeners": "OTHER://a:1"}, "no security protocol"),
        ({"advertised.listeners": "SSL://a:1"}, "not among the listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "nobody can connect"),
        (
            {"inter.broker.listener.name": "INSIDE"},
            "INSIDE is not among those advertised: PLAINTEXT",
        ),
        ({"controller.listener.names": "PLAINTEXT"}, "all of them are for controllers"),
        ({"listeners": ""}, "must not be empty"),
        ({"num.partitions": "0"}, "at least 1"),
        ({"node.id": "-1"}, "at least 0"),
    ],
)
def test_impossible_settings_stop_the_start(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        resolve_broker_config(settings)


def test_settings_that_do_nothing_are_named() -> None:
    config = resolve_broker_config(
        {"num.io.threads": "16", "num.network.threads": "3", "num.partitions": "4"}
    )
    assert config.without_effect == ("num.io.threads",)
