"""A single node's metadata moves into a real ZooKeeper, and other nodes join it."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support import groups, processes, requests
from tests.support.cluster import Cluster
from tests.support.odradek import REPOSITORY, OdradekBroker
from tests.support.record_batches import batch
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

TOPICS = 12
#: Whatever the data directory says.
ALONE = {"zookeeper.connect": ""}


def kill_a_move(broker: OdradekBroker, connect: str, seconds: float) -> None:
    """The program that does it, gone after so long."""
    command = [sys.executable, "-m", "broker.server.cluster.move_to_zookeeper"]
    command += ["--data", str(broker.data), "--property", f"zookeeper.connect={connect}"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL) as process:
        time.sleep(seconds)
        process.kill()


def move(broker: OdradekBroker, connect: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "appliance", "--yes", "cluster", "move-to-zookeeper"]
    return subprocess.run(
        [*command, "--data", str(broker.data), "--zookeeper", connect],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def told(broker: OdradekBroker, topics: list[str]) -> dict[str, Any]:
    """What clients see of the topics, their settings, records and the group's offsets."""
    with Wire(broker.address, timeout=30) as wire:
        groups.wait_for_coordinator(wire, "movers")
        described = wire.request("metadata", 12, topics=[{"name": name} for name in topics])
        return {
            "cluster": described.cluster_id,
            "topics": {
                topic.name: (
                    topic.topic_id,
                    {(each.partition_index, each.leader_id) for each in topic.partitions},
                )
                for topic in described.topics
            },
            "retention": [
                requests.topic_config(wire, name, "retention.ms").value for name in topics
            ],
            "records": [requests.fetch(wire, name, 0).records for name in topics],
            "offsets": [groups.committed_offset(wire, "movers", name) for name in topics],
        }


def leader_epochs(broker: OdradekBroker, topics: list[str]) -> list[int]:
    with Wire(broker.address, timeout=30) as wire:
        described = wire.request("metadata", 12, topics=[{"name": name} for name in topics])
    return [each.leader_epoch for topic in described.topics for each in topic.partitions]


def fill(wire: Wire, topics: list[str], partitions: int) -> None:
    """Settings, records and a group's offsets of each topic."""
    groups.wait_for_coordinator(wire, "movers")
    for number, name in enumerate(topics):
        requests.create_topic(wire, name, partitions=partitions)
        requests.alter_config(wire, name, "retention.ms", str(10**9 + number))
        requests.produce(wire, name, batch([name.encode()], timestamp=requests.now_ms()))
        assert groups.commit(wire, "movers", name, number) == 0


def test_a_node_becomes_the_first_of_several(tmp_path: Path) -> None:
    alone = OdradekBroker(tmp_path / "broker-1", {"node.id": "1"})
    topics = [f"moved-{number}" for number in range(TOPICS)]
    with alone, Wire(alone.address, timeout=30) as wire:
        fill(wire, topics, partitions=3)
        producer_ids = [requests.init_producer(wire)[0] for _ in range(3)]
        before, epochs = told(alone, topics), leader_epochs(alone, topics)
        alone.stop()
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        connect = f"{zookeeper.address}/moved"
        dice = random.Random(7)
        for _ in range(4):
            kill_a_move(alone, connect, dice.uniform(0.3, 1.0))
        done = move(alone, connect)
        assert done.returncode == 0 or "in ZooKeeper already" in done.stderr, done.stderr
        once_more = move(alone, connect)
        assert once_more.returncode == 1
        assert "belongs to a cluster in ZooKeeper already" in once_more.stderr

        with Cluster(tmp_path, zookeeper, "/moved", count=2) as cluster:
            first = cluster.brokers[1]
            assert told(first, topics) == before
            assert all(
                after > was for after, was in zip(leader_epochs(first, topics), epochs, strict=True)
            )
            wanted = {"name": "spread", "num_partitions": 4, "replication_factor": 1}
            with Wire(cluster.brokers[2].address, timeout=30) as wire:
                made = wire.request("create_topics", 7, timeout=30000, topics=[wanted])
                assert made.topics[0].error_code == 0
                assert requests.init_producer(wire)[0] > max(producer_ids)

            def is_spread() -> bool:
                (found,) = cluster.metadata(1, "spread").topics
                return {each.leader_id for each in found.partitions} == {1, 2}

            processes.wait_until(is_spread, 30, "leaders on both")
            with Wire(first.address, timeout=30) as wire:
                requests.produce(wire, topics[0], batch([b"after"], timestamp=requests.now_ms()))


@pytest.mark.slow
def test_killed_at_each_step_exactly_one_store_is_in_charge(tmp_path: Path) -> None:
    """Real processes and a real ZooKeeper; each step's node is a copy of the same one."""
    alone = OdradekBroker(tmp_path / "origin", {"node.id": "1"})
    topics = ["moved-a", "moved-b"]
    with alone, Wire(alone.address, timeout=30) as wire:
        fill(wire, topics, partitions=2)
        before = told(alone, topics)
        alone.stop()
    outcomes: set[tuple[bool, bool]] = set()
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper:
        step = 0
        while True:
            chroot = f"step-{step}"
            connect = f"{zookeeper.address}/{chroot}"
            node = OdradekBroker(tmp_path / chroot, {"node.id": "1"})
            node.directory.mkdir()
            shutil.copytree(alone.data, node.data)
            was_killed = killed_at(node, connect, step)
            in_charge = starts(node, ALONE), starts(node, {"zookeeper.connect": connect})
            assert in_charge != (True, True), step
            outcomes.add(in_charge)
            if in_charge[0]:
                with node:
                    assert told(node, topics) == before
                    epochs = leader_epochs(node, topics)
                    node.stop()
            if not in_charge[1]:
                done = move(node, connect)
                assert done.returncode == 0, (step, done.stderr)
            if in_charge[0]:
                assert epochs_in(zookeeper, chroot, topics) == [epoch + 1 for epoch in epochs]
            assert not starts(node, ALONE), step
            node.properties["zookeeper.connect"] = connect
            with node:
                assert told(node, topics) == before, step
                node.stop()
            shutil.rmtree(node.directory)
            if not was_killed:
                break
            step += 1
    assert step > 15
    # The local store, nobody until the move is called again, ZooKeeper.
    assert outcomes == {(True, False), (False, False), (False, True)}


def killed_at(broker: OdradekBroker, connect: str, step: int) -> bool:
    command = [sys.executable, "-m", "tests.support.dying_move", str(step)]
    command += ["--data", str(broker.data), "--property", f"zookeeper.connect={connect}"]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stdout + done.stderr
    return done.returncode != 0


def starts(broker: OdradekBroker, properties: dict[str, str]) -> bool:
    """And is stopped again."""
    tried = OdradekBroker(broker.directory, broker.properties | properties)
    try:
        tried.start()
    except AssertionError:
        tried.process = None
        told_why = tried.output.read_text().splitlines()[-1]
        assert told_why.startswith("odradek broker: "), told_why
        return False
    tried.stop()
    return True


def epochs_in(zookeeper: ZooKeeper, chroot: str, topics: list[str]) -> list[int]:
    """Leader epochs as they are written there."""
    client = KazooClient(zookeeper.address)
    client.start(30)
    try:
        return [
            json.loads(client.get(f"/{chroot}/brokers/topics/{name}/partitions/{index}/state")[0])[
                "leader_epoch"
            ]
            for name in topics
            for index in range(2)
        ]
    finally:
        client.stop()
        client.close()
