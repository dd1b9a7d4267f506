"""Three brokers and a ZooKeeper on the pages: who leads, who lags and since when, and a failover."""

import re
from collections.abc import Iterator

import pytest

from tests.support import requests
from tests.support.cluster import Cluster
from tests.support.processes import wait_until
from tests.support.web import WebProcess
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with (
        ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper,
        Cluster(tmp_path_factory.mktemp("cluster"), zookeeper, "/pages") as cluster,
    ):
        yield cluster


def test_a_broker_that_is_killed_is_seen_with_all_that_follows(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    killed = next(number for number in cluster.brokers if number != cluster.controller())
    watching = next(number for number in cluster.brokers if number != killed)
    broker = cluster.brokers[watching]
    with Wire(cluster.brokers[cluster.controller()].address, timeout=30) as wire:
        name = requests.new_topic_name()
        topic = {"name": name, "num_partitions": 6, "replication_factor": 3}
        wire.request("create_topics", 7, timeout=30_000, topics=[topic])
    web = WebProcess(tmp_path_factory.mktemp("web"), cluster.bootstrap, data=broker.data)
    with web, web.client("vera") as client:

        def says(path: str, *words: str) -> bool:
            text = " ".join(re.sub("<[^>]*>", " ", client.get(path).text).split())
            return all(word in text for word in words)

        def wait(path: str, *words: str) -> None:
            wait_until(lambda: says(path, *words), 60, f"{words} on {path}", every=0.2)

        wait(f"topics/?q={name}", name)
        wait("brokers/", "controller", f"ZooKeeper session of broker {watching}: connected since")
        wait(f"brokers/{watching}/", "/pages", "connected since", "after the last sign of life")
        wait("", "No broker went or came and no partition got another leader")

        cluster.brokers[killed].kill9()
        wait("", "failover", f"led by broker {killed} before", f"Broker {killed} left the cluster.")
        wait("brokers/", "not in the cluster")
        wait("problems/?kind=under_replicated", name, f"broker {killed}: by an unknown number")

        cluster.brokers[killed].start()
        wait("", f"Broker {killed} joined the cluster.")
        wait("problems/", "Every partition has a leader and all its replicas in sync")
