"""Metadata, DescribeCluster, DescribeTopicPartitions: who is there, and what they hold."""

import time
import uuid

import pytest

from tests.support import record_batches, requests
from tests.support.apache import ApacheKafka
from tests.support.odradek import OdradekBroker
from tests.support.requests import create_topic, describe_topic, new_topic_name
from tests.support.wire import ZERO_UUID, Wire

Broker = ApacheKafka | OdradekBroker
NONE_ASKED = -(1 << 31)
UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC, UNKNOWN_TOPIC_ID = 3, 17, 100
LEADER_NOT_AVAILABLE = 5


@pytest.mark.parametrize("version", range(14))
def test_every_version_describes_a_topic(broker: Broker, wire: Wire, version: int) -> None:
    name = create_topic(wire, partitions=3)
    answer = wire.request(
        "metadata", version, topics=[{"name": name}], allow_auto_topic_creation=False
    )
    (node,) = answer.brokers
    assert (node.host, node.port) == ("127.0.0.1", broker.port)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (0, name)
    assert sorted(p.partition_index for p in topic.partitions) == [0, 1, 2]
    for partition in topic.partitions:
        assert partition.error_code == 0
        assert partition.leader_id == node.node_id
        assert partition.replica_nodes == partition.isr_nodes == [node.node_id]
        assert getattr(partition, "offline_replicas", []) == []
        assert getattr(partition, "leader_epoch", 0) >= 0
    if version >= 1:
        assert answer.controller_id == node.node_id
        assert topic.is_internal is False
    if version >= 2:
        assert len(answer.cluster_id) == 22
    if version >= 10:
        assert topic.topic_id != ZERO_UUID


def test_no_list_means_every_topic_and_an_empty_list_means_none(wire: Wire) -> None:
    name = create_topic(wire)
    oldest = wire.request("metadata", 0, topics=[])
    assert name in {topic.name for topic in oldest.topics}
    for version in (1, 5, 9, 12):
        everything = wire.request("metadata", version, topics=None)
        assert name in {topic.name for topic in everything.topics}
        nothing = wire.request("metadata", version, topics=[])
        assert nothing.topics == []
        assert len(nothing.brokers) == 1


def test_a_topic_is_found_by_its_id(wire: Wire) -> None:
    name = create_topic(wire, partitions=2)
    known = requests.topic_id(wire, name)
    answer = wire.request("metadata", 12, topics=[{"topic_id": known, "name": None}])
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.topic_id) == (0, name, known)
    assert len(topic.partitions) == 2


def test_an_unknown_topic_id_is_told_so(wire: Wire) -> None:
    unknown = uuid.uuid4()
    answer = wire.request("metadata", 12, topics=[{"topic_id": unknown, "name": None}])
    (topic,) = answer.topics
    assert (topic.error_code, topic.topic_id) == (UNKNOWN_TOPIC_ID, unknown)


def test_an_unknown_topic_is_not_created_when_not_allowed(wire: Wire) -> None:
    name = new_topic_name()
    for _ in range(2):
        topic = describe_topic(wire, name)
        assert topic.error_code == UNKNOWN_TOPIC_OR_PARTITION
        assert (topic.name, topic.topic_id, topic.partitions) == (name, ZERO_UUID, [])


