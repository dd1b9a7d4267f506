"""Troubles that clusters of others had with failovers and with ZooKeeper, tried on three brokers of ours.

Names of cases (C080 ...) are those of the public reports that they were made from.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from broker.metadata.zookeeper_session import SessionFile
from tests.support import processes, requests
from tests.support.cluster import Cluster
from tests.support.odradek import OdradekBroker
from tests.support.replicated import (
    Load,
    consume_values,
    create_topic,
    end_offset,
    log_bytes,
    partitions_of,
    produce_values,
    wait_for_equal_logs,
    wait_for_isr,
)
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

pytestmark = pytest.mark.slow

UNKNOWN_TOPIC_OR_PARTITION = 3

UNCLEAN = {"unclean.leader.election.enable": "true"}


@pytest.fixture
def cluster(zookeeper: ZooKeeper, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, zookeeper, f"/{tmp_path.name}") as cluster:
        yield cluster


def leader_of(cluster: Cluster, topic: str, number: int | None = None) -> int:
    """Of partition 0, as one broker tells it."""
    leader: int = partitions_of(cluster, topic, number)[0].leader_id
    return leader


def wait_for_leader(cluster: Cluster, topic: str, leader: int) -> None:
    processes.wait_until(
        lambda: all(
            leader_of(cluster, topic, number) == leader
            for number, broker in cluster.brokers.items()
            if broker.process is not None
        ),
        60,
        f"broker {leader} leading {topic}",
    )


def numbered(first: int, count: int) -> list[str]:
    return [str(number) for number in range(first, first + count)]


def test_an_idempotent_producer_outlives_leaders_that_go_and_come_back(cluster: Cluster) -> None:
    """C080: who leads again knows the producers from its log, and no sequence is out of order."""
    topic = create_topic(cluster)
    with Load(cluster, topic) as load:
        preferred = partitions_of(cluster, topic)[0].replica_nodes[0]
        for _ in range(5):
            wait_for_leader(cluster, topic, preferred)
            load.wait_for_more(100)
            cluster.brokers[preferred].stop()
            load.wait_for_more(300)
            cluster.brokers[preferred].start()
            wait_for_isr(cluster, topic, set(cluster.brokers))
            admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
            elected = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(topic, 0)])
            assert elected.result(30)[TopicPartition(topic, 0)] is None
    assert load.failures == []
    assert load.acknowledged == numbered(0, len(load.acknowledged))
    assert consume_values(cluster, topic, len(load.acknowledged)) == load.acknowledged
    assert end_offset(cluster, topic, 0) == len(load.acknowledged)


def test_an_old_leader_cuts_its_log_where_the_epochs_part_and_no_further(cluster: Cluster) -> None:
    """C082: the new leader's log is longer by then than the one that is to be cut."""
    topic = create_topic(cluster, configs=UNCLEAN, replicas=[1, 2])
    produce_values(cluster, topic, numbered(0, 90), acks="all")
    common = wait_for_equal_logs(cluster, topic, [1, 2])
    cluster.brokers[2].kill9()
    wait_for_isr(cluster, topic, {1})
    produce_values(cluster, topic, numbered(90, 10))
    (segment,) = cluster.brokers[1].logs.glob(f"{topic}-0/*.log")
    inode = segment.stat().st_ino
    cluster.brokers[1].kill9()
    cluster.brokers[2].start()
    wait_for_leader(cluster, topic, 2)
    produce_values(cluster, topic, numbered(1000, 15))
    cluster.brokers[1].start()
    wait_for_isr(cluster, topic, {1, 2})
    after = wait_for_equal_logs(cluster, topic, [1, 2])
    assert consume_values(cluster, topic, 105) == numbered(0, 90) + numbered(1000, 15)
    assert end_offset(cluster, topic, 0) == 105
    # The same file, cut amid it, and what came before the cut is what it was.
    assert segment.stat().st_ino == inode
    assert all(after[name].startswith(data) for name, data in common.items())


def test_two_fast_failovers_leave_equal_replicas(cluster: Cluster) -> None:
    """C083: each of two leaders wrote a record of its own at the same offset."""
    topic = create_topic(cluster, configs={**UNCLEAN, "min.insync.replicas": "1"})
    produce_values(cluster, topic, numbered(0, 10))
    wait_for_equal_logs(cluster, topic)
    third, first, second = (
        partitions_of(cluster, topic)[0].replica_nodes[each] for each in (2, 0, 1)
    )
    cluster.brokers[third].kill9()
    wait_for_isr(cluster, topic, {first, second})
    cluster.brokers[first].kill9()
    wait_for_leader(cluster, topic, second)
    produce_values(cluster, topic, ["lone"], **{"enable.idempotence": False, "acks": 1})
    cluster.brokers[second].kill9()
    cluster.brokers[first].start()
    wait_for_leader(cluster, topic, first)
    produce_values(cluster, topic, ["first", "later"], **{"enable.idempotence": False, "acks": 1})
    cluster.brokers[second].start()
    cluster.brokers[third].start()
    wait_for_isr(cluster, topic, set(cluster.brokers))
    wait_for_equal_logs(cluster, topic)
    assert consume_values(cluster, topic, 12) == [*numbered(0, 10), "first", "later"]
    assert end_offset(cluster, topic, 0) == 12


