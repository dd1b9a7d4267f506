"""CreateTopics, CreatePartitions, DeleteTopics: verdicts, and that nothing half exists (C010)."""

import uuid
from typing import Any

import pytest

from tests.support import processes, requests
from tests.support.requests import create_topic, describe_topic, new_topic_name
from tests.support.wire import ZERO_UUID, Wire

UNKNOWN_TOPIC, INVALID_TOPIC, TOPIC_EXISTS, INVALID_PARTITIONS = 3, 17, 36, 37
INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG = 38, 39, 40
INVALID_REQUEST, REASSIGNMENT_IN_PROGRESS, UNKNOWN_TOPIC_ID = 42, 60, 100


def create(wire: Wire, *topics: dict[str, Any], version: int = 7, validate_only: bool = False):
    answer = wire.request(
        "create_topics",
        version,
        timeout=30000,
        validate_only=validate_only,
        topics=[{"num_partitions": 1, "replication_factor": 1, **topic} for topic in topics],
    )
    return answer.topics


def exists(wire: Wire, name: str) -> bool:
    return describe_topic(wire, name).error_code == 0


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_creates(wire: Wire, version: int) -> None:
    name = new_topic_name()
    (topic,) = create(wire, {"name": name, "num_partitions": 2}, version=version)
    assert (topic.name, topic.error_code, topic.error_message) == (name, 0, None)
    requests.wait_for_leaders(wire, name, 2)
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (2, 1)
        assert topic.topic_config_error_code == 0
        configs = {config.name: config for config in topic.configs}
        assert configs["retention.ms"].value == "604800000"
        assert configs["cleanup.policy"].read_only is False
        assert len(configs) >= 25
    if version >= 7:
        assert topic.topic_id == requests.topic_id(wire, name)


VERDICTS: list[tuple[str, dict[str, Any], int]] = [
    ("more replicas than brokers", {"num_partitions": 3, "replication_factor": 3}, 38),
    ("no replicas", {"replication_factor": 0}, 38),
    ("a negative replication factor", {"replication_factor": -2}, 38),
    ("no partitions", {"num_partitions": 0}, 37),
    ("a negative partition count", {"num_partitions": -2}, 37),
    (
        "an assignment to an unknown broker",
        {
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": [4711]}],
        },
        39,
    ),
    (
        "an assignment with a hole",
        {
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 1, "broker_ids": [1]}],
        },
        39,
    ),
    (
        "an assignment beside a partition count",
        {"num_partitions": 2, "assignments": [{"partition_index": 0, "broker_ids": [1]}]},
        42,
    ),
    (
        "an assignment without brokers",
        {
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": []}],
        },
        39,
    ),
    (
        "an assignment naming a broker twice",
        {
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": [1, 1]}],
        },
        39,
    ),
    ("an unknown config", {"configs": [{"name": "unknown.key", "value": "1"}]}, 40),
    ("an invalid config", {"configs": [{"name": "retention.ms", "value": "-5"}]}, 40),
    ("a config without a value", {"configs": [{"name": "retention.ms", "value": None}]}, 40),
]


