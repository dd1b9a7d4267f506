"""``odradek import`` from clusters of several brokers, and into one: brokers die on the way, and so does the import.

What a consumer finds here is compared with what it finds there, record by record, at both isolation levels.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from tests.bench import clusters
from tests.support import filled_cluster, processes, requests
from tests.support.cluster import Cluster
from tests.support.odradek import REPOSITORY, OdradekBroker
from tests.support.replicated import partitions_of, wait_for_isr
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.conformance, pytest.mark.slow, pytest.mark.timeout(900)]

NUMBERS = (1, 2, 3)
REPLICATED = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "6",
}
FOR_APACHE = REPLICATED | {
    "log.cleaner.backoff.ms": "100",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
FOR_OURS = REPLICATED | {"log.cleaner.backoff.ms": "100"}
#: So that an import of what ``fill`` writes takes some hundreds of fetches.
SMALL_FETCHES = ("--fetch-size", "100000")
KILLS = 3


class Source:
    """A cluster that was filled, and what it holds."""

    def __init__(self, nodes: Mapping[int, Any]) -> None:
        self.nodes = nodes
        self.bootstrap = ",".join(node.bootstrap for node in nodes.values())
        self.committed = filled_cluster.fill(self.bootstrap)
        self.records = {
            level: filled_cluster.records(self.bootstrap, filled_cluster.TOPICS, level)
            for level in ("read_uncommitted", "read_committed")
        }
        self.bounds = filled_cluster.bounds(self.bootstrap, filled_cluster.TOPICS)


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    own = dict.fromkeys(NUMBERS, FOR_APACHE)
    directory = tmp_path_factory.mktemp("apache")
    with clusters.kafka(directory, own, kind=clusters.SmallKafkaNode) as nodes:
        yield Source(nodes)


class Running:
    """An import that is under way."""

    def __init__(self, broker: OdradekBroker, source: str, output: Path) -> None:
        self._broker = broker
        self._before = copied_bytes(broker)
        self.output = output
        command = [
            *(sys.executable, "-m", "appliance", "-b", broker.bootstrap, "--format", "json"),
            *("import", source, "--data", str(broker.data), *SMALL_FETCHES),
        ]
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=file, stderr=subprocess.PIPE
            )

    def has_brought(self, size: int) -> None:
        """Waits for it. A kill has to come amid the copying."""
        processes.wait_until(
            lambda: copied_bytes(self._broker) >= self._before + size,
            120,
            f"{size} bytes that were imported",
            every=0.002,
        )
        assert self.process.poll() is None, "the import ended before anything could be killed"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def done(self) -> dict[str, Any]:
        _, errors = self.process.communicate(timeout=200)
        assert self.process.returncode == 0, self.output.read_text() + errors.decode()
        found: dict[str, Any] = json.loads(self.output.read_text())
        return found


def copied_bytes(broker: OdradekBroker) -> int:
    return sum(path.stat().st_size for path in broker.logs.glob("[!_]*/*.log"))


def check(source: Source, bootstrap: str) -> None:
    for level, there in source.records.items():
        here = filled_cluster.records(bootstrap, filled_cluster.TOPICS, level)
        for name, partitions in there.items():
            for index, records in partitions.items():
                assert here[name][index] == records, f"{name}-{index}, {level}"
    assert filled_cluster.bounds(bootstrap, filled_cluster.TOPICS) == source.bounds
    for group, offsets in source.committed.items():
        assert filled_cluster.committed(bootstrap, group) == offsets, group


def check_source(source: Source) -> None:
    """What is compared is worth it: holes, tombstones, aborted records, starts above 0, nulls."""
    everything, stable = source.records["read_uncommitted"], source.records["read_committed"]
    assert all(map(filled_cluster.has_holes, everything["compacted"].values()))
    assert all(any(r.value is None for r in each) for each in everything["compacted"].values())
    for index in range(filled_cluster.PARTITIONS):
        assert 0 < len(stable["transactions"][index]) < len(everything["transactions"][index])
        assert source.bounds["trimmed", index][0] == filled_cluster.TRIMMED_AT + index
        assert len(everything["codecs"][index]) == 30 * len(filled_cluster.CODECS)


def outcomes(found: dict[str, Any]) -> dict[str, str]:
    return {row["topic"]: row["outcome"] for row in found["data"]}


def kill_while_importing(
    broker: OdradekBroker,
    source: Source,
    directory: Path,
    kill: Callable[[], None],
    dice: random.Random,
) -> dict[str, Any]:
    """The import is killed a few times; the last one sees ``kill`` amid its work, and ends well."""
    for number in range(KILLS):
        running = Running(broker, source.bootstrap, directory / f"import-{number}.json")
        running.has_brought(dice.randrange(100_000, 3_000_000))
        running.kill()
    running = Running(broker, source.bootstrap, directory / "import.json")
    running.has_brought(1_000_000)
    kill()
    return running.done()


def test_a_source_broker_dies_while_its_topics_are_copied_to_one_node(
    apache: Source, tmp_path: Path
) -> None:
    check_source(apache)
    with OdradekBroker(tmp_path, {"log.index.interval.bytes": "2048"}) as broker:
        victim = apache.nodes[2]
        try:
            found = kill_while_importing(broker, apache, tmp_path, victim.kill9, random.Random(1))
        finally:
            victim.close()
            victim.start()
        assert outcomes(found) == dict.fromkeys(filled_cluster.TOPICS, "imported")
        check(apache, broker.bootstrap)


def test_brokers_on_both_sides_die_while_topics_are_copied_to_three_nodes(
    apache: Source, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """The bootstrap servers' first is the one that dies there; here one that the import does not talk to."""
    with Cluster(tmp_path, zookeeper, "/imported", properties=FOR_OURS) as cluster:
        there, here = apache.nodes[1], cluster.brokers[3]
        # Made now, the topic of groups' offsets has a replica on each.
        processes.wait_until(lambda: has_coordinators(cluster), 60, "coordinators")

        def kill() -> None:
            here.kill9()
            there.kill9()

        try:
            found = kill_while_importing(
                cluster.brokers[1], apache, tmp_path, kill, random.Random(2)
            )
        finally:
            there.close()
            there.start()
        assert outcomes(found) == dict.fromkeys(filled_cluster.TOPICS, "imported")
        check(apache, cluster.bootstrap)
        # What the dead one missed it fetches, and then it leads as well as anybody.
        here.start()
        for name in (*filled_cluster.TOPICS, "__consumer_offsets"):
            wait_for_isr(cluster, name, set(cluster.brokers))
        cluster.brokers[1].kill9()
        cluster.brokers[2].kill9()
        cluster.brokers[2].start()
        check(apache, cluster.bootstrap)


