"""Transactions over three brokers: whoever coordinates, leads and keeps the group, and whoever of them dies."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from broker.server.cluster.private_wire import PrivateKey, encode_request
from tests.support import groups, processes, requests
from tests.support.cluster import Cluster
from tests.support.odradek import OdradekBroker
from tests.support.replicated import create_topic, wait_for_isr
from tests.support.routing import connect, coordinator, leader
from tests.support.transactions import (
    CONCURRENT_TRANSACTIONS,
    TRANSACTION_KEY,
    TransactionalProducer,
    committed_values,
    settled,
    wait_for_coordinator,
    wait_for_state,
)
from tests.support.wire import Wire, WireError
from tests.support.zookeeper import ZooKeeper

TRANSACTION_COORDINATOR_FENCED = 52
TRANSACTION_ABORTABLE = 120
SETTINGS = {"transaction.state.log.num.partitions": "6", "min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Of tests that kill nobody."""
    directory = tmp_path_factory.mktemp("cluster")
    with Cluster(directory, zookeeper, "/transacting", properties=SETTINGS) as cluster:
        yield cluster


class Producer(TransactionalProducer):
    """Of a cluster: every request goes to whom it concerns."""

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self.cluster = cluster
        self.number = coordinator(cluster, transactional_id, TRANSACTION_KEY)
        wire = self.dial(self.number)
        wait_for_coordinator(wire, transactional_id)
        super().__init__(wire, transactional_id)

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    def move(self) -> None:
        """To the broker that coordinates now."""
        self.wire.close()
        self.number = coordinator(self.cluster, self.transactional_id, TRANSACTION_KEY)
        self.wire = self.dial(self.number)
        wait_for_coordinator(self.wire, self.transactional_id)

    def dial(self, number: int) -> Wire:
        return Wire(self.cluster.brokers[number].address, timeout=60)

    def produce_to(self, topic: str, value: bytes, partition: int, version: int) -> int:
        own, self.wire = self.wire, self.dial(leader(self.cluster, topic, partition))
        try:
            with self.wire:
                return self.produce(topic, [value], partition=partition, version=version)
        finally:
            self.wire = own

    def commit_to(self, group: str, topic: str, offset: int, version: int) -> int:
        number = coordinator(self.cluster, group, 0)
        own, self.wire = self.wire, self.dial(number)
        try:
            with self.wire:
                groups.wait_for_coordinator(self.wire, group)
                return self.commit_offset(group, topic, offset, version=version)
        finally:
            self.wire = own


def values(cluster: Cluster, topic: str, partition: int) -> list[bytes | None]:
    """Of a leader that was just elected too: it tells offsets when it holds its lease."""
    with Wire(cluster.brokers[leader(cluster, topic, partition)].address, timeout=60) as wire:

        def is_settled() -> bool:
            found = requests.list_offset(wire, topic, requests.LATEST, partition=partition)
            return bool(found.error_code == 0)

        processes.wait_until(is_settled, 60, f"the leader of {topic}-{partition} is settled")
        return committed_values(wire, topic, partition=partition)


def offset(cluster: Cluster, group: str, topic: str) -> int:
    with Wire(cluster.brokers[coordinator(cluster, group, 0)].address, timeout=60) as wire:
        groups.wait_for_coordinator(wire, group)
        found: int = groups.committed_offset(wire, group, topic)
        return found


def elsewhere(cluster: Cluster, key_type: int, number: int) -> str:
    """A key that another broker than that one coordinates."""
    while True:
        key = requests.new_topic_name()
        if coordinator(cluster, key, key_type) != number:
            return key


