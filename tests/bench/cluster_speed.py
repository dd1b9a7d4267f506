"""How fast three brokers are with replicas: produce with acks=all, min.insync.replicas=2.

Three brokers on this machine (of Kafka with KRaft and the settings of its start script, of ours with ZooKeeper), topics
of three replicas, and the raw load generator, whose connections speak to the leaders of their partitions. One cluster
runs at a time; each round has a new one, warmed up.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench import clusters, generator
from tests.bench.brokers import Broker, Odradek
from tests.bench.clusters import Node
from tests.bench.line import Bench, Figure, Line, at_least
from tests.bench.speed import cpu_per_request, megabytes, percentile, records, requests

DEPTHS = (5, 1)
TWICE = at_least(2)
ACKS_ALL = ("-acks", -1, "-follow")
WARMUP_TOPIC = "warm-up"
MOST_BIG_BATCHES = 2_000  # 1.2 GB a round, three times on the disk


class Load(NamedTuple):
    """Produce requests on a topic of their own."""

    name: str
    arguments: tuple[object, ...]
    partitions: int
    #: As the generator's answer has them.
    figures: tuple[Figure, ...]


def all_loads() -> Iterator[Load]:
    for depth in DEPTHS:
        arguments = ("-depth", depth)
        yield Load(
            f"1 record of 100 B a request, depth {depth}", (*arguments, "-recs", 1), 1,
            (requests(TWICE), percentile("p50"), percentile("p99"), cpu_per_request()),
        )  # fmt: skip
        yield Load(
            f"100 x 100 B a request, depth {depth}", (*arguments, "-recs", 100), 1,
            (records(TWICE), percentile("p50")),
        )  # fmt: skip
        yield Load(
            f"600 x 1,000 B a request, depth {depth}",
            (*arguments, "-recs", 600, "-size", 1000, "-reqs", MOST_BIG_BATCHES), 1,
            (megabytes(TWICE), percentile("p50")),
        )  # fmt: skip
        yield Load(
            f"8 connections, 6 partitions, 10 x 100 B a request, depth {depth}",
            (*arguments, "-conns", 8, "-recs", 10), 6,
            (requests(TWICE), percentile("p50")),
        )  # fmt: skip


class ClusterSpeed(Line):
    """Each round starts a cluster, and ends it."""

    is_paired = False
    has_load = False  # the brokers are three

    def __init__(self) -> None:
        self.loads = list(all_loads())
        figures = [
            replace(
                figure, key=f"{number} {figure.key}", title=f"{load.name} {figure.title}".strip()
            )
            for number, load in enumerate(self.loads)
            for figure in load.figures
        ]
        super().__init__("cluster", "three brokers, three replicas, acks=all", *figures)

    def run(self, bench: Bench, broker: Broker) -> dict[str, float]:
        directory = bench.directory / f"cluster-{broker.name}"
        try:
            with cluster_of(broker.name, directory) as nodes:
                warm_up(nodes, bench.scale.broker_warmup_seconds)
                return {
                    f"{number} {key}": value
                    for number, load in enumerate(self.loads)
                    for key, value in measured(bench, nodes, f"speed-{number}", load).items()
                }
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def measured(bench: Bench, nodes: Mapping[int, Node], topic: str, load: Load) -> dict[str, float]:
    create(nodes, topic, load.partitions)
    os.sync()
    scale = bench.scale
    time = ("-seconds", scale.seconds, "-warmup", scale.warmup_seconds)
    where = ("-topic", topic, "-parts", load.partitions)
    told = generate(nodes, "produce", *where, *load.arguments, *ACKS_ALL, *time)
    generate(nodes, "delete", "-topic", topic)
    return {figure.key: figure.read(told) for figure in load.figures}


def generate(nodes: Mapping[int, Node], mode: str, *arguments: object) -> dict[str, Any]:
    pids = [node.pid for node in nodes.values()]
    return generator.run(nodes[1].address, mode, *arguments, pids=pids)


def create(nodes: Mapping[int, Node], topic: str, partitions: int) -> None:
    config = ("-replicas", len(nodes), "-config", "min.insync.replicas=2")
    generate(nodes, "create", "-topic", topic, "-parts", partitions, *config, "-follow")


def warm_up(nodes: Mapping[int, Node], seconds: float) -> None:
    create(nodes, WARMUP_TOPIC, 1)
    for size in (1, 100):
        load = ("-topic", WARMUP_TOPIC, "-recs", size, "-seconds", max(seconds, 1))
        generate(nodes, "produce", *load, *ACKS_ALL)
    generate(nodes, "delete", "-topic", WARMUP_TOPIC)


def cluster_of(name: str, directory: Path) -> AbstractContextManager[Mapping[int, Node]]:
    """Files of deleted topics go after a second, not a minute."""
    delay = {"log.segment.delete.delay.ms": "1000"}
    if name == Odradek.name:
        return clusters.odradek(directory, delay)
    return clusters.kafka(directory, dict.fromkeys(clusters.NUMBERS, delay))
