"""Three brokers that replicate: what was acknowledged by all is on each, and outlives its leader."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import judge, processes, requests
from tests.support.cluster import Cluster
from tests.support.replicated import (
    Load,
    consume_values,
    create_topic,
    end_offset,
    partitions_of,
    produce_values,
    under_replicated,
    wait_for_equal_logs,
    wait_for_isr,
)
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

TOPIC_AUTHORIZATION_FAILED = 29


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Of tests that kill nobody."""
    with Cluster(tmp_path_factory.mktemp("cluster"), zookeeper, "/replicating") as cluster:
        yield cluster


def test_followers_have_byte_for_byte_what_the_leader_has(cluster: Cluster) -> None:
    topic = create_topic(cluster, 3, {"segment.bytes": str(1 << 20)})
    values = [f"{number} {'x' * 3000}" for number in range(3000)]
    produce_values(cluster, topic, values)
    logs = wait_for_equal_logs(cluster, topic)
    assert len(logs) > 6  # several segments
    found = [
        value
        for partition in range(3)
        for value in consume_values(
            cluster, topic, end_offset(cluster, topic, partition), partition
        )
    ]
    assert sorted(found) == sorted(values)


def test_a_stranger_is_no_follower(cluster: Cluster) -> None:
    topic = create_topic(cluster)
    (partition,) = partitions_of(cluster, topic)
    with Wire(cluster.brokers[partition.leader_id].address) as wire:
        topic_id = requests.topic_id(wire, topic)
        wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        state = {"replica_id": partition.replica_nodes[1], "replica_epoch": 1}
        answer = wire.request(
            "fetch",
            15,
            replica_state=state,
            topics=[{"topic_id": topic_id, "partitions": [wanted]}],
        )
    ((told,),) = (each.partitions for each in answer.responses)
    assert told.error_code == TOPIC_AUTHORIZATION_FAILED


def test_brokers_speak_to_each_other_on_a_listener_of_their_own(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """Nobody answers where clients are sent, so that brokers which dialled there would replicate nothing."""
    cluster = Cluster(tmp_path, zookeeper, "/listeners")
    for broker in cluster.brokers.values():
        broker.port, for_clients = judge.free_port(), judge.free_port()
        broker.properties |= {
            "listeners": f"CLIENTS://127.0.0.1:{for_clients},BROKERS://127.0.0.1:{broker.port}",
            "advertised.listeners": f"CLIENTS://127.0.0.1:1,BROKERS://127.0.0.1:{broker.port}",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
        }
    with cluster:
        topic = create_topic(cluster, configs={"min.insync.replicas": "3"})
        produce_values(cluster, topic, ["a", "b"])
        wait_for_equal_logs(cluster, topic)
        assert consume_values(cluster, topic, 2) == ["a", "b"]


def test_one_that_lags_by_too_many_records_leaves_the_isr_and_comes_back(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """By time it might stay for half a minute, and its session for a whole one."""
    properties = {"replica.lag.max.messages": "50", "zookeeper.session.timeout.ms": "60000"}
    with Cluster(tmp_path, zookeeper, "/by-count", properties=properties) as cluster:
        topic = create_topic(cluster)
        (partition,) = partitions_of(cluster, topic)
        # Without the controller nobody would write the ISR before its session ends.
        slow = (set(partition.replica_nodes) - {partition.leader_id, cluster.controller()}).pop()
        # One that has never fetched in this leader epoch is judged by the time alone.
        produce_values(cluster, topic, ["first"])
        wait_for_equal_logs(cluster, topic)
        process = cluster.brokers[slow].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        try:
            values = [str(number) for number in range(200)]
            produce_values(cluster, topic, values, **{"enable.idempotence": False, "acks": 1})
            processes.wait_until(
                lambda: (
                    set(partitions_of(cluster, topic, partition.leader_id)[0].isr_nodes)
                    == set(cluster.brokers) - {slow}
                ),
                20,
                "the ISR without the slow one",
            )
        finally:
            process.send_signal(signal.SIGCONT)
        wait_for_isr(cluster, topic, set(cluster.brokers))


def test_a_killed_leader_loses_nothing_that_was_acknowledged(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    with Cluster(tmp_path, zookeeper, "/failing-over") as cluster:
        topic = create_topic(cluster, configs={"min.insync.replicas": "2"})
        with Load(cluster, topic) as load:
            for _ in range(2):
                load.wait_for_more(200)
                (partition,) = partitions_of(cluster, topic)
                killed = partition.leader_id
                cluster.brokers[killed].kill9()
                load.wait_for_more(200)
                left = sorted(cluster.brokers.keys() - {killed})
                (told,) = (each for each in under_replicated(cluster) if f"Topic: {topic}" in each)
                assert f"Isr: {left[0]},{left[1]}" in told
                cluster.brokers[killed].start()
                wait_for_isr(cluster, topic, set(cluster.brokers))
        assert load.failures == []
        acknowledged = load.acknowledged
        assert acknowledged == [str(number) for number in range(len(acknowledged))]
        assert consume_values(cluster, topic, len(acknowledged)) == acknowledged
        assert end_offset(cluster, topic, 0) == len(acknowledged)
        wait_for_equal_logs(cluster, topic)
