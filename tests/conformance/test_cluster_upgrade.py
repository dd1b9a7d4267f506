"""Brokers of an earlier release and of this one work together, under load, in whatever order they are changed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.support import judge, processes
from tests.support.cluster import Cluster
from tests.support.odradek import REPOSITORY
from tests.support.replicated import (
    Load,
    create_topic,
    next_values,
    wait_for_equal_logs,
    wait_for_isr,
)
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: Before features were finalised in the metadata, partitions moved by the command line, and consumers read
#: from followers.
EARLIER = "72683184da8b33d59f844877e092c9b4f2675568"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the earlier release."""
    directory = tmp_path_factory.mktemp("earlier")
    made = subprocess.run(
        ["git", "archive", EARLIER, "broker", "appliance", "pyproject.toml"],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        judge.missing(f"the history does not reach back to {EARLIER}")
    subprocess.run(["tar", "-x", "-C", directory], input=made.stdout, check=True)
    return directory


@pytest.fixture
def cluster(earlier: Path, zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers of the earlier release."""
    cluster = Cluster(tmp_path, zookeeper, "/upgrade")
    for broker in cluster.brokers.values():
        broker.repository = earlier
    with cluster:
        yield cluster


def change(cluster: Cluster, number: int, repository: Path, topic: str, load: Load) -> None:
    """One broker goes on with other code; the load does not notice."""
    broker = cluster.brokers[number]
    broker.stop()
    load.wait_for_more(50)
    broker.repository = repository
    broker.start()
    cluster.wait_for_brokers(*cluster.brokers)
    wait_for_isr(cluster, topic, set(cluster.brokers))
    load.wait_for_more(50)


def lead_the_cluster(cluster: Cluster, wanted: int, topic: str, load: Load) -> None:
    """That broker becomes the controller: whoever is stops, and starts again, until it does."""

    def is_so() -> bool:
        number = cluster.controller()
        if number != wanted:
            change(cluster, number, cluster.brokers[number].repository, topic, load)
        return cluster.controller() == wanted

    processes.wait_until(is_so, 120, f"broker {wanted} as the controller")


def test_a_cluster_is_upgraded_rolled_back_and_upgraded_under_load(
    cluster: Cluster, earlier: Path
) -> None:
    topic = create_topic(cluster, configs={"min.insync.replicas": "2"})
    group = {
        "bootstrap.servers": ",".join(broker.bootstrap for broker in cluster.brokers.values()),
        "group.id": "upgrade",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(group)
    consumer.subscribe([topic])
    found: list[str] = []
    with Load(cluster, topic) as load:
        load.wait_for_more(50)
        for number in (1, 2):
            change(cluster, number, REPOSITORY, topic, load)
            found += next_values(consumer, 1)
        # A new controller of an earlier broker, then the other way round.
        lead_the_cluster(cluster, 1, topic, load)
        create_topic(cluster)
        lead_the_cluster(cluster, 3, topic, load)
        create_topic(cluster)
        # Back, which goes as long as not all of them can do more: then features are finalised.
        for number in (2, 1):
            change(cluster, number, earlier, topic, load)
            found += next_values(consumer, 1)
        last = cluster.controller()
        for number in (*(each for each in cluster.brokers if each != last), last):
            change(cluster, number, REPOSITORY, topic, load)
            found += next_values(consumer, 1)
    assert load.failures == []
    found += next_values(consumer, len(load.acknowledged) - len(found))
    consumer.close()
    assert found == load.acknowledged
    wait_for_equal_logs(cluster, topic)
    again = Consumer({**group, "group.id": "nobody"})
    again.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert next_values(again, len(load.acknowledged)) == load.acknowledged
    again.close()