def run_one(producer: Producer, topic: str, group: str, is_raising: bool, is_commit: bool) -> None:
    """A value on each partition, and an offset."""
    if not is_raising:
        producer.add(topic, 0, 1, 2)
    for partition in range(3):
        code = producer.produce_to(topic, b"v", partition, 12 if is_raising else 11)
        assert code == 0, (partition, code)
    if not is_raising:
        assert producer.add_offsets(group) == 0
    assert producer.commit_to(group, topic, 7 if is_commit else 9, 5 if is_raising else 3) == 0
    if is_raising:
        producer.end_and_raise(is_commit)
    else:
        producer.end(is_commit)
    outcome = "CompleteCommit" if is_commit else "CompleteAbort"
    wait_for_state(producer.wire, producer.transactional_id, outcome)


@pytest.mark.parametrize("is_raising", [False, True], ids=["classic", "raising"])
def test_a_transaction_on_all_brokers(cluster: Cluster, is_raising: bool) -> None:
    topic = create_topic(cluster, 3)
    assert {leader(cluster, topic, each) for each in range(3)} == {1, 2, 3}
    with Producer(cluster, requests.new_topic_name()) as producer:
        group = elsewhere(cluster, 0, producer.number)
        producer.init(version=5 if is_raising else 4)
        run_one(producer, topic, group, is_raising, True)
        run_one(producer, topic, group, is_raising, False)
    assert [values(cluster, topic, each) for each in range(3)] == [[b"v"]] * 3
    assert offset(cluster, group, topic) == 7


def test_what_was_not_added_is_refused_by_whoever_leads(cluster: Cluster) -> None:
    topic = create_topic(cluster, 3)
    with Producer(cluster, requests.new_topic_name()) as producer:
        group = elsewhere(cluster, 0, producer.number)
        producer.init()
        codes = [producer.produce_to(topic, b"v", each, 11) for each in range(3)]
        assert codes == [TRANSACTION_ABORTABLE] * 3
        assert producer.commit_to(group, topic, 7, 4) == TRANSACTION_ABORTABLE
        producer.add(topic, 0, 1, 2)
        producer.end(False)
        wait_for_state(producer.wire, producer.transactional_id, "CompleteAbort")
        codes = [producer.produce_to(topic, b"v", each, 11) for each in range(3)]
        assert codes == [TRANSACTION_ABORTABLE] * 3
    assert [values(cluster, topic, each) for each in range(3)] == [[]] * 3


def test_the_next_transaction_begins_at_once(cluster: Cluster) -> None:
    """While the markers of the last one are on their way: its first batches wait for them, wherever they go, and
    if that takes long they are told so (CONCURRENT_TRANSACTIONS), and of no other trouble."""
    topic = create_topic(cluster, 3)
    with Producer(cluster, requests.new_topic_name()) as producer:
        producer.init(version=5)
        for number in range(10):
            for partition in range(3):
                write = partial(producer.produce_to, topic, b"%d" % number, partition, 12)
                assert settled(write) == 0
            producer.end_and_raise(True)
        wait_for_state(producer.wire, producer.transactional_id, "CompleteCommit")
    expected = [b"%d" % number for number in range(10)]
    assert [values(cluster, topic, each) for each in range(3)] == [expected] * 3


def test_an_abort_amid_the_last_end_has_to_wait(cluster: Cluster) -> None:
    """The markers are written by other brokers: until then nobody is told to be fenced."""
    topic = create_topic(cluster, 3)
    with Producer(cluster, requests.new_topic_name()) as producer:
        producer.init(version=5)
        for _ in range(20):
            for partition in range(3):
                write = partial(producer.produce_to, topic, b"v", partition, 12)
                assert settled(write) == 0
            producer.end_and_raise(True)
            code, *name = producer.try_end_and_raise(False)
            assert code in (0, CONCURRENT_TRANSACTIONS)
            if code == 0:
                producer.producer_id, producer.epoch = name
                producer.sequences.clear()