def test_an_unknown_topic_is_created_when_allowed(wire: Wire) -> None:
    name = new_topic_name()
    answer = wire.request("metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=True)
    assert answer.topics[0].error_code in (0, UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE)
    requests.wait_for_leaders(wire, name, 1)
    assert len(describe_topic(wire, name).partitions) == 1


def test_versions_before_4_always_create(wire: Wire) -> None:
    name = new_topic_name()
    wire.request("metadata", 1, topics=[{"name": name}])
    requests.wait_for_leaders(wire, name, 1)


@pytest.mark.parametrize("name", ["a b", "", "ä", "..", ".", "x" * 250, "a/b"])
def test_an_illegal_name_is_refused(wire: Wire, name: str) -> None:
    answer = wire.request("metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=True)
    assert answer.topics[0].error_code == INVALID_TOPIC
    listed = wire.request("metadata", 9, topics=None)
    assert name not in {topic.name for topic in listed.topics}


def test_authorized_operations_are_told_only_when_asked_for(wire: Wire) -> None:
    name = create_topic(wire)
    for version in (8, 10, 12):
        asked = wire.request(
            "metadata",
            version,
            topics=[{"name": name}],
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        assert asked.topics[0].topic_authorized_operations == 3576
        silent = wire.request("metadata", version, topics=[{"name": name}])
        assert silent.topics[0].topic_authorized_operations == NONE_ASKED
        if version <= 10:
            assert asked.cluster_authorized_operations > 0
            assert silent.cluster_authorized_operations == NONE_ASKED


def test_the_same_topic_asked_twice_is_answered_without_harm(wire: Wire) -> None:
    name = create_topic(wire)
    answer = wire.request("metadata", 9, topics=[{"name": name}, {"name": name}])
    assert {topic.name for topic in answer.topics} == {name}
    assert all(topic.error_code == 0 for topic in answer.topics)


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_names_this_broker(broker: Broker, wire: Wire, version: int) -> None:
    answer = wire.request("describe_cluster", version, include_cluster_authorized_operations=False)
    cluster_id = wire.request("metadata", 9, topics=[]).cluster_id
    assert (answer.error_code, answer.error_message) == (0, None)
    assert answer.cluster_id == cluster_id
    (node,) = answer.brokers
    assert answer.controller_id == node.broker_id
    assert (node.host, node.port, node.rack) == ("127.0.0.1", broker.port, None)
    assert answer.cluster_authorized_operations == NONE_ASKED
    if version >= 1:
        assert answer.endpoint_type == 1
    if version >= 2:
        assert node.is_fenced is False


def test_describe_cluster_tells_operations_when_asked(wire: Wire) -> None:
    answer = wire.request("describe_cluster", 1, include_cluster_authorized_operations=True)
    assert (
        answer.cluster_authorized_operations
        == wire.request(
            "metadata", 9, topics=[], include_cluster_authorized_operations=True
        ).cluster_authorized_operations
    )


def test_describe_cluster_refuses_to_speak_for_controllers(wire: Wire) -> None:
    answer = wire.request("describe_cluster", 1, endpoint_type=2)
    assert answer.error_code == 114  # MISMATCHED_ENDPOINT_TYPE
    assert answer.error_message
    answer = wire.request("describe_cluster", 1, endpoint_type=7)
    assert answer.error_code == 115  # UNSUPPORTED_ENDPOINT_TYPE


def describe_partitions(wire: Wire, names: list[str], limit: int = 2000, cursor=None):
    return wire.request(
        "describe_topic_partitions",
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )


def test_describe_topic_partitions_tells_every_partition(wire: Wire) -> None:
    name = create_topic(wire, partitions=3)
    answer = describe_partitions(wire, [name])
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, name, False)
    assert topic.topic_id == requests.topic_id(wire, name)
    assert topic.topic_authorized_operations == 3576
    assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
    for partition in topic.partitions:
        assert partition.error_code == 0
        assert partition.replica_nodes == partition.isr_nodes == [partition.leader_id]
        assert partition.offline_replicas == []
    assert answer.next_cursor is None


def test_describe_topic_partitions_pages_by_cursor(wire: Wire) -> None:
    prefix = new_topic_name()
    names = [create_topic(wire, f"{prefix}-{i}", partitions=2) for i in range(3)]
    found, cursor = [], None
    for _ in range(10):
        answer = describe_partitions(wire, names, limit=1 if cursor is None else 2, cursor=cursor)
        for topic in answer.topics:
            found += [(topic.name, p.partition_index) for p in topic.partitions]
        if answer.next_cursor is None:
            break
        cursor = {
            "topic_name": answer.next_cursor.topic_name,
            "partition_index": answer.next_cursor.partition_index,
        }
    assert found == [(name, index) for name in names for index in range(2)]


def test_describe_topic_partitions_names_what_is_unknown(wire: Wire) -> None:
    known, unknown = create_topic(wire, new_topic_name("a")), new_topic_name("b")
    answer = describe_partitions(wire, [unknown, known])
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        (known, 0),
        (unknown, UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_describe_topic_partitions_without_names_lists_all_in_order(wire: Wire) -> None:
    name = create_topic(wire)
    answer = describe_partitions(wire, [])
    names = [topic.name for topic in answer.topics]
    assert name in names
    assert names == sorted(names)


def test_a_hundred_topics_are_created_by_their_first_write(wire: Wire, broker: Broker) -> None:
    # What clients do: Metadata, Produce, and again on a retriable error; few have many tries. Apache
    # Kafka answers before a topic is there, and takes what time the machine gives it.
    tries = 5 if isinstance(broker, OdradekBroker) else 3000
    data = record_batches.batch([b"first"], timestamp=requests.now_ms())
    for index in range(100):
        name = new_topic_name()
        for _ in range(tries):
            (topic,) = wire.request("metadata", 9, topics=[{"name": name}]).topics
            error_code = topic.error_code
            if error_code == 0:
                error_code = requests.try_produce(wire, name, data).error_code
            if error_code == 0:
                break
            assert error_code in (3, 5, 6), topic
            time.sleep(0.02)
        assert error_code == 0, index
        assert [record.value for record in requests.read_all(wire, name)] == [b"first"]