@pytest.mark.parametrize(
    ("fields", "error_code"),
    [(fields, code) for _, fields, code in VERDICTS],
    ids=[title.replace(" ", "_") for title, _, _ in VERDICTS],
)
def test_a_refused_topic_is_told_why_and_not_created(
    wire: Wire, fields: dict[str, Any], error_code: int
) -> None:
    name = new_topic_name()
    for validate_only in (True, False):
        (topic,) = create(wire, {"name": name, **fields}, validate_only=validate_only)
        assert (topic.name, topic.error_code) == (name, error_code), topic
        assert topic.error_message
        assert topic.topic_id == ZERO_UUID
        assert not exists(wire, name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_an_illegal_name_is_refused(wire: Wire, name: str) -> None:
    (topic,) = create(wire, {"name": name})
    assert topic.error_code == INVALID_TOPIC
    assert topic.error_message


def test_the_longest_legal_name_works(wire: Wire) -> None:
    name = new_topic_name()
    name += "x" * (249 - len(name))
    create_topic(wire, name)
    assert requests.produce_values(wire, name, [b"v"]) == 0
    requests.delete_topic(wire, name)


def test_names_that_collide_in_metrics_are_refused(wire: Wire) -> None:
    prefix = new_topic_name()
    create_topic(wire, f"{prefix}.a")
    (topic,) = create(wire, {"name": f"{prefix}_a"})
    assert topic.error_code == INVALID_TOPIC
    assert topic.error_message


def test_a_topic_that_exists_is_refused(wire: Wire) -> None:
    name = create_topic(wire)
    for validate_only in (True, False):
        (topic,) = create(wire, {"name": name}, validate_only=validate_only)
        assert topic.error_code == TOPIC_EXISTS
        assert name in topic.error_message


def test_the_same_topic_twice_in_a_request_is_refused(wire: Wire) -> None:
    twice, other = new_topic_name(), new_topic_name()
    answers = create(wire, {"name": twice}, {"name": twice}, {"name": other})
    found = {topic.name: topic.error_code for topic in answers}
    assert found == {twice: INVALID_REQUEST, other: 0}
    assert not exists(wire, twice)


def test_defaults_of_the_broker_are_used_for_minus_one(wire: Wire) -> None:
    for version in (4, 5, 7):
        name = new_topic_name()
        (topic,) = create(
            wire,
            {"name": name, "num_partitions": -1, "replication_factor": -1},
            version=version,
        )
        assert topic.error_code == 0
        requests.wait_for_leaders(wire, name, 1)
        assert len(describe_topic(wire, name).partitions) == 1


def test_a_manual_assignment_is_followed(wire: Wire) -> None:
    (node,) = wire.request("metadata", 1, topics=[]).brokers
    name = new_topic_name()
    (topic,) = create(
        wire,
        {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                {"partition_index": 0, "broker_ids": [node.node_id]},
                {"partition_index": 1, "broker_ids": [node.node_id]},
            ],
        },
    )
    assert (topic.error_code, topic.num_partitions, topic.replication_factor) == (0, 2, 1)
    requests.wait_for_leaders(wire, name, 2)


def test_validate_only_creates_nothing(wire: Wire) -> None:
    name = new_topic_name()
    (topic,) = create(wire, {"name": name, "num_partitions": 3}, validate_only=True)
    assert (topic.error_code, topic.num_partitions) == (0, 3)
    assert not exists(wire, name)


def test_good_and_bad_topics_of_a_request_are_judged_apart(wire: Wire) -> None:
    good, bad = new_topic_name(), new_topic_name()
    found = {
        topic.name: topic.error_code
        for topic in create(wire, {"name": bad, "num_partitions": 0}, {"name": good})
    }
    assert found == {good: 0, bad: INVALID_PARTITIONS}
    requests.wait_for_leaders(wire, good, 1)


def test_configs_given_at_creation_are_in_force(wire: Wire) -> None:
    name = create_topic(wire, configs={"retention.ms": "1234", "cleanup.policy": "compact"})
    config = requests.topic_config(wire, name, "retention.ms")
    assert (config.value, config.config_source) == ("1234", 1)
    assert requests.topic_config(wire, name, "cleanup.policy").value == "compact"


# ------------------------------------------------------------------------------- partitions


def add_partitions(
    wire: Wire,
    name: str,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    version: int = 3,
    validate_only: bool = False,
):
    answer = wire.request(
        "create_partitions",
        version,
        timeout=30000,
        validate_only=validate_only,
        topics=[
            {
                "name": name,
                "count": count,
                "assignments": None
                if assignments is None
                else [{"broker_ids": ids} for ids in assignments],
            }
        ],
    )
    (found,) = answer.results
    assert found.name == name
    return found


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_behind_the_old_ones(wire: Wire, version: int) -> None:
    name = create_topic(wire)
    requests.produce_values(wire, name, [b"before"])
    assert add_partitions(wire, name, 3, version=version).error_code == 0
    requests.wait_for_leaders(wire, name, 3)
    assert [record.value for record in requests.read_all(wire, name)] == [b"before"]
    assert requests.produce_values(wire, name, [b"v"], partition=2) == 0