def has_coordinators(cluster: Cluster) -> bool:
    try:
        return filled_cluster.committed(cluster.bootstrap, "nobody") == {}
    except KafkaException:
        return False


def test_topics_of_a_cluster_of_ours_are_copied_to_one_node(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        there = stack.enter_context(
            Cluster(tmp_path / "there", zookeeper, "/exported", properties=FOR_OURS)
        )
        source = Source(there.brokers)
        check_source(source)
        broker = stack.enter_context(OdradekBroker(tmp_path / "here"))
        found = kill_while_importing(
            broker, source, tmp_path, there.brokers[1].kill9, random.Random(3)
        )
        assert outcomes(found) == dict.fromkeys(filled_cluster.TOPICS, "imported")
        check(source, broker.bootstrap)


def test_topics_of_one_node_get_as_many_replicas_as_are_wished_and_there_are_brokers_for(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    with (
        OdradekBroker(tmp_path / "there") as source,
        Cluster(tmp_path / "here", zookeeper, "/more-replicas") as cluster,
    ):
        target = cluster.brokers[1]
        for number, (more, replicas) in enumerate(
            (([], 1), (["--replicas", "2"], 2), (["-r", "9"], 3))
        ):
            name = f"orders-{number}"
            with Wire(source.address) as wire:
                requests.create_topic(wire, name, partitions=3)
                requests.produce_values(wire, name, [b"one", b"two"], partition=number)
            done = subprocess.run(
                [*(sys.executable, "-m", "appliance", "-b", target.bootstrap, "import"),
                 *(source.bootstrap, name, "--data", target.data, *more)],
                cwd=REPOSITORY, capture_output=True, text=True,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            found = partitions_of(cluster, name, 1)
            assert {len(set(each.replica_nodes)) for each in found} == {replicas}
            # Each by its leader, whoever that is.
            leader = next(each.leader_id for each in found if each.partition_index == number)
            with Wire(cluster.brokers[leader].address) as wire:
                values = requests.read_all(wire, name, partition=number)
                assert [each.value for each in values] == [b"one", b"two"]
