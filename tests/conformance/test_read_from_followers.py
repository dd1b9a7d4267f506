"""Consumers read from followers in their rack (KIP-392): one script for three brokers of either kind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench import clusters
from tests.support import apache, processes, record_batches, requests
from tests.support.cluster import Cluster
from tests.support.replicated import next_values
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

pytestmark = pytest.mark.slow

SELECTOR = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
RACKS = {1: "a", 2: "b", 3: "c"}
NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = (
    6,
    1,
    74,
    75,
)


@pytest.fixture(scope="module", params=["odradek", "apache"])
def nodes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int, Any]]:
    directory = tmp_path_factory.mktemp("racks")
    with ExitStack() as stack:
        if request.param == "apache":
            own = {number: {"broker.rack": rack, **SELECTOR} for number, rack in RACKS.items()}
            kind = clusters.SmallKafkaNode
            yield dict(stack.enter_context(clusters.kafka(directory, own, kind=kind)))
            return
        server = stack.enter_context(ZooKeeper(directory / "zookeeper"))
        cluster = Cluster(directory, server, "/racks", properties=SELECTOR)
        for number, broker in cluster.brokers.items():
            broker.properties["broker.rack"] = RACKS[number]
        stack.enter_context(cluster)
        yield dict(cluster.brokers)


def bootstrap(nodes: dict[int, Any]) -> str:
    return ",".join(node.bootstrap for node in nodes.values() if node.process is not None)


def create(nodes: dict[int, Any], values: list[bytes]) -> str:
    """Led by broker 1; all replicas are in sync, and have the values."""
    name = requests.new_topic_name()
    admin = AdminClient({"bootstrap.servers": bootstrap(nodes)})
    new = NewTopic(name, 1, replica_assignment=[[1, 2, 3]])
    admin.create_topics([new])[name].result(60)

    def is_led() -> bool:
        found = admin.list_topics(name, timeout=30).topics[name].partitions
        return 0 in found and found[0].leader == 1 and set(found[0].isrs) == {1, 2, 3}

    processes.wait_until(is_led, 60, f"{name} in sync")
    produce(nodes, name, values)
    for number in nodes:
        wait_for_high_watermark(nodes, number, name, len(values))
    return name


def produce(nodes: dict[int, Any], topic: str, values: list[bytes]) -> None:
    with Wire(nodes[1].address, timeout=30) as wire:
        requests.produce_values(wire, topic, values)


def wait_for_high_watermark(nodes: dict[int, Any], number: int, topic: str, offset: int) -> None:
    """Without a rack the leader is not asked who else could be read from."""
    with Wire(nodes[number].address, timeout=30) as wire:

        def has_come() -> bool:
            found = requests.fetch(wire, topic, 0, max_wait=0)
            return found.error_code == 0 and found.high_watermark == offset

        processes.wait_until(has_come, 30, f"{offset} records of {topic} on broker {number}")


def values_in(part: Any) -> list[bytes]:
    return [each.value for each in record_batches.records(part.records or b"")]


def test_the_leader_names_the_follower_in_the_consumers_rack(nodes: dict[int, Any]) -> None:
    topic = create(nodes, [b"x", b"y"])
    with Wire(nodes[1].address, timeout=30) as wire:
        topic_id = requests.topic_id(wire, topic)
        for version, key in ((11, topic), (12, topic), (17, topic_id)):
            # At once, and without records, also at the end of the log.
            for offset in (0, 2):
                found = requests.fetch(
                    wire, key, offset, version=version, rack_id="b", max_wait=20_000
                )
                assert (found.error_code, found.preferred_read_replica) == (0, 2)
                assert values_in(found) == []
                assert found.high_watermark == 2
        for rack in ("a", "elsewhere", ""):
            found = requests.fetch(wire, topic, 0, rack_id=rack)
            assert (found.preferred_read_replica, values_in(found)) == (-1, [b"x", b"y"])
        beyond = requests.fetch(wire, topic, 3, rack_id="b")
        assert (beyond.error_code, beyond.preferred_read_replica) == (OFFSET_OUT_OF_RANGE, -1)


def test_each_fetch_of_a_session_is_told_again(nodes: dict[int, Any]) -> None:
    topic = create(nodes, [b"x"])
    with Wire(nodes[1].address, timeout=30) as wire:
        fields = requests.fetch_fields(topic, {0: 1}, rack_id="c", session_id=0, session_epoch=0)
        first = wire.request("fetch", 11, **fields)
        assert first.responses[0].partitions[0].preferred_read_replica == 3
        again = {**fields, "topics": [], "session_id": first.session_id, "session_epoch": 1}
        told = wire.request("fetch", 11, **again)
        assert told.responses[0].partitions[0].preferred_read_replica == 3


def test_a_follower_serves_what_is_committed(nodes: dict[int, Any]) -> None:
    topic = create(nodes, [b"x", b"y"])
    with Wire(nodes[2].address, timeout=30) as wire:
        for rack in ("b", "a", ""):
            found = requests.fetch(wire, topic, 1, rack_id=rack)
            assert (found.error_code, found.preferred_read_replica) == (0, -1)
            assert values_in(found) == [b"y"] or values_in(found) == [b"x", b"y"]
        old = requests.fetch(wire, topic, 0, version=10)
        assert old.error_code == NOT_LEADER_OR_FOLLOWER
        assert requests.fetch(wire, topic, 3).error_code == OFFSET_OUT_OF_RANGE
        ahead = requests.fetch(wire, topic, 0, current_leader_epoch=99)
        assert ahead.error_code == UNKNOWN_LEADER_EPOCH
        committed = requests.fetch(wire, topic, 0, isolation_level=1)
        assert (committed.last_stable_offset, values_in(committed)) == (2, [b"x", b"y"])
        refused = requests.list_offset(wire, topic, requests.LATEST)
        assert refused.error_code == NOT_LEADER_OR_FOLLOWER
        # A poll waits here for what the leader appends.
        answers: list[Any] = []
        waiting = threading.Thread(
            target=lambda: answers.append(requests.fetch(wire, topic, 2, max_wait=25_000))
        )
        waiting.start()
        produce(nodes, topic, [b"z"])
        waiting.join()
        assert values_in(answers[0]) == [b"z"]


def test_kafkas_consumer_reads_in_its_rack(nodes: dict[int, Any]) -> None:
    values = [str(number).encode() for number in range(500)]
    topic = create(nodes, values)
    options = [
        f"--bootstrap-server={bootstrap(nodes)}",
        f"--topic={topic}",
        "--from-beginning",
        "--max-messages=500",
        "--timeout-ms=60000",
        "--command-property=client.rack=b",
    ]
    is_ours = nodes[2].name == "odradek"
    before = {number: bytes_out(nodes[number], topic) for number in nodes if is_ours}
    told = apache.run_tool("consumer.ConsoleConsumer", options).ok().lines
    assert [each.encode() for each in told if each.isdecimal()] == values
    if is_ours:
        read = {number: bytes_out(nodes[number], topic) - before[number] for number in nodes}
        assert {number for number, size in read.items() if size > 0} == {2}


def bytes_out(node: Any, topic: str) -> int:
    """Read by clients since the broker started."""
    told = node.control("topics")
    (found,) = (each for each in told["topics"] if each["name"] == topic)
    return int(found["counters"][told["counters"].index("bytes_out")])


def test_a_consumer_goes_on_at_the_leader_when_its_follower_dies(nodes: dict[int, Any]) -> None:
    topic = create(nodes, [b"x"] * 10)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap(nodes), "group.id": "nobody", "client.rack": "c"}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        assert next_values(consumer, 10) == ["x"] * 10
        nodes[3].kill9()
        produce(nodes, topic, [b"y"] * 10)
        assert next_values(consumer, 10) == ["y"] * 10
    finally:
        consumer.close()
        if nodes[3].process is None:
            nodes[3].start()
