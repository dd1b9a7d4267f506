"""Produce over real logs: order, verdicts by partition, what waits, and what waiting may cost."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from broker.records.compression import Codec
from broker.replication.partition import Partition
from broker.server import tasks
from broker.server.connection import CloseConnection
from broker.server.handlers.produce import BATCHES_AT_ONCE, PARTITIONS_DECODED_AT_ONCE
from tests.broker.server.build import HandlerWorld, Pending
from tests.broker.storage.build import NOW_MS, batch
from tests.support.faulty_filesystem import FaultyFileSystem, disk_full, io_error

pytestmark = pytest.mark.interpreted  # with doubles of the connection or the dispatcher

UNKNOWN_TOPIC_OR_PARTITION, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR = 3, 7, 56
INVALID_RECORD, INVALID_REQUIRED_ACKS = 87, 21
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
NOT_ENOUGH_REPLICAS = 19


@pytest.fixture
def world(tmp_path: Path) -> HandlerWorld:
    return HandlerWorld([tmp_path])


def produce(
    world: HandlerWorld,
    *partitions: tuple[int, bytes | bytearray | None],
    acks: int = -1,
    timeout: int = 1000,
    topic: str = "orders",
    **fields: Any,
) -> Pending:
    return world.ask(
        "produce",
        9,
        **{
            "acks": acks,
            "timeout": timeout,
            "topic_data": [
                {
                    "name": topic,
                    "partition_data": [
                        {"index": index, "records": None if data is None else bytes(data)}
                        for index, data in partitions
                    ],
                }
            ],
            **fields,
        },
    )


def results(pending: Pending) -> list[tuple[int, int, int]]:
    """(partition, error, base offset)"""
    return [
        (part.index, part.error_code, part.base_offset)
        for topic in pending.answer.responses
        for part in topic.partition_responses
    ]


def walked(size: int = 5000, **options: Any) -> bytearray:
    """A batch that must be walked in a thread on a compacted topic."""
    return batch(size=size, codec=Codec.GZIP, **options)


def test_a_plain_batch_is_answered_at_once(world: HandlerWorld) -> None:
    world.host()
    assert results(produce(world, (0, batch(3)))) == [(0, 0, 0)]
    assert results(produce(world, (0, batch(2)))) == [(0, 0, 3)]


def test_each_partition_has_its_own_verdict(world: HandlerWorld) -> None:
    world.host(partitions=2)
    pending = produce(world, (0, batch()), (5, batch()), (1, None))
    assert results(pending) == [
        (0, 0, 0),
        (5, UNKNOWN_TOPIC_OR_PARTITION, -1),
        (1, INVALID_RECORD, -1),
    ]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"acks": 2}, INVALID_REQUIRED_ACKS),
        ({"acks": -2}, INVALID_REQUIRED_ACKS),
    ],
)
def test_what_no_partition_may_take(
    world: HandlerWorld, fields: dict[str, Any], error: int
) -> None:
    partition = world.host()
    assert results(produce(world, (0, batch()), **fields)) == [(0, error, -1)]
    assert partition.log.log_end_offset == 0


def test_a_transactional_batch_names_its_transaction(world: HandlerWorld) -> None:
    partition = world.host()
    data = batch(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    refused = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert results(produce(world, (0, data))) == [(0, refused, -1)]
    assert partition.last_stable_offset == 0
    assert partition.log.log_end_offset == 0


def test_more_in_sync_replicas_than_there_can_be(world: HandlerWorld) -> None:
    world.host(min_insync_replicas=2)
    assert results(produce(world, (0, batch()))) == [(0, NOT_ENOUGH_REPLICAS, -1)]
    assert results(produce(world, (0, batch()), acks=1)) == [(0, 0, 0)]


# Many batches


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TURN_NS", 0)


MANY = 3 * BATCHES_AT_ONCE


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("is_in_scratch", [False, True])
def test_a_request_with_many_batches_is_appended_in_many_turns(
    world: HandlerWorld, is_in_scratch: bool
) -> None:
    world.host(partitions=MANY)
    asked = [(index, batch(index % 3 + 1)) for index in range(MANY)]
    if is_in_scratch:
        world.receive_into_scratch = True
    pending = produce(world, *asked)
    assert pending.is_deferred
    assert world.connection.is_alone == [True]
    assert world.broker.receive_budget.used_bytes > 0
    world.broker.scratch.data[:] = bytes(len(world.broker.scratch.data))
    assert world.run() >= MANY - BATCHES_AT_ONCE
    assert results(pending) == [(index, 0, 0) for index in range(MANY)]
    ends = [world.replicas.find("orders", index).log.log_end_offset for index in range(MANY)]
    assert ends == [index % 3 + 1 for index in range(MANY)]
    assert world.broker.receive_budget.used_bytes == 0


@pytest.mark.usefixtures("short_turns")
def test_a_rest_that_is_walked_in_threads_is_answered_once_all_of_it_is_there(
    world: HandlerWorld,
) -> None:
    world.host(partitions=MANY, cleanup_policy=frozenset({"compact"}))
    pending = produce(world, *((index, walked()) for index in range(MANY)))
    world.threads.run()  # those of the first turn come back while the rest waits for its own
    assert not pending.is_answered
    world.run()
    assert results(pending) == [(index, 0, 0) for index in range(MANY)]
    assert world.broker.receive_budget.used_bytes == 0


@pytest.mark.usefixtures("short_turns")
def test_many_batches_without_acknowledgement_are_appended_though_the_client_has_gone(
    world: HandlerWorld,
) -> None:
    world.host(partitions=MANY)
    produce(world, *((index, batch()) for index in range(MANY)), acks=0)
    world.connection.close("gone")
    world.run()
    assert world.replicas.find("orders", MANY - 1).high_watermark == 1
    assert world.broker.receive_budget.used_bytes == 0


@pytest.mark.usefixtures("short_turns")
def test_many_batches_without_acknowledgement_one_of_which_fails(world: HandlerWorld) -> None:
    world.host(partitions=MANY - 1)
    produce(world, *((index, batch()) for index in range(MANY)), acks=0)
    world.run()
    assert world.connection.close_reason is not None


@pytest.mark.parametrize("acks", [1, 0])
def test_a_request_for_thousands_of_partitions_is_decoded_in_a_thread(
    world: HandlerWorld, acks: int
) -> None:
    world.host(partitions=2)
    nothing = [(index, None) for index in range(PARTITIONS_DECODED_AT_ONCE)]
    pending = produce(world, (0, batch()), (1, batch(3)), *nothing, acks=acks)
    assert pending.is_deferred
    assert world.connection.is_alone == [True]
    assert world.broker.receive_budget.used_bytes > 0
    if not acks:
        world.connection.close("gone")  # what it sent is appended all the same
    world.run()
    ends = [world.replicas.find("orders", index).log.log_end_offset for index in range(2)]
    assert ends == [1, 3]
    assert world.broker.receive_budget.used_bytes == 0
    if acks:
        pending = Pending("produce", 9, None, world.connection.slots[-1])
        found = results(pending)
        assert found[:2] == [(0, 0, 0), (1, 0, 0)]
        assert len(found) == len(nothing) + 2


@pytest.mark.usefixtures("short_turns")
def test_many_batches_that_nobody_may_take_are_all_refused(world: HandlerWorld) -> None:
    world.host(partitions=MANY)
    pending = produce(world, *((index, batch()) for index in range(MANY)), acks=7)
    world.run()
    assert results(pending) == [(index, INVALID_REQUIRED_ACKS, -1) for index in range(MANY)]


# acks=0


def test_acks_0_has_no_answer(world: HandlerWorld) -> None:
    partition = world.host()
    pending = produce(world, (0, batch()), acks=0)
    assert pending.raw is None
    assert not pending.is_deferred
    assert partition.high_watermark == 1


def test_acks_0_that_fails_closes_the_connection(world: HandlerWorld) -> None:
    world.host()
    with pytest.raises(CloseConnection, match="UNKNOWN_TOPIC_OR_PARTITION"):
        produce(world, (9, batch()), acks=0)


def test_acks_0_waits_for_no_disk(world: HandlerWorld) -> None:
    world.host(flush_messages=1)
    assert not produce(world, (0, batch()), acks=0).is_deferred


def test_acks_0_that_is_refused_in_a_thread_closes_the_connection(world: HandlerWorld) -> None:
    world.host(cleanup_policy=frozenset({"compact"}))
    pending = produce(world, (0, walked(key=None)), acks=0)
    assert pending.is_deferred
    world.run()
    assert world.connection.close_reason is not None


# Batches that are walked


def test_batches_keep_their_order_behind_one_that_is_walked(world: HandlerWorld) -> None:
    partition = world.host(cleanup_policy=frozenset({"compact"}))
    slow = produce(world, (0, walked(count=2)))
    quick = produce(world, (0, batch(3, size=10)))
    later = produce(world, (0, walked(count=1)))
    assert [p.is_answered for p in (slow, quick, later)] == [False, False, False]
    world.threads.take("compute", 2).run()  # the last one is walked first
    world.threads.take("compute", 1).run()
    assert partition.log.log_end_offset == 0
    world.threads.take("compute").run()
    assert [results(p) for p in (slow, quick, later)] == [[(0, 0, 0)], [(0, 0, 2)], [(0, 0, 5)]]


def test_one_that_is_refused_does_not_hold_up_those_behind_it(world: HandlerWorld) -> None:
    world.host(cleanup_policy=frozenset({"compact"}))
    bad = produce(world, (0, walked(key=None)))
    good = produce(world, (0, walked()))
    world.run()
    (part,) = bad.answer.responses[0].partition_responses
    assert part.error_code == INVALID_RECORD
    assert [each.batch_index for each in part.record_errors] == [0]
    assert results(good) == [(0, 0, 0)]


def test_a_fault_in_one_append_does_not_hold_up_those_behind_it(
    world: HandlerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = world.host(cleanup_policy=frozenset({"compact"}))
    first, second = produce(world, (0, walked())), produce(world, (0, walked()))
    known = type(partition).append
    calls = []

    def append(self: Partition, *arguments: Any) -> Any:
        calls.append(self)
        if len(calls) == 1:
            raise RuntimeError("a fault of ours")
        return known(self, *arguments)

    monkeypatch.setattr(type(partition), "append", append)
    world.run()
    assert results(first) == [(0, -1, -1)]  # UNKNOWN_SERVER_ERROR
    assert results(second) == [(0, 0, 0)]


def test_a_topic_that_is_deleted_while_its_batch_is_walked(world: HandlerWorld) -> None:
    world.host(cleanup_policy=frozenset({"compact"}))
    pending = produce(world, (0, walked()), (0, batch(size=10)))
    world.replicas.drop_topic("orders")
    assert results(pending) == [
        (0, UNKNOWN_TOPIC_OR_PARTITION, -1),
        (0, UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    world.run()
    assert world.broker.receive_budget.used_bytes == 0


def test_batches_that_wait_for_a_walk_are_charged_to_the_receive_budget(
    world: HandlerWorld,
) -> None:
    world.host(cleanup_policy=frozenset({"compact"}))
    data = walked(count=50)
    for _ in range(10):
        produce(world, (0, data))
    assert world.broker.receive_budget.used_bytes == 10 * len(data)
    world.run()
    assert world.broker.receive_budget.used_bytes == 0


def test_what_waits_for_a_walk_gives_its_charge_back_when_the_client_has_gone(
    world: HandlerWorld,
) -> None:
    partition = world.host(cleanup_policy=frozenset({"compact"}))
    produce(world, (0, walked()))
    world.connection.close("gone")
    world.run()
    assert world.broker.receive_budget.used_bytes == 0
    assert partition.log.log_end_offset == 1  # it was on its way


# Waiting for the disk


def test_one_request_waits_for_the_disk_of_all_its_partitions(world: HandlerWorld) -> None:
    world.host(partitions=2, flush_messages=1)
    pending = produce(world, (0, batch()), (1, batch()))
    world.threads.take("flush").run()
    assert not pending.is_answered
    world.threads.take("flush").run()
    assert results(pending) == [(0, 0, 0), (1, 0, 0)]


def test_a_disk_that_is_too_slow_times_out_only_its_partition(world: HandlerWorld) -> None:
    world.host(partitions=2, flush_messages=1)
    pending = produce(world, (0, batch()), (1, batch()), timeout=100)
    world.threads.take("flush").run()
    world.scheduler.advance(100)
    assert results(pending) == [(0, 0, 0), (1, REQUEST_TIMED_OUT, -1)]


@pytest.mark.parametrize("timeout", [0, -1, -(1 << 31)])
def test_no_time_to_wait_for_the_disk(world: HandlerWorld, timeout: int) -> None:
    world.host(flush_messages=1)
    pending = produce(world, (0, batch()), timeout=timeout)
    world.scheduler.advance(0)
    assert results(pending) == [(0, REQUEST_TIMED_OUT, -1)]


def test_a_duplicate_is_answered_like_the_first_and_not_before_the_disk_has_it(
    world: HandlerWorld,
) -> None:
    world.host(flush_messages=1)
    data = batch(3, producer_id=9, producer_epoch=0, base_sequence=0)
    first, again = produce(world, (0, bytes(data))), produce(world, (0, bytes(data)))
    assert not again.is_answered
    world.threads.take("flush").run()
    assert results(first) == results(again) == [(0, 0, 0)]
    assert results(produce(world, (0, bytes(data)))) == [(0, 0, 0)]


def test_a_client_that_goes_away_leaves_nothing_waiting(world: HandlerWorld) -> None:
    partition = world.host(flush_messages=1)
    produce(world, (0, batch()))
    world.connection.close("gone")
    assert world.scheduler.timers == []
    assert not partition._awaiting


# Disks


def faulty() -> tuple[HandlerWorld, FaultyFileSystem]:
    fs = FaultyFileSystem(random.Random(6))
    return HandlerWorld(["/a"], fs), fs


def test_a_full_disk_is_an_error_and_the_next_batch_gets_the_same_offset() -> None:
    world, fs = faulty()
    partition = world.host()
    produce(world, (0, batch()))
    fs.fail_at(1, disk_full)
    assert results(produce(world, (0, batch()))) == [(0, KAFKA_STORAGE_ERROR, -1)]
    assert not partition.is_closed
    assert results(produce(world, (0, batch()))) == [(0, 0, 1)]


def test_a_failing_disk_takes_all_partitions_of_its_directory_offline() -> None:
    world, fs = faulty()
    world.host(partitions=3)
    fs.fail_at(1, io_error)
    pending = produce(world, (0, batch()), (1, batch()), (2, batch()))
    assert results(pending) == [(n, KAFKA_STORAGE_ERROR, -1) for n in range(3)]


def test_a_disk_that_fails_under_one_partition_fails_what_waited_for_another() -> None:
    """One request: the first is appended and waits for its sync, the second finds the disk broken."""
    world, fs = faulty()
    first = world.host("first", flush_messages=1)
    world.host("second")
    fs.fail_at(2, io_error)
    pending = world.ask(
        "produce",
        9,
        acks=-1,
        timeout=1000,
        topic_data=[
            {"name": name, "partition_data": [{"index": 0, "records": bytes(batch())}]}
            for name in ("first", "second")
        ],
    )
    world.run()
    assert first.is_closed
    assert results(pending) == [(0, KAFKA_STORAGE_ERROR, -1), (0, KAFKA_STORAGE_ERROR, -1)]
    assert world.scheduler.timers == []


def test_below_the_floor_clients_are_refused(world: HandlerWorld) -> None:
    world.host()
    world.logs.floor_bytes = 1 << 62
    world.logs.tick(world.scheduler.now_ms + 60_000)
    assert results(produce(world, (0, batch()))) == [(0, KAFKA_STORAGE_ERROR, -1)]
    world.logs.floor_bytes = 1
    world.logs.tick(world.scheduler.now_ms + 120_000)
    assert results(produce(world, (0, batch()))) == [(0, 0, 0)]


def test_without_descriptors_requests_fail_and_the_directory_stays(
    world: HandlerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EMFILE says nothing about the disk: clients try again, and nothing goes offline."""
    partition = world.host(partitions=2)
    produce(world, (0, batch()))
    partition.log.rest()
    known = os.open

    def open_(path: str, flags: int, *arguments: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    monkeypatch.setattr(os, "open", open_)
    # One has to open its file again, the other its directory.
    failed = [(0, KAFKA_STORAGE_ERROR, -1), (1, KAFKA_STORAGE_ERROR, -1)]
    assert results(produce(world, (0, batch()), (1, batch()))) == failed
    fetch = world.ask(
        "list_offsets",
        7,
        replica_id=-1,
        isolation_level=0,
        topics=[
            {
                "name": "orders",
                "partitions": [
                    {"partition_index": 0, "timestamp": NOW_MS, "current_leader_epoch": -1}
                ],
            }
        ],
    )
    (found,) = fetch.answer.topics[0].partitions
    assert found.error_code == KAFKA_STORAGE_ERROR
    monkeypatch.setattr(os, "open", known)
    assert not partition.is_closed
    assert results(produce(world, (0, batch()), (1, batch()))) == [(0, 0, 1), (1, 0, 0)]