def test_every_replica_tells_its_producers(cluster: Cluster) -> None:
    topic = create_topic(cluster)
    with Producer(cluster, requests.new_topic_name()) as producer:
        producer.init()
        producer.add(topic, 0)
        assert producer.produce_to(topic, b"v", 0, 11) == 0

        def is_told(number: int) -> bool:
            with producer.dial(number) as wire:
                answer = wire.request(
                    "describe_producers", 0, topics=[{"name": topic, "partition_indexes": [0]}]
                )
            (told,) = answer.topics[0].partitions
            assert told.error_code == 0
            return [
                (each.producer_id, each.current_txn_start_offset) for each in told.active_producers
            ] == [(producer.producer_id, 0)]

        for number in cluster.brokers:
            processes.wait_until(lambda number=number: is_told(number), 30, "the follower")  # type: ignore[misc]
        producer.end(False)


def test_a_stranger_writes_no_markers(cluster: Cluster) -> None:
    body = {"sender": [1, 1, 1], "markers": []}
    with Wire(cluster.brokers[1].address) as wire:
        wire.send_bytes(encode_request(PrivateKey.WRITE_MARKERS, 1, body))
        assert wire.is_closed_by_peer()


@pytest.mark.slow
def test_old_coordinators_stay_fenced_by_the_next_leader(
    zookeeper: ZooKeeper, tmp_path: Path
) -> None:
    """A marker's coordinator epoch is known to every replica."""
    with Cluster(tmp_path, zookeeper, "/fenced", properties=SETTINGS) as cluster:
        topic = create_topic(cluster)
        with Producer(cluster, requests.new_topic_name()) as producer:
            producer.init()

            def write(coordinator_epoch: int) -> int:
                marker = {
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.epoch,
                    "transaction_result": False,
                    "topics": [{"name": topic, "partition_indexes": [0]}],
                    "coordinator_epoch": coordinator_epoch,
                }
                answer = connect(cluster).request("write_txn_markers", 1, markers=[marker])
                code: int = answer.markers[0].topics[0].partitions[0].error_code
                return code

            assert write(50) == 0
            for way in (OdradekBroker.kill9, OdradekBroker.stop):
                old = leader(cluster, topic, 0)
                way(cluster.brokers[old])
                assert leader(cluster, topic, 0) != old
                assert write(49) == TRANSACTION_COORDINATOR_FENCED
                assert write(50) == 0
                cluster.brokers[old].start()
                wait_for_isr(cluster, topic, set(cluster.brokers))


@pytest.mark.slow
def test_the_coordinator_dies_while_transactions_end(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    """Each is there on all partitions or on none, and those that were answered are; the heir goes on."""
    with Cluster(tmp_path, zookeeper, "/dying", properties=SETTINGS) as cluster:
        topic = create_topic(cluster, 3)
        answered: list[bytes] = []
        with Producer(cluster, requests.new_topic_name()) as producer:
            for round_ in range(3):
                producer.init()
                for number in range(12):
                    value = b"%d-%d" % (round_, number)
                    producer.add(topic, 0, 1, 2)
                    for partition in range(3):
                        assert producer.produce_to(topic, value, partition, 11) == 0
                    if number == 11:
                        break
                    producer.end(True)
                    answered.append(value)
                killed = cluster.brokers[producer.number]
                killer = threading.Timer(0.002 * round_, killed.kill9)
                killer.start()
                with contextlib.suppress(WireError, OSError):
                    producer.end(True)
                    answered.append(value)
                killer.join()
                producer.move()
                wait_until_settled(producer)
                found = [values(cluster, topic, each) for each in range(3)]
                assert found == [found[0]] * 3
                assert set(answered) <= set(found[0])
                assert len(found[0]) == len(set(found[0]))
                killed.start()
                for name in (topic, "__transaction_state"):
                    wait_for_isr(cluster, name, set(cluster.brokers))


def wait_until_settled(producer: Producer) -> None:
    """Whether it was prepared or is open still: another init ends it, and waits for markers."""
    heir = TransactionalProducer(producer.wire, producer.transactional_id)
    heir.init()
