"""Three brokers that replicate: what was acknowledged by all is on each, and outlives its leader."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import apache, processes, requests
from tests.support.cluster import Cluster
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

NOT_ENOUGH_REPLICAS = 19
TOPIC_AUTHORIZATION_FAILED = 29


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Of tests that kill nobody."""
    with Cluster(tmp_path_factory.mktemp("cluster"), zookeeper, "/replicating") as cluster:
        yield cluster


def create_topic(cluster: Cluster, partitions: int = 1, configs: Mapping[str, str] = {}) -> str:
    """Of three replicas; returns when all of them are in sync."""
    name = requests.new_topic_name()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic(name, partitions, 3, config=dict(configs))
    admin.create_topics([topic])[name].result(30)
    wait_for_isr(cluster, name, set(cluster.brokers))
    return name


def partitions_of(cluster: Cluster, topic: str, number: int | None = None) -> list[Any]:
    """As a running broker tells them."""
    if number is None:
        number = next(each for each, broker in cluster.brokers.items() if broker.process)
    (found,) = cluster.metadata(number, topic).topics
    return sorted(found.partitions, key=lambda each: each.partition_index)


def wait_for_isr(cluster: Cluster, topic: str, isr: set[int]) -> None:
    """Until every running broker tells this ISR of each partition."""

    def is_so() -> bool:
        return all(
            found and all(set(each.isr_nodes) == isr for each in found)
            for found in (
                partitions_of(cluster, topic, number)
                for number, broker in cluster.brokers.items()
                if broker.process is not None
            )
        )

    processes.wait_until(is_so, 60, f"the ISR {isr} of {topic}")


def produce_values(cluster: Cluster, topic: str, values: list[str], **settings: Any) -> None:
    failures: list[object] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, **settings}
    )
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: failures.append(error) if error else None
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failures == []


def consume_values(cluster: Cluster, topic: str, count: int, partition: int = 0) -> list[str]:
    """The first ``count`` of a partition, in its order."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "nobody"})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    found: list[str] = []

    def has_all() -> bool:
        for message in consumer.consume(count, 0.1):
            if message.error() is None:
                found.append(message.value().decode())
        return len(found) >= count

    try:
        processes.wait_until(has_all, 60, f"{count} records")
    finally:
        consumer.close()
    return found


def log_bytes(cluster: Cluster, number: int, topic: str) -> dict[str, bytes]:
    """Of every segment of the topic's on that broker."""
    logs = cluster.brokers[number].logs
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for path in sorted(logs.glob(f"{topic}-*/*.log"))
    }


def wait_for_equal_logs(cluster: Cluster, topic: str) -> dict[str, bytes]:
    def are_equal() -> bool:
        for broker in cluster.running:
            broker.control("trim")
        first, *others = (log_bytes(cluster, number, topic) for number in cluster.brokers)
        return bool(first) and all(each == first for each in others)

    processes.wait_until(are_equal, 30, "the followers' logs")
    return log_bytes(cluster, 1, topic)


def test_followers_have_byte_for_byte_what_the_leader_has(cluster: Cluster) -> None:
    topic = create_topic(cluster, 3, {"segment.bytes": str(1 << 20)})
    values = [f"{number} {'x' * 3000}" for number in range(3000)]
    produce_values(cluster, topic, values)
    logs = wait_for_equal_logs(cluster, topic)
    assert len(logs) > 6  # several segments
    found = [
        value
        for partition in range(3)
        for value in consume_values(
            cluster, topic, end_offset(cluster, topic, partition), partition
        )
    ]
    assert sorted(found) == sorted(values)


def end_offset(cluster: Cluster, topic: str, partition: int) -> int:
    leader = partitions_of(cluster, topic)[partition].leader_id
    with Wire(cluster.brokers[leader].address) as wire:
        found: int | None = None

        def is_told() -> bool:
            nonlocal found
            answer = requests.list_offset(wire, topic, requests.LATEST, partition=partition)
            found = answer.offset if answer.error_code == 0 else None
            return found is not None

        processes.wait_until(is_told, 30, "the latest offset")
    assert found is not None
    return found


def test_a_stranger_is_no_follower(cluster: Cluster) -> None:
    topic = create_topic(cluster)
    (partition,) = partitions_of(cluster, topic)
    with Wire(cluster.brokers[partition.leader_id].address) as wire:
        topic_id = requests.topic_id(wire, topic)
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        state = {"replica_id": partition.replica_nodes[1], "replica_epoch": 1}
        answer = wire.request(
            "fetch",
            15,
            replica_state=state,
            topics=[{"topic_id": topic_id, "partitions": [wanted]}],
        )
    ((told,),) = (each.partitions for each in answer.responses)
    assert told.error_code == TOPIC_AUTHORIZATION_FAILED


class Load:
    """An idempotent producer to one partition, until it is stopped: what was acknowledged."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": ",".join(each.bootstrap for each in cluster.brokers.values()),
                "enable.idempotence": True,
                "linger.ms": 1,
            }
        )
        self._topic = topic
        self._stopping = threading.Event()
        self.acknowledged: list[str] = []
        self.failures: list[object] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(
                self._topic, str(number), partition=0, on_delivery=self._on_delivery
            )
            number += 1
            self._producer.poll(0.001)
        assert self._producer.flush(60) == 0

    def _on_delivery(self, error: object, message: Any) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged.append(message.value().decode())

    def wait_for_more(self, count: int) -> None:
        enough = len(self.acknowledged) + count
        processes.wait_until(
            lambda: len(self.acknowledged) >= enough, 60, f"{count} more acknowledgements"
        )


def under_replicated(cluster: Cluster) -> list[str]:
    """As Kafka's own tool finds them."""
    arguments = ["--bootstrap-server", cluster.bootstrap, "--describe"]
    return apache.run_tool("TopicCommand", [*arguments, "--under-replicated-partitions"]).ok().lines


def test_a_killed_leader_loses_nothing_that_was_acknowledged(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    with Cluster(tmp_path, zookeeper, "/failing-over") as cluster:
        topic = create_topic(cluster, configs={"min.insync.replicas": "2"})
        with Load(cluster, topic) as load:
            for _ in range(2):
                load.wait_for_more(200)
                (partition,) = partitions_of(cluster, topic)
                killed = partition.leader_id
                cluster.brokers[killed].kill9()
                load.wait_for_more(200)
                left = sorted(cluster.brokers.keys() - {killed})
                (told,) = (each for each in under_replicated(cluster) if f"Topic: {topic}" in each)
                assert f"Isr: {left[0]},{left[1]}" in told
                cluster.brokers[killed].start()
                wait_for_isr(cluster, topic, set(cluster.brokers))
        assert load.failures == []
        acknowledged = load.acknowledged
        assert acknowledged == [str(number) for number in range(len(acknowledged))]
        assert consume_values(cluster, topic, len(acknowledged)) == acknowledged
        assert end_offset(cluster, topic, 0) == len(acknowledged)
        wait_for_equal_logs(cluster, topic)
