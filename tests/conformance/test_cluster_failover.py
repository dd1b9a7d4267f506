"""Clients of three kinds write and read while brokers of a cluster are killed: no error reaches an application.

Producers have the settings that their libraries have by themselves.
"""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support import apache, foreign, groups, members, processes
from tests.support.cluster import Cluster
from tests.support.members import JAVA, MemberProcess
from tests.support.replicated import (
    Load,
    consume_values,
    create_topic,
    end_offset,
    partitions_of,
    wait_for_equal_logs,
    wait_for_isr,
)
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

READERS = (JAVA, "franz-go", "confluent-kafka")


class Writer:
    """A program that produces until it is stopped, and prints what was acknowledged, a JSON object a line."""

    def __init__(self, name: str, command: list[str], directory: Path) -> None:
        self.name = name
        self.acknowledged: list[str] = []
        self.failures: list[dict[str, Any]] = []
        self._errors = directory / f"{name}-writer.txt"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith(b"{"):
                    self._take(json.loads(line))

    def _take(self, said: dict[str, Any]) -> None:
        if said.get("name") == "producer_send_success":
            self.acknowledged.append(said["value"])
        elif said.get("event") == "acknowledged":
            self.acknowledged.append(base64.b64decode(said["value"]).decode())
        elif said.get("name") == "producer_send_error":
            self.failures.append(said)

    def stop(self) -> None:
        """It waits for what is under way."""
        status = processes.end(self._process, signal.SIGTERM, 60)
        self._reader.join()
        # Java says so when it ends by a signal, after it has closed everything.
        assert status in (0, 143, -15), f"{self.name}: {status}\n{processes.tail(self._errors)}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()


def java_writer(cluster: Cluster, topic: str, directory: Path) -> Writer:
    settings = directory / "producer.properties"
    # The tool itself would not try anything again; these are the library's own settings.
    settings.write_text("retries=2147483647\nenable.idempotence=true\n")
    command, _ = apache.java_command(
        apache.require_jars(), "org.apache.kafka.tools.VerifiableProducer"
    )
    command += ["--bootstrap-server", cluster.bootstrap, "--topic", topic, "--throughput", "200"]
    command += ["--acks", "-1", "--value-prefix", "7", "--command-config", str(settings)]
    return Writer(JAVA, command, directory)


def franz_go_writer(cluster: Cluster, topic: str, directory: Path) -> Writer:
    command = foreign.require("franz-go")
    command += ["load", "-bootstrap", cluster.bootstrap, "-topic", topic]
    return Writer("franz-go", command, directory)


@pytest.fixture
def cluster(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Cluster]:
    # A killed broker is seen by its refusals, long before its session ends.
    properties = {"zookeeper.session.timeout.ms": "18000", "offsets.topic.replication.factor": "3"}
    with Cluster(tmp_path, zookeeper, f"/{tmp_path.name}", properties=properties) as cluster:
        yield cluster


def test_no_error_reaches_applications_of_java_librdkafka_and_franz_go(
    cluster: Cluster, tmp_path: Path
) -> None:
    topic = create_topic(cluster, 3, {"min.insync.replicas": "2"})
    with ExitStack() as stack:
        readers = stack.enter_context(members.started())
        writers = []
        for write in (java_writer, franz_go_writer):
            writers.append(write(cluster, topic, tmp_path))
            stack.callback(writers[-1].kill)
        load = stack.enter_context(Load(cluster, topic))
        for client in READERS:
            group = f"{topic}-{client}"
            readers.append(
                MemberProcess(client, cluster.bootstrap, group, topic, tmp_path, session=10_000)
            )
        kept = [*writers, load]

        def counts() -> list[int]:
            return [len(each.acknowledged) for each in kept] + [
                len(set(each.records)) for each in readers
            ]

        def wait_for_more(count: int) -> None:
            least = [before + count for before in counts()]

            def are_there() -> bool:
                assert all(each.is_running for each in readers)
                return all(now >= enough for now, enough in zip(counts(), least, strict=True))

            try:
                processes.wait_until(are_there, 60, "more of each", every=0.1)
            except TimeoutError as error:
                raise TimeoutError(f"{error}: {counts()} instead of {least}") from None

        wait_for_more(200)
        for number in (
            cluster.controller(),
            next_not_controller(cluster),
            leader_of(cluster, topic),
        ):
            cluster.brokers[number].kill9()
            wait_for_more(200)
            cluster.brokers[number].start()
            wait_for_isr(cluster, topic, set(cluster.brokers))
            wait_for_more(50)
        for writer in writers:
            writer.stop()
    assert [each.failures for each in kept] == [[], [], []]
    wait_for_equal_logs(cluster, topic)
    logs = []
    for partition in range(3):
        end = end_offset(cluster, topic, partition)
        logs.append(consume_values(cluster, topic, end, partition))
    stored = [value for values in logs for value in values]
    # Once each, whoever wrote it, and in the order of its writer within a partition.
    for each in kept:
        assert len(each.acknowledged) == len(set(each.acknowledged))
        assert set(each.acknowledged) <= set(stored)
    assert len(stored) == len(set(stored))
    for values in logs:
        for writer in ("7", "franz-go", ""):
            named = (value.rpartition(".") for value in values)
            numbers = [int(number) for name, _, number in named if name == writer]
            assert numbers == sorted(numbers)


def next_not_controller(cluster: Cluster) -> int:
    return cluster.controller() % 3 + 1


def leader_of(cluster: Cluster, topic: str) -> int:
    leader: int = partitions_of(cluster, topic)[0].leader_id
    return leader


def coordinator_of(cluster: Cluster, group: str) -> int:
    with Wire(cluster.running[0].address) as wire:
        found: int = groups.find_coordinator(wire, group).node_id
    return found


@pytest.mark.parametrize("client", READERS)
def test_a_group_reads_on_behind_a_coordinator_that_is_killed(
    cluster: Cluster, tmp_path: Path, client: str
) -> None:
    """What it committed before is where the next member begins."""
    topic = create_topic(cluster)
    group = f"g-{topic}"
    with Load(cluster, topic) as load, members.started() as readers:
        readers.append(
            MemberProcess(client, cluster.bootstrap, group, topic, tmp_path, session=10_000)
        )
        for _ in range(2):
            enough = len(set(readers[0].records)) + 200
            processes.wait_until(
                lambda least=enough: len(set(readers[0].records)) >= least and readers[0].committed,
                120,
                "records and commits",
            )
            coordinator = coordinator_of(cluster, group)
            cluster.brokers[coordinator].kill9()
            before = dict(readers[0].committed)
            processes.wait_until(
                lambda mark=before: readers[0].committed.get(0, 0) > mark[0] + 100,
                120,
                "commits to another coordinator",
            )
            cluster.brokers[coordinator].start()
            wait_for_isr(cluster, topic, set(cluster.brokers))
            cluster.wait_for_brokers(*cluster.brokers)
        first = readers[0]
        first.stop()
        mark = first.committed[0]
        readers.append(
            MemberProcess(client, cluster.bootstrap, group, topic, tmp_path, session=10_000)
        )
        load.wait_for_more(50)
        processes.wait_until(lambda: bool(readers[1].records), 60, "the next member's records")
        assert readers[1].records[0] == (0, mark)
        offsets = [offset for _, offset in first.records]
        assert set(offsets) >= set(range(mark))
    assert load.failures == []
