"""Moving partitions and electing leaders, where there is one broker: what is refused, and in which words."""

from typing import Any

import pytest

from tests.support import requests
from tests.support.requests import create_topic, describe_topic
from tests.support.wire import Wire

UNKNOWN_TOPIC, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT = 3, 38, 39
INVALID_REQUEST, ELECTION_NOT_NEEDED, NO_REASSIGNMENT = 42, 84, 85

PREFERRED, UNCLEAN = 0, 1


def reassign(
    wire: Wire, topics: list[dict[str, Any]], *, version: int = 0, **fields: Any
) -> list[tuple[str, list[tuple[int, int, str | None]]]]:
    answer = wire.request(
        "alter_partition_reassignments", version, timeout=30000, topics=topics, **fields
    )
    assert answer.error_code == 0
    return [
        (topic.name, [(p.partition_index, p.error_code, p.error_message) for p in topic.partitions])
        for topic in answer.responses
    ]


def to(topic: str, *partitions: tuple[int, list[int] | None]) -> dict[str, Any]:
    wanted = [{"partition_index": index, "replicas": replicas} for index, replicas in partitions]
    return {"name": topic, "partitions": wanted}


def node_id(wire: Wire) -> int:
    """Of the only broker there is."""
    (broker,) = wire.request("metadata", 9, topics=[]).brokers
    found: int = broker.node_id
    return found


def test_each_partition_that_cannot_be_moved_is_told_why(wire: Wire) -> None:
    topic, mine = create_topic(wire, partitions=4), node_id(wire)
    assignment = "The manual partition assignment includes"
    none = "absent-" + topic
    assert reassign(
        wire,
        [
            to(topic, (0, [mine]), (1, [4711]), (2, []), (3, None), (9, [mine])),
            to(none, (0, [mine])),
            to(topic, (0, [mine, mine]), (0, [4711, mine])),
        ],
    ) == [
        (
            topic,
            [
                (0, 0, None),
                (
                    1,
                    INVALID_REPLICA_ASSIGNMENT,
                    f"{assignment} broker 4711, but no such broker is registered.",
                ),
                (2, INVALID_REPLICA_ASSIGNMENT, f"{assignment} an empty replica list."),
                (3, NO_REASSIGNMENT, None),
                (9, UNKNOWN_TOPIC, f"Unable to find partition {topic}:9."),
            ],
        ),
        (none, [(0, UNKNOWN_TOPIC, f"Unable to find a topic named {none}.")]),
        (
            topic,
            [
                (
                    0,
                    INVALID_REPLICA_ASSIGNMENT,
                    f"{assignment} the broker {mine} more than once.",
                ),
                (
                    0,
                    INVALID_REPLICA_ASSIGNMENT,
                    f"{assignment} broker 4711, but no such broker is registered.",
                ),
            ],
        ),
    ]
    assert [p.replica_nodes for p in describe_topic(wire, topic).partitions] == [[mine]] * 4


def test_another_replication_factor_can_be_forbidden(wire: Wire) -> None:
    topic, mine = create_topic(wire), node_id(wire)
    for may_change in (True, False):
        answer = wire.request(
            "alter_partition_reassignments",
            1,
            timeout=30000,
            topics=[to(topic, (0, [mine]))],
            allow_replication_factor_change=may_change,
        )
        assert answer.allow_replication_factor_change is may_change
        assert answer.responses[0].partitions[0].error_code == 0


def test_nothing_is_asked_and_nothing_is_under_way(wire: Wire) -> None:
    topic = create_topic(wire)
    assert reassign(wire, []) == []
    for topics in (None, [], [{"name": topic, "partition_indexes": [0, 7]}], [{"name": "absent"}]):
        answer = wire.request("list_partition_reassignments", 0, timeout=30000, topics=topics)
        assert (answer.error_code, answer.topics) == (0, [])
        assert not answer.error_message


def elect(wire: Wire, version: int, **fields: Any) -> dict[str, list[tuple[int, int, str | None]]]:
    answer = wire.request("elect_leaders", version, timeout=30000, **fields)
    if version > 0:
        assert answer.error_code == 0
    return {
        result.topic: [
            (each.partition_id, each.error_code, each.error_message)
            for each in result.partition_result
        ]
        for result in answer.replica_election_results
    }


@pytest.mark.parametrize("version", range(3))
def test_no_leader_needs_to_be_elected(wire: Wire, version: int) -> None:
    topic = create_topic(wire, partitions=2)
    none = "absent-" + topic
    kinds: list[dict[str, int]] = [{}]
    if version >= 1:
        kinds = [{"election_type": PREFERRED}, {"election_type": UNCLEAN}]
    not_needed = "Leader election not needed for topic partition."
    for kind in kinds:
        asked = [{"topic": topic, "partitions": [0, 1, 7]}, {"topic": none, "partitions": [0]}]
        assert elect(wire, version, topic_partitions=asked, **kind) == {
            topic: [
                (0, ELECTION_NOT_NEEDED, not_needed),
                (1, ELECTION_NOT_NEEDED, not_needed),
                (7, UNKNOWN_TOPIC, f"No such partition as {topic}-7"),
            ],
            none: [(0, UNKNOWN_TOPIC, f"No such topic as {none}")],
        }
        assert elect(wire, version, topic_partitions=None, **kind)[topic] == []


def test_an_election_of_no_known_kind_is_refused(wire: Wire) -> None:
    topic = create_topic(wire)
    answer = wire.request(
        "elect_leaders",
        2,
        timeout=30000,
        election_type=7,
        topic_partitions=[{"topic": topic, "partitions": [0]}],
    )
    (result,) = answer.replica_election_results
    (each,) = result.partition_result
    assert (answer.error_code, each.error_code) == (INVALID_REQUEST, INVALID_REQUEST)
    requests.wait_for_leaders(wire, topic, 1)