@pytest.mark.parametrize(
    ("count", "assignments", "error_code"),
    [
        (2, None, INVALID_PARTITIONS),
        (1, None, INVALID_PARTITIONS),
        (0, None, INVALID_PARTITIONS),
        (-1, None, INVALID_PARTITIONS),
        (4, [[1]], INVALID_REPLICA_ASSIGNMENT),
        (3, [[4711]], INVALID_REPLICA_ASSIGNMENT),
        (3, [[]], INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_refused_partitions_change_nothing(
    wire: Wire, count: int, assignments: list[list[int]] | None, error_code: int
) -> None:
    name = create_topic(wire, partitions=2)
    answer = add_partitions(wire, name, count, assignments)
    assert answer.error_code == error_code, answer
    assert answer.error_message
    assert len(describe_topic(wire, name).partitions) == 2


def test_partitions_of_an_unknown_topic_are_refused(wire: Wire) -> None:
    assert add_partitions(wire, new_topic_name(), 3).error_code == UNKNOWN_TOPIC


def test_partitions_are_only_validated_when_so_asked(wire: Wire) -> None:
    name = create_topic(wire)
    assert add_partitions(wire, name, 3, validate_only=True).error_code == 0
    assert len(describe_topic(wire, name).partitions) == 1


# --------------------------------------------------------------------------------- deletion


@pytest.mark.parametrize("version", range(1, 7))
def test_every_version_deletes(wire: Wire, version: int) -> None:
    name = create_topic(wire, partitions=2)
    answer = wire.request(
        "delete_topics", version, timeout=30000, topic_names=[name], topics=[{"name": name}]
    )
    (found,) = answer.responses
    assert (found.name, found.error_code) == (name, 0)
    processes.wait_until(lambda: not exists(wire, name), 30, "the deletion")
    assert requests.try_produce(wire, name, None).error_code == UNKNOWN_TOPIC


def test_a_topic_is_deleted_by_its_id(wire: Wire) -> None:
    name = create_topic(wire)
    known = requests.topic_id(wire, name)
    answer = wire.request(
        "delete_topics", 6, timeout=30000, topics=[{"name": None, "topic_id": known}]
    )
    (found,) = answer.responses
    assert (found.name, found.topic_id, found.error_code) == (name, known, 0)
    processes.wait_until(lambda: not exists(wire, name), 30, "the deletion")


def test_what_does_not_exist_cannot_be_deleted(wire: Wire) -> None:
    name, unknown = new_topic_name(), uuid.uuid4()
    answer = wire.request(
        "delete_topics",
        6,
        timeout=30000,
        topics=[{"name": name}, {"name": None, "topic_id": unknown}],
    )
    found = {(part.name, part.topic_id): part.error_code for part in answer.responses}
    assert found == {(name, ZERO_UUID): UNKNOWN_TOPIC, (None, unknown): UNKNOWN_TOPIC_ID}


def test_a_topic_created_anew_never_sees_old_bytes(wire: Wire) -> None:
    name = create_topic(wire)
    for turn in range(5):
        value = f"turn {turn}".encode()
        assert requests.produce_values(wire, name, [value]) == 0
        assert [record.value for record in requests.read_all(wire, name)] == [value]
        old = requests.topic_id(wire, name)
        requests.delete_topic(wire, name)
        processes.wait_until(lambda: not exists(wire, name), 30, "the deletion")
        create_topic(wire, name)
        assert requests.topic_id(wire, name) != old
        assert requests.end_offset(wire, name) == 0
