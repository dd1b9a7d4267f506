"""Topics of several replicas in a cluster of ours: made, written to under load, looked at on every broker."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import apache, processes, requests
from tests.support.cluster import Cluster
from tests.support.wire import Wire


def create_topic(
    cluster: Cluster,
    partitions: int = 1,
    configs: Mapping[str, str] = {},
    replicas: list[int] | None = None,
) -> str:
    """Of three replicas, or on these brokers; returns when all of them are in sync."""
    name = requests.new_topic_name()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    if replicas is None:
        topic = NewTopic(name, partitions, 3, config=dict(configs))
    else:
        assignment = [replicas] * partitions
        topic = NewTopic(name, partitions, replica_assignment=assignment, config=dict(configs))
    admin.create_topics([topic])[name].result(30)
    wait_for_isr(cluster, name, set(replicas or cluster.brokers))
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


class Bootstrapped(Protocol):
    """A cluster or a broker."""

    @property
    def bootstrap(self) -> str: ...


def produce_values(
    cluster: Bootstrapped, topic: str, values: list[str], partition: int = -1, **settings: Any
) -> None:
    """``partition`` -1: any."""
    failures: list[object] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, **settings}
    )
    for value in values:
        producer.produce(
            topic,
            value,
            partition=partition,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failures == []


def consume_values(cluster: Cluster, topic: str, count: int, partition: int = 0) -> list[str]:
    """The first ``count`` of a partition, in its order."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "nobody"})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    try:
        return next_values(consumer, count)
    finally:
        consumer.close()


def next_values(consumer: Consumer, count: int) -> list[str]:
    """What it gets, until it has ``count``."""
    found: list[str] = []

    def has_all() -> bool:
        for message in consumer.consume(count, 0.1):
            if message.error() is None:
                found.append(message.value().decode())
        return len(found) >= count

    processes.wait_until(has_all, 60, f"{count} records")
    return found


def log_bytes(
    cluster: Cluster, number: int, topic: str, partition: int | None = None
) -> dict[str, bytes]:
    """Of every segment of the topic's on that broker, or of one of its partitions."""
    logs = cluster.brokers[number].logs
    which = "*" if partition is None else partition
    return {
        f"{path.parent.name}/{path.name}": path.read_bytes()
        for path in sorted(logs.glob(f"{topic}-{which}/*.log"))
        if not path.parent.name.endswith("-delete")
    }


def wait_for_equal_logs(
    cluster: Cluster, topic: str, numbers: Collection[int] = (), partition: int | None = None
) -> dict[str, bytes]:
    """Of these brokers, or of all."""
    found: list[dict[str, bytes]] = []

    def are_equal() -> bool:
        for broker in cluster.running:
            broker.control("trim")
        found[:] = (
            log_bytes(cluster, each, topic, partition) for each in numbers or cluster.brokers
        )
        return bool(found[0]) and all(each == found[0] for each in found)

    processes.wait_until(are_equal, 30, "the followers' logs")
    return found[0]


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


class Load:
    """An idempotent producer to one partition (or in turn to each), until it is stopped: what was acknowledged."""

    def __init__(
        self, cluster: Cluster, topic: str, *, partitions: int = 1, pause_seconds: float = 0
    ) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": ",".join(each.bootstrap for each in cluster.brokers.values()),
                "enable.idempotence": True,
                "linger.ms": 1,
            }
        )
        self._topic = topic
        self._partitions = partitions
        self._pause_seconds = pause_seconds
        self._stopping = threading.Event()
        #: Whole numbers from 0 on; those of one partition in order.
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
                self._topic,
                str(number),
                partition=number % self._partitions,
                on_delivery=self._on_delivery,
            )
            number += 1
            self._producer.poll(0.001)
            self._stopping.wait(self._pause_seconds)
        assert self._producer.flush(60) == 0

    def _on_delivery(self, error: object, message: Any) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.acknowledged.append(message.value().decode())

    def of_partition(self, partition: int) -> list[str]:
        return [each for each in self.acknowledged if int(each) % self._partitions == partition]

    def wait_for_more(self, count: int) -> None:
        enough = len(self.acknowledged) + count
        processes.wait_until(
            lambda: len(self.acknowledged) >= enough, 60, f"{count} more acknowledgements"
        )


def under_replicated(cluster: Cluster) -> list[str]:
    """As Kafka's own tool finds them."""
    arguments = ["--bootstrap-server", cluster.bootstrap, "--describe"]
    return apache.run_tool("TopicCommand", [*arguments, "--under-replicated-partitions"]).ok().lines
