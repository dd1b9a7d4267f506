"""How long a producer waits when a broker of three is killed: Apache Kafka beside Odradek.

    python -m tests.bench.failover [--kills 20] [--kafka-kills 3] [--broker odradek]

Three brokers with their default settings (of ours with ZooKeeper, of Kafka with KRaft), a topic of three
replicas and min.insync.replicas=2, made anew for each kill, and one idempotent producer (librdkafka, its
settings are printed) that writes a record each millisecond to one partition. `kill -9` of a leader that is not the
controller, of one that is, and of a follower in the ISR. Told is the time from the kill to the record
that was acknowledged after the longest silence. Kafka tells clients any broker as the controller, so its
leaders are killed whatever they are. Ends with 1 when a kill took as long as the bar or a record failed.
"""

import argparse
import itertools
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import confluent_kafka
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench import clusters, report
from tests.bench.clusters import Node
from tests.support import processes

BAR_SECONDS = 2.0
LEADER, CONTROLLER, FOLLOWER = "leader, not controller", "leader and controller", "follower"
ANY_LEADER = "leader"
PARTITIONS = 3
PRODUCER = {"enable.idempotence": True, "acks": "all", "linger.ms": 1}
#: Acknowledged before a kill, and after it when everything goes on.
ENOUGH = 300


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20, help="of each kind, of ours")
    parser.add_argument("--kafka-kills", type=int, default=3, help="of each kind, of Kafka")
    parser.add_argument("--broker", choices=("odradek", "kafka"), help="one side alone")
    options = parser.parse_args()
    print_facts(PRODUCER)
    is_good = True
    with tempfile.TemporaryDirectory(prefix="odradek-failover-") as name:
        if options.broker != "kafka":
            with clusters.odradek(Path(name) / "odradek") as nodes:
                kinds = (LEADER, CONTROLLER, FOLLOWER)
                taken = kill_in_turn("Odradek", nodes, kinds, options.kills)
                is_good = max(itertools.chain(*taken.values())) < BAR_SECONDS
        if options.broker != "odradek":
            with clusters.kafka(Path(name) / "kafka", kind=clusters.SmallKafkaNode) as nodes:
                kill_in_turn("Apache Kafka", nodes, (ANY_LEADER, FOLLOWER), options.kafka_kills)
    return 0 if is_good else 1


def print_facts(producer: Mapping[str, object]) -> None:
    """Of the machine, and of the producer with these settings."""
    for name, fact in report.machine_facts().items():
        print(f"{name}: {fact}")
    settings = " ".join(f"{key}={value}" for key, value in producer.items())
    version = confluent_kafka.libversion()[0]
    print(f"producer: librdkafka {version}, {settings}, otherwise its defaults\n", flush=True)


def kill_in_turn(
    name: str, nodes: Mapping[int, Node], kinds: tuple[str, ...], kills: int
) -> dict[str, list[float]]:
    """Seconds of each kill, by kind."""
    bootstrap = ",".join(node.bootstrap for node in nodes.values())
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(kills):
        for kind in kinds:
            seconds = kill_one(nodes, bootstrap, f"failover-{number}-{kinds.index(kind)}", kind)
            taken[kind].append(seconds)
            print(f"{name}: {kind}: {seconds:.2f} s", file=sys.stderr, flush=True)
    print_summary({f"{name}: kill -9 of a {kind}": each for kind, each in taken.items()})
    return taken


def print_summary(taken: Mapping[str, list[float]]) -> None:
    """Seconds, by what was done."""
    for what, each in taken.items():
        told = sorted(each)
        print(
            f"{what}, {len(told)} times:"
            f" fastest {told[0]:.2f} s, median {told[len(told) // 2]:.2f} s, slowest {told[-1]:.2f} s",
            flush=True,
        )


def kill_one(nodes: Mapping[int, Node], bootstrap: str, topic: str, kind: str) -> float:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(topic, PARTITIONS, len(nodes), config={"min.insync.replicas": "2"})
    admin.create_topics([new])[topic].result(60)
    wait_for_isr(admin, topic, len(nodes))
    partition, victim = chosen(admin.list_topics(timeout=30), topic, kind)
    with Load(bootstrap, topic, partition) as load:
        load.wait_for_more()
        nodes[victim].kill9()
        killed = time.perf_counter()
        wait_for_isr(admin, topic, len(nodes) - 1)
        load.wait_for_more()
    seconds = load.silence_after(killed)
    nodes[victim].start()
    wait_for_isr(admin, topic, len(nodes))
    admin.delete_topics([topic])[topic].result(60)
    return seconds


def chosen(cluster: Any, topic: str, kind: str) -> tuple[int, int]:
    """A partition, and the broker to be killed. New topics have a leader on each broker."""
    for partition in cluster.topics[topic].partitions.values():
        is_controller = partition.leader == cluster.controller_id
        if kind == FOLLOWER:
            return partition.id, next(each for each in partition.isrs if each != partition.leader)
        if kind == ANY_LEADER or is_controller == (kind == CONTROLLER):
            return partition.id, partition.leader
    raise RuntimeError(f"no {kind}")


def wait_for_isr(admin: AdminClient, topic: str, size: int) -> None:
    def is_so() -> bool:
        try:
            found = admin.list_topics(topic, timeout=5).topics[topic].partitions
        except confluent_kafka.KafkaException:
            return False
        return len(found) == PARTITIONS and all(len(p.isrs) == size for p in found.values())

    processes.wait_until(is_so, 120, f"an ISR of {size}", every=0.05)


class Load:
    """Writes to one partition until it is left, and knows when each record was acknowledged."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partition: int,
        settings: Mapping[str, object] = PRODUCER,
    ) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings})
        self._topic, self._partition = topic, partition
        self._stopping = threading.Event()
        self._at: list[float] = []
        self._failures: list[object] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        if self._failures:
            raise RuntimeError(f"{len(self._failures)} records failed: {self._failures[0]}")

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._producer.produce(
                self._topic, b"x" * 100, partition=self._partition, on_delivery=self._on_delivery
            )
            self._producer.poll(0.001)
        self._producer.flush(60)

    def _on_delivery(self, error: object, _: object) -> None:
        if error is None:
            self._at.append(time.perf_counter())
        else:
            self._failures.append(error)

    def wait_for_more(self) -> None:
        enough = len(self._at) + ENOUGH
        processes.wait_until(lambda: len(self._at) >= enough, 120, "acknowledgements")

    def silence_after(self, moment: float) -> float:
        """From that moment to the end of the longest silence since."""
        times = [moment, *(at for at in self._at if at > moment)]
        _, end = max((after - before, after) for before, after in itertools.pairwise(times))
        return end - moment


if __name__ == "__main__":
    sys.exit(main())
