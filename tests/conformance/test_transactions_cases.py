"""Public trouble with transactions (cases C069, C070, C072, C073, C078, C081)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support import groups, processes, requests
from tests.support.groups import Member
from tests.support.requests import create_topic
from tests.support.routing import Site, address_for_group, connect, shared_site
from tests.support.transactions import (
    TransactionalProducer,
    committed_values,
    settled,
    wait_for_state,
)
from tests.support.wire import Wire

UNSTABLE_OFFSET_COMMIT = 88
broker = shared_site()


@pytest.fixture
def topic(wire: Wire) -> str:
    return create_topic(wire)


@pytest.fixture
def producer(wire: Wire) -> TransactionalProducer:
    return TransactionalProducer(wire).init()


@pytest.fixture
def aborted(wire: Wire, topic: str, producer: TransactionalProducer) -> TransactionalProducer:
    """One record in a transaction that was aborted, its marker behind it."""
    producer.add(topic, 0)
    assert producer.produce(topic, [b"20"]) == 0
    producer.end(False)
    wait_for_state(wire, producer.transactional_id, "CompleteAbort")
    return producer


def reader(broker: Site, topic: str, isolation_level: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": groups.new_group_name(),
            "enable.auto.commit": False,
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def read_to_the_end(consumer: Consumer, topic: str) -> tuple[list[bytes | None], int]:
    """Values, and the position behind them."""
    values: list[bytes | None] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is None:
                values.append(message.value())
            else:  # the end of the partition, and its offset
                return values, message.offset() or 0
    finally:
        consumer.close()


@pytest.mark.usefixtures("aborted")
def test_an_aborted_record_is_there_for_who_asks_for_all(broker: Site, topic: str) -> None:
    """C069"""
    values, position = read_to_the_end(reader(broker, topic, "read_uncommitted"), topic)
    assert (values, position) == ([b"20"], 2)
    values, position = read_to_the_end(reader(broker, topic, "read_committed"), topic)
    assert (values, position) == ([], 2)


@pytest.mark.parametrize("version", [4, 11, 13, 17])
def test_aborted_ranges_are_told_to_who_reads_committed(
    wire: Wire, topic: str, aborted: TransactionalProducer, version: int
) -> None:
    """C070: clients that filter whenever there is a list would lose records."""
    where = requests.topic_id(wire, topic) if version >= 13 else topic
    told = requests.fetch(wire, where, 0, version=version)
    assert not told.aborted_transactions
    assert told.records
    told = requests.fetch(wire, where, 0, version=version, isolation_level=1)
    assert [(each.producer_id, each.first_offset) for each in told.aborted_transactions or ()] == [
        (aborted.producer_id, 0)
    ]
    # Not to a range that the transaction does not touch.
    requests.produce_values(wire, topic, [b"behind"])
    told = requests.fetch(wire, where, 2, version=version, isolation_level=1)
    assert not told.aborted_transactions


def test_what_is_not_committed_is_behind_the_end(
    broker: Site, wire: Wire, topic: str, producer: TransactionalProducer
) -> None:
    """C072"""
    values = [b"%d" % number for number in range(100)]
    producer.add(topic, 0)
    assert producer.produce(topic, values) == 0
    with connect(broker) as other:
        ends = [
            requests.list_offset(other, topic, requests.LATEST, isolation_level=level).offset
            for level in (0, 1)
        ]
        assert ends == [100, 0]
        assert not requests.fetch(other, topic, 0, isolation_level=1, max_wait=50).records
        producer.end(True)
        wait_for_state(wire, producer.transactional_id, "CompleteCommit")
        assert committed_values(other, topic) == values


def test_transactions_that_take_their_time_leak_nothing(broker: Site, topic: str) -> None:
    """C073"""
    consumer = reader(broker, topic, "read_committed")
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": groups.new_group_name(),
            "linger.ms": 5,
        }
    )
    producer.init_transactions(30)
    for number in range(20):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush(30)
        consumer.poll(0)
        # The input, not a wait: at 75 ms it was that the records came.
        time.sleep((0, 0.05, 0.075, 0.1)[number % 4])
        producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"good")
    producer.commit_transaction(30)
    found = []
    while not found:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None:
            found.append(message.value())
    consumer.close()
    assert found == [b"good"]


@pytest.mark.parametrize("start", [5, 6], ids=["only the marker is left", "nothing is left"])
def test_a_producer_goes_on_behind_records_that_were_deleted(
    wire: Wire, topic: str, producer: TransactionalProducer, start: int
) -> None:
    """C078; after a restart: ``test_transactions_deleted.py``."""
    producer.add(topic, 0)
    assert producer.produce(topic, [b"%d" % number for number in range(5)]) == 0
    producer.end(True)
    wait_for_state(wire, producer.transactional_id, "CompleteCommit")
    assert requests.delete_records(wire, topic, start).low_watermark == start
    producer.add(topic, 0)
    assert producer.produce(topic, [b"5"]) == 0  # its sequence is 5
    producer.end(True)
    wait_for_state(wire, producer.transactional_id, "CompleteCommit")
    assert committed_values(wire, topic) == [b"5"]


@pytest.fixture
def group(wire: Wire) -> Iterator[str]:
    return groups.new_group(wire)


def stable(wire: Wire, group: str, topic: str) -> tuple[int, int]:
    found = groups.fetch_group(wire, group, {topic: [0]}, version=7, require_stable=True)
    part = found.topics[0].partitions[0]
    return part.error_code, part.committed_offset


def test_offsets_of_the_dead_are_settled_by_time(wire: Wire, topic: str, group: str) -> None:
    """C081: each life of the application has a transactional id of its own."""
    assert groups.commit(wire, group, topic, 3) == 0
    for _ in range(2):
        dead = TransactionalProducer(wire).init(timeout_ms=300)
        assert settled(lambda dead=dead: dead.add_offsets(group)) == 0
        assert dead.commit_offset(group, topic, 9) == 0
    heir = TransactionalProducer(wire).init()
    processes.wait_until(
        lambda: stable(wire, group, topic) == (0, 3), 60, "the end of the transactions"
    )
    assert settled(lambda: heir.add_offsets(group)) == 0
    assert heir.commit_offset(group, topic, 7) == 0
    assert stable(wire, group, topic)[0] == UNSTABLE_OFFSET_COMMIT
    heir.end(True)
    processes.wait_until(lambda: stable(wire, group, topic) == (0, 7), 30, "the marker")


def test_a_marker_during_a_rebalance_is_applied(
    broker: Site, wire: Wire, topic: str, group: str, producer: TransactionalProducer
) -> None:
    """C081, the variant."""
    with (
        Member(address_for_group(broker, group), group) as first,
        Member(address_for_group(broker, group), group) as second,
    ):
        first.join_alone()
        assert settled(lambda: producer.add_offsets(group)) == 0
        identity = {"generation_id": first.generation, "member_id": first.member_id}
        assert producer.commit_offset(group, topic, 9, **identity) == 0
        second.ask_for_id()
        second.send_join()
        groups.wait_for_state(wire, group, "PreparingRebalance")
        assert stable(wire, group, topic)[0] == UNSTABLE_OFFSET_COMMIT
        producer.end(True)
        processes.wait_until(lambda: stable(wire, group, topic) == (0, 9), 30, "the marker")
        assert groups.state(wire, group) == "PreparingRebalance"
