"""Settings of single consumer groups (config resource GROUP): on a broker, on Apache Kafka, and on three."""

from __future__ import annotations

import pytest

from tests.support import processes, requests
from tests.support.consumer_groups import Consumer
from tests.support.requests import (
    APPEND,
    DELETE,
    GROUP_RESOURCE,
    SET,
    alter_config,
    create_topic,
    describe_configs,
)
from tests.support.routing import shared_site
from tests.support.wire import Wire

INVALID_CONFIG, INVALID_REQUEST = 40, 42
DEFAULT, DYNAMIC_GROUP = 5, 8
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
broker = shared_site()


def alter(wire: Wire, group: str, key: str, value: str | None, operation: int = SET) -> int:
    answer = alter_config(
        wire, group, key, value, operation=operation, resource_type=GROUP_RESOURCE
    )
    code: int = answer.error_code
    return code


def described(wire: Wire, group: str) -> dict[str, tuple[str, int, int]]:
    """Value, source and type of each."""
    found = describe_configs(wire, GROUP_RESOURCE, group)
    assert found.error_code == 0
    return {each.name: (each.value, each.config_source, each.config_type) for each in found.configs}


def wait_for(wire: Wire, group: str, key: str, value: str) -> None:
    """Apache Kafka's broker hears of it some time after its controller has answered."""
    processes.wait_until(
        lambda: described(wire, group)[key][0] == value, 30, f"{key}={value} of {group}"
    )


def test_they_are_described_with_where_they_come_from(wire: Wire, group: str) -> None:
    found = described(wire, group)
    assert found[SESSION] == ("45000", DEFAULT, 3)
    assert found[HEARTBEAT] == ("5000", DEFAULT, 3)
    assert found[ASSIGNMENT] == ("1000", DEFAULT, 3)
    assert "consumer.assignor.offload.enable" not in found  # until it is set
    assert alter(wire, group, SESSION, "50000") == 0
    assert alter(wire, group, "consumer.assignor.offload.enable", "false") == 0
    wait_for(wire, group, SESSION, "50000")
    answer = describe_configs(wire, GROUP_RESOURCE, group, [SESSION], include_synonyms=True)
    (only,) = answer.configs
    assert [(each.name, each.value, each.source) for each in only.synonyms] == [
        (SESSION, "50000", DYNAMIC_GROUP),
        ("group.consumer.session.timeout.ms", "45000", DEFAULT),
    ]
    assert (only.read_only, only.is_sensitive) == (False, False)
    assert described(wire, group)["consumer.assignor.offload.enable"][:2] == (
        "false",
        DYNAMIC_GROUP,
    )
    assert alter(wire, group, SESSION, None, DELETE) == 0
    wait_for(wire, group, SESSION, "45000")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (SESSION, "44999"),
        (SESSION, "60001"),
        (SESSION, "x"),
        (SESSION, "0"),
        (HEARTBEAT, "4999"),
        (HEARTBEAT, "15001"),
        (ASSIGNMENT, "15001"),
        (ASSIGNMENT, "-1"),
        ("consumer.assignor.offload.enable", "perhaps"),
        ("unheard.of", "1"),
    ],
)
def test_what_is_refused(wire: Wire, group: str, key: str, value: str) -> None:
    assert alter(wire, group, key, value) == INVALID_CONFIG
    assert alter(wire, group, SESSION, "50000", APPEND) == INVALID_CONFIG


def test_a_group_has_a_name(wire: Wire) -> None:
    assert alter(wire, "", SESSION, "50000") == INVALID_REQUEST
    assert describe_configs(wire, GROUP_RESOURCE, "").error_code == INVALID_REQUEST


@pytest.mark.parametrize("name", ["a/b", "..", "ä ö", "%2E", "a" * 300])
def test_any_group_may_have_settings_before_it_is_there(wire: Wire, name: str) -> None:
    group = name if name == ".." else f"{name}-{requests.new_topic_name()}"
    assert alter(wire, group, HEARTBEAT, "7000") == 0
    wait_for(wire, group, HEARTBEAT, "7000")
    listed = wire.request("list_config_resources", 1, resource_types=[GROUP_RESOURCE])
    assert (group, GROUP_RESOURCE) in {
        (each.resource_name, each.resource_type) for each in listed.config_resources
    }
    assert alter(wire, group, HEARTBEAT, None, DELETE) == 0
    wait_for(wire, group, HEARTBEAT, "5000")
    listed = wire.request("list_config_resources", 1, resource_types=[GROUP_RESOURCE])
    assert group not in {each.resource_name for each in listed.config_resources}


def test_all_of_them_are_replaced(wire: Wire, group: str) -> None:
    def replace(**configs: str) -> int:
        answer = wire.request(
            "alter_configs", 2, validate_only=False,
            resources=[
                {
                    "resource_type": GROUP_RESOURCE, "resource_name": group,
                    "configs": [
                        {"name": name.replace("_", "."), "value": value}
                        for name, value in configs.items()
                    ],
                }
            ],
        )  # fmt: skip
        code: int = answer.responses[0].error_code
        return code

    assert replace(consumer_session_timeout_ms="50000") == 0
    wait_for(wire, group, SESSION, "50000")
    assert replace(consumer_heartbeat_interval_ms="6000") == 0
    wait_for(wire, group, HEARTBEAT, "6000")
    assert described(wire, group)[SESSION][:2] == ("45000", DEFAULT)


def test_members_are_told_their_groups_heartbeat_interval(wire: Wire, group: str) -> None:
    topic = create_topic(wire)
    member = Consumer(wire, group, (topic,))
    assert member.join().heartbeat_interval == 5000
    assert alter(wire, group, HEARTBEAT, "9000") == 0
    wait_for(wire, group, HEARTBEAT, "9000")
    assert member.beat().heartbeat_interval == 9000
    assert member.leave().error_code == 0
