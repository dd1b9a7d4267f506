"""ZooKeeper comes back without what it held, or is another one: nothing is founded anew, and no record is touched."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.support.cluster import Cluster
from tests.support.faults import EXIT_FAILED, wait_for_end
from tests.support.replicated import consume_values, create_topic, log_bytes, produce_values
from tests.support.zookeeper import ZooKeeper

VALUES = [str(number) for number in range(300)]


@pytest.fixture
def cluster(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, zookeeper, f"/{tmp_path.name}") as cluster:
        yield cluster


def last_zxid(zookeeper: ZooKeeper) -> int:
    with socket.create_connection((zookeeper.host, zookeeper.port), 10) as connection:
        connection.sendall(b"srvr")
        (line,) = (each for each in connection.makefile() if each.startswith("Zxid"))
    return int(line.split()[1], 16)


def write_on(zookeeper: ZooKeeper, zxid: int) -> None:
    """Until clients that have seen that much speak to it again: others are sent away."""
    client = KazooClient(zookeeper.address)
    client.start()
    client.create("/others")
    while last_zxid(zookeeper) <= zxid:
        for _ in range(100):
            client.set_async("/others", b"x")
        client.set("/others", b"")
    client.stop()
    client.close()


def check_refused(cluster: Cluster, number: int, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        cluster.brokers[number].start()
    assert wait_for_end(cluster.brokers[number]) == 1


def test_brokers_end_and_wait_for_what_zookeeper_has_lost(
    cluster: Cluster, zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    topic = create_topic(cluster, configs={"min.insync.replicas": "2"})
    produce_values(cluster, topic, VALUES)
    held = {number: log_bytes(cluster, number, topic) for number in cluster.brokers}
    zxid = last_zxid(zookeeper)
    zookeeper.stop()
    (zookeeper.directory / "data").rename(tmp_path / "saved")
    zookeeper.start()
    write_on(zookeeper, zxid + 1000)
    for broker in cluster.brokers.values():
        assert wait_for_end(broker) == EXIT_FAILED
        assert "ZooKeeper holds no cluster there now" in broker.output.read_text()
    for number in cluster.brokers:
        check_refused(cluster, number, "ZooKeeper holds no cluster there, but")
    assert {number: log_bytes(cluster, number, topic) for number in cluster.brokers} == held
    zookeeper.stop()
    shutil.rmtree(zookeeper.directory / "data")
    (tmp_path / "saved").rename(zookeeper.directory / "data")
    zookeeper.start()
    for broker in cluster.brokers.values():
        broker.start()
    cluster.wait_for_brokers(*cluster.brokers)
    assert consume_values(cluster, topic, len(VALUES)) == VALUES


def test_a_broker_founds_no_cluster_beside_its_own(cluster: Cluster, tmp_path: Path) -> None:
    """``zookeeper.connect`` with another path, or none."""
    topic = create_topic(cluster)
    produce_values(cluster, topic, VALUES)
    held = log_bytes(cluster, 1, topic)
    cluster.brokers[1].stop()
    right = cluster.brokers[1].properties["zookeeper.connect"]
    cluster.brokers[1].properties["zookeeper.connect"] = f"{right}-mistyped"
    check_refused(cluster, 1, "ZooKeeper holds no cluster there, but")
    assert log_bytes(cluster, 1, topic) == held
    cluster.brokers[1].properties["zookeeper.connect"] = right
    cluster.brokers[1].start()
    cluster.wait_for_brokers(*cluster.brokers)
