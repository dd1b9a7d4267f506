"""What holds for a group: its own settings, within the brokers' bounds, over the brokers' own."""

import pytest

from broker.config.broker_config import resolve_broker_config
from broker.config.definition import ConfigError
from broker.config.group_keys import (
    GroupConfig,
    alter_group,
    replace_group,
    resolve_group_config,
)

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
BROKER = resolve_broker_config({})


def test_a_group_without_settings_has_the_brokers() -> None:
    assert resolve_group_config({}, BROKER) == GroupConfig(45_000, 5_000, 1_000)
    broker = resolve_broker_config({"group.consumer.heartbeat.interval.ms": "7000"})
    assert resolve_group_config({}, broker).heartbeat_interval_ms == 7_000


def test_its_own_hold_within_the_bounds_of_now() -> None:
    own = {SESSION: "50000", HEARTBEAT: "6000", "consumer.assignment.interval.ms": "0"}
    assert resolve_group_config(own, BROKER) == GroupConfig(50_000, 6_000, 0)
    broker = resolve_broker_config(
        {
            "group.consumer.max.session.timeout.ms": "48000",
            "group.consumer.min.assignment.interval.ms": "10",
        }
    )
    assert resolve_group_config(own, broker) == GroupConfig(48_000, 6_000, 10)


def test_what_no_broker_of_this_version_stored_is_passed_over() -> None:
    own = {SESSION: "x", "share.session.timeout.ms": "50000", HEARTBEAT: "6000"}
    assert resolve_group_config(own, BROKER) == GroupConfig(45_000, 6_000, 1_000)


def test_a_session_is_longer_than_the_time_between_heartbeats() -> None:
    broker = resolve_broker_config(
        {
            "group.consumer.min.session.timeout.ms": "6000",
            "group.consumer.session.timeout.ms": "45000",
        }
    )
    assert alter_group({}, [(SESSION, 0, "6000")], broker) == {SESSION: "6000"}
    with pytest.raises(ConfigError, match="must be greater than"):
        alter_group({SESSION: "6000"}, [(HEARTBEAT, 0, "6000")], broker)
    with pytest.raises(ConfigError, match="must be greater than"):
        replace_group([(SESSION, "6000"), (HEARTBEAT, "7000")], broker)