def test_a_log_of_a_topic_that_was_made_anew_is_nobodys(cluster: Cluster) -> None:
    """C085: a broker was away while its topic was deleted and its name taken again."""
    topic = create_topic(cluster)
    produce_values(cluster, topic, [f"old-{number}" for number in range(1000)])
    wait_for_equal_logs(cluster, topic)
    away = partitions_of(cluster, topic)[0].replica_nodes[0]
    cluster.brokers[away].stop()
    wait_for_isr(cluster, topic, set(cluster.brokers) - {away})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    others = sorted(set(cluster.brokers) - {away})
    made = NewTopic(topic, 1, replica_assignment=[others])
    processes.wait_until(lambda: could_create(admin, made), 30, "the name free again")
    produce_values(cluster, topic, numbered(0, 10))
    cluster.brokers[away].start()
    cluster.wait_for_brokers(*cluster.brokers)
    assert consume_values(cluster, topic, 10) == numbered(0, 10)
    # Its old directory is set aside: it is of another topic, and this broker has no replica of the new one.
    processes.wait_until(
        lambda: log_bytes(cluster, away, topic) == {}, 30, "the end of the old directory"
    )
    with Wire(cluster.brokers[away].address) as wire:
        told = requests.fetch(wire, topic, 0)
    assert told.error_code != 0
    assert told.records is None or b"old-" not in bytes(told.records)


def could_create(admin: AdminClient, topic: NewTopic) -> bool:
    """False while a topic of that name is on its way out."""
    future = admin.create_topics([topic])[topic.topic]
    return future.exception(30) is None


