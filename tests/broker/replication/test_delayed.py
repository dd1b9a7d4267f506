"""What waits ends exactly once: acknowledged, failed, timed out or cancelled."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.model.error_code import ErrorCode
from broker.replication.delayed import DelayedFetch, DelayedProduce
from broker.replication.partition import Partition
from tests.broker.replication.build import World
from tests.broker.storage.build import batch
from tests.support.faulty_filesystem import FaultyFileSystem, io_error

Failed = Mapping[Partition, ErrorCode]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World([tmp_path])


def wait_for(
    world: World, required: dict[Partition, int], timeout_ms: int = 1000
) -> tuple[DelayedProduce, list[Failed]]:
    answers: list[Failed] = []
    return DelayedProduce(required, timeout_ms, world.scheduler, answers.append), answers


# Produce


def test_a_produce_waits_for_its_fdatasync(world: World) -> None:
    partition = world.host(flush_messages=1)
    info = world.append(partition)
    assert partition.high_watermark == 0
    _, answers = wait_for(world, {partition: info.last_offset + 1})
    world.scheduler.run()
    assert answers == []
    world.threads.run()
    assert partition.high_watermark == 1
    assert answers == [{}]
    assert world.scheduler.timers == []


def test_a_produce_over_two_partitions_waits_for_both(world: World) -> None:
    first = world.host(partitions=2, flush_messages=1)
    second = world.replicas.find("orders", 1)
    world.append(first)
    world.append(second)
    _, answers = wait_for(world, {first: 1, second: 1})
    world.threads.take("flush").run()
    assert answers == []
    world.threads.take("flush").run()
    assert answers == [{}]


def test_a_failed_fdatasync_is_never_an_acknowledgement() -> None:
    fs = FaultyFileSystem(random.Random(1))
    world = World(["/a"], fs)
    partition = world.host(flush_messages=1)
    world.append(partition)
    _, answers = wait_for(world, {partition: 1})
    fs.fail_at(1, io_error)
    world.threads.run()
    assert answers == [{partition: ErrorCode.KAFKA_STORAGE_ERROR}]
    assert partition.high_watermark == 0
    assert partition.is_closed


def test_a_produce_to_a_topic_that_is_deleted_meanwhile_fails(world: World) -> None:
    partition = world.host(flush_messages=1)
    world.append(partition)
    _, answers = wait_for(world, {partition: 1})
    world.replicas.drop_topic("orders")
    assert answers == [{partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]


def test_a_produce_that_lost_one_partition_still_waits_for_the_other(world: World) -> None:
    lost = world.host("lost", flush_messages=1)
    kept = world.host("kept", flush_messages=1)
    world.append(lost)
    world.append(kept)
    _, answers = wait_for(world, {lost: 1, kept: 1})
    world.replicas.drop_topic("lost")
    assert answers == []
    world.threads.run()
    assert answers == [{lost: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]


def test_a_produce_that_times_out_names_who_was_late(world: World) -> None:
    quick = world.host("quick", flush_messages=1)
    late = world.host("late", flush_messages=1)
    world.append(quick)
    world.append(late)
    _, answers = wait_for(world, {quick: 1, late: 1}, timeout_ms=50)
    world.threads.take("flush", 0).run()
    world.scheduler.advance(49)
    assert answers == []
    world.scheduler.advance(1)
    assert answers == [{late: ErrorCode.REQUEST_TIMED_OUT}]
    world.threads.run()
    assert len(answers) == 1


def test_a_cancelled_produce_leaves_nothing_behind(world: World) -> None:
    partition = world.host(flush_messages=1)
    world.append(partition)
    delayed, answers = wait_for(world, {partition: 1})
    delayed.cancel()
    assert world.scheduler.timers == []
    assert not partition._awaiting
    world.threads.run()
    assert answers == []


def test_acknowledgements_come_in_the_order_of_the_log(world: World) -> None:
    partition = world.host(flush_messages=1)
    order: list[int] = []
    for number in range(5):
        world.append(partition)
        DelayedProduce(
            {partition: number + 1},
            1000,
            world.scheduler,
            lambda failed, number=number: order.append(number),
        )
    world.threads.run()
    assert order == [0, 1, 2, 3, 4]


# Fetch


class Fetch:
    """A fetch that wants ``wanted`` looks."""

    def __init__(self, world: World, partitions: list[Partition], max_wait_ms: int = 1000) -> None:
        self.looks = 0
        self.is_enough = False
        self.answers: list[str] = []
        self.delayed = DelayedFetch(
            [partition.fetch_waiters for partition in partitions],
            max_wait_ms,
            world.scheduler,
            self.try_complete,
            self.force,
        )

    def try_complete(self) -> bool:
        self.looks += 1
        if self.is_enough:
            self.answers.append("enough")
        return self.is_enough

    def force(self) -> None:
        self.answers.append("forced")


def test_appends_of_one_turn_wake_a_fetch_once(world: World) -> None:
    first = world.host(partitions=2)
    second = world.replicas.find("orders", 1)
    fetch = Fetch(world, [first, second])
    for _ in range(3):
        world.append(first)
        world.append(second)
    assert fetch.looks == 0
    world.scheduler.run()
    assert fetch.looks == 1
    world.append(first)
    world.scheduler.run()
    assert fetch.looks == 2
    assert fetch.answers == []


def test_a_fetch_that_found_enough_is_gone_from_all_partitions(world: World) -> None:
    first = world.host(partitions=2)
    second = world.replicas.find("orders", 1)
    fetch = Fetch(world, [first, second])
    fetch.is_enough = True
    world.append(second)
    world.scheduler.run()
    assert fetch.answers == ["enough"]
    assert not first.fetch_waiters
    assert not second.fetch_waiters
    assert world.scheduler.timers == []


def test_a_fetch_is_forced_when_its_time_has_come(world: World) -> None:
    partition = world.host()
    fetch = Fetch(world, [partition], max_wait_ms=500)
    world.scheduler.advance(499)
    assert fetch.answers == []
    world.scheduler.advance(1)
    assert fetch.answers == ["forced"]
    world.append(partition)
    world.scheduler.run()
    assert fetch.looks == 0
    assert not partition.fetch_waiters


def test_a_fetch_that_was_woken_and_cancelled_in_one_turn_stays_silent(world: World) -> None:
    partition = world.host()
    fetch = Fetch(world, [partition])
    fetch.is_enough = True
    world.append(partition)
    fetch.delayed.cancel()
    world.scheduler.advance(10_000)
    assert fetch.looks == 0
    assert fetch.answers == []


def test_a_deleted_topic_wakes_its_fetches(world: World) -> None:
    fetch = Fetch(world, [world.host()])
    world.replicas.drop_topic("orders")
    world.scheduler.run()
    assert fetch.looks == 1


def test_flush_bound_records_wake_a_fetch_only_when_they_are_on_disk(world: World) -> None:
    partition = world.host(flush_messages=1)
    fetch = Fetch(world, [partition])
    world.append(partition, batch(3))
    world.scheduler.run()
    assert fetch.looks == 0
    world.threads.run()
    world.scheduler.run()
    assert fetch.looks == 1
