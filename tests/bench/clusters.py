"""Three brokers of either kind: Apache Kafka's form a KRaft cluster, ours one through ZooKeeper. All on this machine."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, Self

from tests.bench import brokers
from tests.support import apache, judge, processes, wire
from tests.support.cluster import Cluster
from tests.support.zookeeper import ZooKeeper

NUMBERS = (1, 2, 3)
#: What tests shorten is again as it is by default.
ODRADEK_DEFAULTS = {"zookeeper.session.timeout.ms": "18000"}
START_SECONDS = 120


class Node(Protocol):
    """A broker of either kind."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def address(self) -> tuple[str, int]: ...
    @property
    def pid(self) -> int: ...
    def start(self) -> object: ...
    def kill9(self) -> None: ...


@contextmanager
def odradek(
    directory: Path, properties: Mapping[str, str] | None = None
) -> Iterator[Mapping[int, Node]]:
    with odradek_cluster(directory, properties) as (cluster, _):
        yield cluster.brokers


@contextmanager
def odradek_cluster(
    directory: Path, properties: Mapping[str, str] | None = None
) -> Iterator[tuple[Cluster, ZooKeeper]]:
    settings = {**ODRADEK_DEFAULTS, **(properties or {})}
    with (
        ZooKeeper(directory / "zookeeper") as zookeeper,
        Cluster(directory, zookeeper, "/bench", properties=settings) as cluster,
    ):
        yield cluster, zookeeper


class SmallKafkaNode(apache.ApacheKafka):
    """With the Java settings of tests: quick to start, and slow."""

    def format(self, cluster_id: str) -> None:
        arguments = ["format", f"--cluster-id={cluster_id}", "-c", self._write_settings()]
        apache.run_tool("kafka.tools.StorageTool", arguments).ok()


class KafkaNode(brokers.Kafka):
    """With those of its own start script."""

    def format(self, cluster_id: str) -> None:
        arguments = ["format", f"--cluster-id={cluster_id}", "-c", self._write_settings()]
        apache.run_tool("kafka.tools.StorageTool", arguments).ok()

    def start(self) -> Self:
        self.launch()
        process = self.process
        assert process is not None
        processes.wait_until(
            lambda: process.poll() is not None or wire.answers(self.address),
            START_SECONDS,
            "Apache Kafka's first answer",
            every=0.1,
        )
        assert process.poll() is None, processes.tail(self.output)
        return self


@contextmanager
def kafka(
    directory: Path,
    own: Mapping[int, Mapping[str, str]] | None = None,
    *,
    kind: type[KafkaNode] | type[SmallKafkaNode] = KafkaNode,
) -> Iterator[Mapping[int, Node]]:
    """``own``: settings of single brokers."""
    ports = {number: (judge.free_port(), judge.free_port()) for number in NUMBERS}
    voters = ",".join(f"{number}@127.0.0.1:{ports[number][1]}" for number in NUMBERS)
    nodes: dict[int, KafkaNode | SmallKafkaNode] = {}
    cluster_id = apache.new_cluster_id()
    for number in NUMBERS:
        port, controller_port = ports[number]
        properties = {
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            **(own or {}).get(number, {}),
        }
        node = nodes[number] = kind(directory / str(number), properties)
        node.format(cluster_id)
    try:
        with ThreadPoolExecutor(len(nodes)) as threads:  # one alone answers nobody
            list(threads.map(lambda node: node.start(), nodes.values()))
        yield nodes
    finally:
        for node in nodes.values():
            node.close()
