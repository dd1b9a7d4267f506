from __future__ import annotations

import pytest

from broker.config.broker_config import BrokerConfig, resolve_broker_config, validate_broker_dynamic
from broker.config.broker_keys import find_broker_key
from broker.config.definition import ConfigError, ConfigType
from broker.model.error_code import ErrorCode
from tests.broker.config import golden

BROKER = resolve_broker_config({"log.dirs": "/data"})

#: Kafka resizes thread pools in steps of at most a factor of two; here nothing is resized.
RESIZED_IN_STEPS = {
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
}
#: Kafka does not look at these; they have no effect here.
NEVER_LOOKED_AT = {"config.providers"}


def verdict(name: str, value: str, per_broker: bool) -> int:
    try:
        validate_broker_dynamic({name: value}, per_broker, BROKER)
    except ConfigError as error:
        return error.code
    return 0


CASES = [
    (kind, name)
    for kind in ("broker", "cluster")
    for name in golden.load("verdicts")[kind]
    if name not in RESIZED_IN_STEPS | NEVER_LOOKED_AT
]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_dynamic_values_are_accepted_and_refused_as_by_kafka(kind: str, name: str) -> None:
    expected = golden.verdicts(kind, name)
    assert {v: verdict(name, v, kind == "broker") for v in expected} == expected


@pytest.mark.parametrize("name", sorted(RESIZED_IN_STEPS))
def test_what_kafka_resizes_in_steps_takes_what_kafka_takes_and_no_other_kind(name: str) -> None:
    for value, code in golden.verdicts("broker", name).items():
        ours = verdict(name, value, per_broker=True)
        key = find_broker_key(name)
        assert key is not None
        if code == 0:
            assert ours == 0, value
        elif ours == 0:
            assert key.type is ConfigType.INT
            assert int(value) > 0


def test_listeners_are_not_changed_while_the_broker_runs() -> None:
    assert verdict("listeners", "PLAINTEXT://:1", per_broker=True) == ErrorCode.INVALID_REQUEST


def test_contradiction_with_another_layer_is_found() -> None:
    broker = resolve_broker_config({}, {"log.cleaner.min.compaction.lag.ms": "100"})
    with pytest.raises(ConfigError, match=r"log\.cleaner\.min\.compaction\.lag\.ms"):
        validate_broker_dynamic({"log.cleaner.max.compaction.lag.ms": "99"}, True, broker)
    validate_broker_dynamic({"log.cleaner.max.compaction.lag.ms": "99"}, False, broker)


def test_zero_connections_of_a_listener_are_refused() -> None:
    name = "listener.name.plaintext.max.connections"
    assert verdict(name, "0", per_broker=True) == ErrorCode.INVALID_REQUEST
    assert verdict(name, "1", per_broker=True) == 0


def test_cordoned_directories_must_exist() -> None:
    assert verdict("cordoned.log.dirs", "/data", per_broker=True) == 0
    assert verdict("cordoned.log.dirs", "/other", per_broker=True) == ErrorCode.INVALID_REQUEST
    assert verdict("cordoned.log.dirs", "/data", per_broker=False) == ErrorCode.INVALID_REQUEST


def test_without_a_broker_names_and_values_are_checked_alone() -> None:
    validate_broker_dynamic({"log.retention.ms": "0"}, per_broker=True)
    with pytest.raises(ConfigError):
        validate_broker_dynamic({"log.retention.ms": "soon"}, per_broker=True)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"log.roll.ms": "0"}, "log.roll.ms"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms"),
        ({"log.retention.minutes": "0"}, "log.retention.ms"),
        ({"log.cleaner.threads": "0"}, "log.cleaner.dedupe.buffer.size"),
        ({"log.cleaner.threads": "128"}, "log.cleaner.dedupe.buffer.size"),
        (
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            "log.cleaner.min.compaction.lag.ms",
        ),
        ({"node.id": "1", "broker.id": "2"}, "broker.id"),
        ({"replica.fetch.wait.max.ms": "30001"}, "replica.fetch.wait.max.ms"),
        ({"queued.max.request.bytes": "1000"}, "queued.max.request.bytes"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip"),
        ({"max.connections.per.ip.overrides": "localhost"}, "max.connections.per.ip.overrides"),
        ({"connections.max.idle.ms": "100"}, "connection.failed.authentication.delay.ms"),
        ({"listeners": "SSL://:9092"}, "listeners"),
        ({"authorizer.class.name": "org.example.Authorizer"}, "authorizer.class.name"),
        ({"remote.log.storage.system.enable": "true"}, "remote.log.storage.system.enable"),
    ],
)
def test_contradicting_static_settings_stop_the_start(settings: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        resolve_broker_config(settings)
    assert caught.value.name == named


@pytest.mark.parametrize(
    "settings",
    [
        {"queued.max.request.bytes": "-1"},
        {"queued.max.request.bytes": "104857600"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "[::1]:3"},
        {"connections.max.idle.ms": "-1"},
        {"log.cleaner.threads": "127"},
    ],
)
def test_settings_at_their_bounds_are_accepted(settings: dict[str, str]) -> None:
    assert isinstance(resolve_broker_config(settings), BrokerConfig)