@contextmanager
def steady_load(cluster: Cluster, topic: str, bytes_per_second: int) -> Iterator[list[object]]:
    """Records of 10 kB at acks=1; what failed."""
    failures: list[object] = []
    stopping = threading.Event()
    producer = Producer(
        {
            "bootstrap.servers": ",".join(each.bootstrap for each in cluster.brokers.values()),
            "acks": 1,
        }
    )
    value = b"x" * 10_000

    def run() -> None:
        while not stopping.wait(0.02):
            for _ in range(bytes_per_second // 50 // len(value)):
                producer.produce(
                    topic,
                    value,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
            producer.poll(0)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failures
    finally:
        stopping.set()
        thread.join()
        assert producer.flush(60) == 0


@pytest.mark.parametrize("replicas", [[1, 2], [1, 2, 3]], ids=["two", "three"])
def test_a_follower_comes_back_into_the_isr_under_constant_load(
    cluster: Cluster, replicas: list[int]
) -> None:
    """C086: the leader's end has always moved on since the follower's fetch."""
    topic = create_topic(cluster, replicas=replicas)
    follower = next(each for each in replicas if each != leader_of(cluster, topic))
    with steady_load(cluster, topic, 5_000_000) as failures:
        processes.wait_until(lambda: end_offset(cluster, topic, 0) > 500, 60, "5 MB")
        for end in (cluster.brokers[follower].stop, cluster.brokers[follower].kill9):
            end()
            wait_for_isr(cluster, topic, set(replicas) - {follower})
            cluster.brokers[follower].start()
            wait_for_isr(cluster, topic, set(replicas))
        assert failures == []
    wait_for_equal_logs(cluster, topic, replicas)


def test_a_deletion_ends_though_a_broker_died_amid_it(cluster: Cluster) -> None:
    """C090."""
    topic = create_topic(cluster, partitions=20)
    produce_values(cluster, topic, numbered(0, 100))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    killed = cluster.controller() % 3 + 1
    future = admin.delete_topics([topic])[topic]
    cluster.brokers[killed].kill9()
    future.result(30)
    processes.wait_until(
        lambda: topic not in admin.list_topics(timeout=30).topics, 30, "the topic's end"
    )
    others = sorted(set(cluster.brokers) - {killed})
    made = NewTopic(topic, 20, replica_assignment=[others] * 20)
    processes.wait_until(lambda: could_create(admin, made), 30, "the name free again")
    cluster.brokers[killed].start()
    cluster.wait_for_brokers(*cluster.brokers)
    produce_values(cluster, topic, ["new"], partition=7)
    assert consume_values(cluster, topic, 1, partition=7) == ["new"]
    processes.wait_until(
        lambda: log_bytes(cluster, killed, topic) == {}, 30, "the end of the old directories"
    )


def expire(broker: OdradekBroker, zookeeper: ZooKeeper) -> None:
    """End the session of a broker that runs, as ZooKeeper does with one that it did not hear of."""
    path = broker.data / "metadata" / "zookeeper-session"
    saved = SessionFile(path).read()
    assert saved is not None
    client = KazooClient(
        zookeeper.address, client_id=(saved.session_id, saved.password), timeout=10
    )
    client.start(30)
    client.stop()
    client.close()
    processes.wait_until(
        lambda: SessionFile(path).read() not in (None, saved), 30, "the broker's next session"
    )


def test_a_broker_whose_session_ended_registers_again(
    cluster: Cluster, zookeeper: ZooKeeper
) -> None:
    """C095: with records coming in meanwhile; it is led by and followed as before."""
    topic = create_topic(cluster, configs={"min.insync.replicas": "2"})
    chroot = cluster.brokers[1].properties["zookeeper.connect"].partition("/")[2]
    client = KazooClient(zookeeper.address)
    client.start(30)
    try:
        with Load(cluster, topic) as load:
            for number in (leader_of(cluster, topic), leader_of(cluster, topic) % 3 + 1):
                _, before = client.get(f"/{chroot}/brokers/ids/{number}")
                load.wait_for_more(50)
                expire(cluster.brokers[number], zookeeper)
                load.wait_for_more(50)
                cluster.wait_for_brokers(*cluster.brokers)
                wait_for_isr(cluster, topic, set(cluster.brokers))
                _, after = client.get(f"/{chroot}/brokers/ids/{number}")
                assert after.ephemeralOwner not in (0, before.ephemeralOwner)
    finally:
        client.stop()
        client.close()
    assert load.failures == []
    assert load.acknowledged == numbered(0, len(load.acknowledged))
    assert consume_values(cluster, topic, len(load.acknowledged)) == load.acknowledged


def test_there_is_one_controller_after_several_sessions_of_controllers_ended(
    cluster: Cluster, zookeeper: ZooKeeper
) -> None:
    """C096: whichever broker wins, the one whose session just ended among them."""
    chroot = cluster.brokers[1].properties["zookeeper.connect"].partition("/")[2]
    client = KazooClient(zookeeper.address)
    client.start(30)
    try:
        epochs = []
        for _ in range(5):
            epochs.append(int(client.get(f"/{chroot}/controller_epoch")[0]))
            expire(cluster.brokers[cluster.controller()], zookeeper)
            cluster.wait_for_brokers(*cluster.brokers)
            create_topic(cluster)
        epochs.append(int(client.get(f"/{chroot}/controller_epoch")[0]))
    finally:
        client.stop()
        client.close()
    assert epochs == sorted(set(epochs))


def test_a_controller_that_slept_writes_nothing_over_what_came_since(
    cluster: Cluster, zookeeper: ZooKeeper
) -> None:
    """C097: it is stopped with requests under way, longer than its session, and woken again."""
    sleeping = cluster.controller()
    others = sorted(set(cluster.brokers) - {sleeping})
    topic = create_topic(cluster)
    doomed = create_topic(cluster)
    process = cluster.brokers[sleeping].process
    assert process is not None
    with Wire(cluster.brokers[sleeping].address, timeout=60) as wire:
        process.send_signal(signal.SIGSTOP)
        try:
            # In its socket when it wakes: the answer may be yes or no, but it is the new controller's.
            queued = requests.new_topic_name("queued")
            wire.send(
                "create_topics",
                7,
                timeout=30_000,
                topics=[{"name": queued, "num_partitions": 1, "replication_factor": 1}],
            )
            awake = [cluster.brokers[each] for each in others]
            bootstrap = ",".join(each.bootstrap for each in awake)
            processes.wait_until(
                lambda: all(
                    cluster.metadata(each).controller_id in others
                    and leader_of(cluster, topic, each) in others
                    and set(partitions_of(cluster, topic, each)[0].isr_nodes) == set(others)
                    for each in others
                ),
                60,
                "another controller, and a cluster without the sleeping one",
            )
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.delete_topics([doomed])[doomed].result(30)
            made = requests.new_topic_name()
            admin.create_topics([NewTopic(made, 3, 2)])[made].result(30)
        finally:
            process.send_signal(signal.SIGCONT)
        answer = wire.receive()
    cluster.wait_for_brokers(*cluster.brokers)
    assert cluster.controller() in others
    wait_for_isr(cluster, topic, set(cluster.brokers))
    was_made = answer.topics[0].error_code == 0
    for broker in cluster.brokers.values():
        with Wire(broker.address) as wire:
            assert requests.describe_topic(wire, made).error_code == 0
            assert requests.describe_topic(wire, doomed).error_code == UNKNOWN_TOPIC_OR_PARTITION
            told = requests.describe_topic(wire, queued).error_code
            assert told == (0 if was_made else UNKNOWN_TOPIC_OR_PARTITION)
