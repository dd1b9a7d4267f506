"""Group commit: which log is synced when, and what a failed sync leads to."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pytest

from broker.model.errors import DiskFullError, NoDescriptorError
from broker.replication.background import (
    MAX_FLUSHES,
    MAX_KERNEL_FLUSHES,
    MAX_LOGS_A_JOB,
)
from broker.replication.partition import Partition
from broker.storage.log import Log
from tests.broker.replication.build import World
from tests.support.faulty_filesystem import FaultyFileSystem, disk_full, io_error


def partitions_of(world: World, count: int) -> list[Partition]:
    world.host(partitions=count, flush_messages=1)
    return [world.replicas.find("orders", index) for index in range(count)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World([tmp_path])


def test_one_sync_at_a_time_and_the_next_covers_all_that_came_meanwhile(world: World) -> None:
    (partition,) = partitions_of(world, 1)
    for _ in range(5):
        world.append(partition)
    (first,) = world.threads.waiting("flush")
    world.threads.take("flush").run()
    assert partition.high_watermark == 1
    assert len(world.threads.waiting("flush")) == 1
    world.threads.take("flush").run()
    assert partition.high_watermark == 5
    assert world.threads.jobs == []
    assert first not in world.threads.jobs


def test_what_was_appended_after_a_sync_began_is_not_covered_by_it(world: World) -> None:
    (partition,) = partitions_of(world, 1)
    world.append(partition)
    job = world.threads.take("flush")
    world.append(partition)
    job.run()
    assert partition.high_watermark == 1
    assert partition.log.flushed_offset == 1


def test_threads_sync_so_many_logs_at_once_and_no_more(world: World) -> None:
    partitions = partitions_of(world, MAX_FLUSHES + 30)
    for partition in partitions:
        world.append(partition)
    assert len(world.threads.waiting("flush")) == MAX_FLUSHES
    world.threads.run()
    assert {partition.high_watermark for partition in partitions} == {1}


def test_one_trip_to_a_thread_takes_so_many_logs_and_no_more(world: World) -> None:
    count = MAX_FLUSHES + MAX_FLUSHES * (MAX_LOGS_A_JOB + 5)
    partitions = partitions_of(world, count)
    for partition in partitions:
        world.append(partition)
    first = world.threads.waiting("flush")
    world.threads.jobs.clear()
    first[0].run()
    done = sum(partition.high_watermark for partition in partitions)
    assert done == 1
    (following,) = world.threads.waiting("flush")
    world.threads.jobs.clear()
    following.run()
    assert sum(partition.high_watermark for partition in partitions) == done + MAX_LOGS_A_JOB


def test_the_kernel_syncs_so_many_logs_at_once_and_no_more(tmp_path: Path) -> None:
    world = World([tmp_path])
    world.threads.can_datasync = True
    partitions = partitions_of(world, MAX_KERNEL_FLUSHES + 10)
    for partition in partitions:
        world.append(partition)
    under_way = len(world.threads.waiting("datasync")) + len(world.threads.waiting("flush"))
    assert under_way == MAX_KERNEL_FLUSHES
    world.threads.run()
    assert {partition.high_watermark for partition in partitions} == {1}


def test_a_kernel_that_refuses_a_sync_leaves_it_to_a_thread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.threads.can_datasync = True
    monkeypatch.setattr(world.threads, "datasync", lambda descriptors, then: False)
    (partition,) = partitions_of(world, 1)
    world.append(partition)
    world.threads.run()
    assert partition.high_watermark == 1


@pytest.mark.parametrize("kind", ["flush", "datasync"])
def test_a_failed_sync_takes_the_directory_offline_for_good(kind: str) -> None:
    fs = FaultyFileSystem(random.Random(1))
    world = World(["/a"], fs)
    first, second = partitions_of(world, 2)
    for partition in (first, second):
        world.append(partition)
    world.threads.run()  # the names are on disk: from here on the bytes alone are synced
    world.threads.can_datasync = kind == "datasync"
    for partition in (first, second):
        world.append(partition)
    fs.fail_at(1, io_error)
    world.threads.take(kind).run(io_error() if kind == "datasync" else None)
    assert first.is_closed
    assert second.is_closed
    assert first.high_watermark == second.high_watermark == 1
    world.threads.run()
    assert world.threads.jobs == []
    assert list(world.replicas.partitions()) == []


def test_a_log_that_cannot_be_opened_for_a_sync_is_a_failed_directory(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the partition is not one that is never synced again."""
    (partition,) = partitions_of(world, 1)
    file = partition.log.segments.active.records.file

    def fail(self: object) -> int:
        raise FileNotFoundError("gone")

    monkeypatch.setattr(type(file), "pin", fail)
    world.append(partition)
    assert partition.is_closed
    assert world.threads.jobs == []


def test_a_deleted_topic_is_not_synced_any_more(world: World) -> None:
    (partition,) = partitions_of(world, 1)
    world.append(partition)
    world.append(partition)  # wants another sync after the running one
    world.replicas.drop_topic("orders")
    world.logs.delete(partition.topic_partition)
    world.threads.run()
    assert world.replicas.flush_count == 1
    assert partition.log.segments.active.records.file.pins == 0  # type: ignore[attr-defined]


def test_a_sync_for_which_there_is_no_room_is_made_up_for_by_the_next(world: World) -> None:
    fs = FaultyFileSystem(random.Random(1))
    world = World(["/a"], fs)
    (partition,) = partitions_of(world, 1)
    world.append(partition)
    fs.fail_at(2, lambda: DiskFullError("no space left on device"))
    world.threads.run()
    assert partition.high_watermark == 0
    assert not partition.is_closed
    world.append(partition)
    world.threads.run()
    assert partition.high_watermark == 2


def test_flush_messages_counts_over_batches(world: World) -> None:
    partition = world.host(flush_messages=3)
    for appended, flushed in ((1, 0), (2, 0), (3, 3), (4, 3), (5, 3), (6, 6)):
        world.append(partition)
        assert partition.high_watermark == appended  # acknowledged at once
        world.threads.run()
        assert partition.log.flushed_offset == flushed


def test_flush_ms_is_kept_by_the_clock(world: World) -> None:
    partition = world.host(flush_ms=5000)
    world.append(partition)
    world.scheduler.now_ms += 4000
    world.replicas.flush_due(world.scheduler.now_ms)
    assert world.threads.jobs == []
    world.scheduler.now_ms += 2000
    world.replicas.flush_due(world.scheduler.now_ms)
    world.threads.run()
    assert partition.log.flushed_offset == 1


def test_flush_settings_take_effect_at_once(world: World) -> None:
    partition = world.host()
    world.append(partition)
    assert world.threads.jobs == []
    world.reconfigure(flush_messages=1)
    world.append(partition)
    assert partition.high_watermark == 1
    world.threads.run()
    assert partition.high_watermark == 2
    world.append(partition)
    world.reconfigure()
    assert partition.high_watermark == 3


def test_a_start_after_a_crash_syncs_what_was_acknowledged(tmp_path: Path) -> None:
    world = World([tmp_path])
    (partition,) = partitions_of(world, 1)
    world.append(partition)
    for directory in world.logs.directories.values():
        directory.close()
    again = World([tmp_path])
    (partition,) = partitions_of(again, 1)
    again.threads.run()
    assert partition.high_watermark == 1
    assert partition.topic_id == uuid.UUID(int=7)


def test_a_sync_that_found_no_room_is_tried_again_until_there_is() -> None:
    fs = FaultyFileSystem(random.Random(4))
    world = World(["/a"], fs)
    (partition,) = partitions_of(world, 1)
    world.append(partition)
    for _ in range(3):
        assert world.replicas.is_flushing(partition)
        fs.fail_at(1, disk_full)
        world.threads.take("flush").run()
        assert partition.high_watermark == 0
        assert not partition.is_closed
        assert not world.replicas.is_flushing(partition)
        assert world.threads.jobs == []
        world.replicas.flush_due(world.scheduler.wall_ms())
    world.threads.take("flush").run()
    assert partition.high_watermark == 1
    world.replicas.flush_due(world.scheduler.wall_ms())
    assert world.threads.jobs == []


def test_a_sync_for_which_no_file_can_be_opened_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world = World([tmp_path])
    (partition,) = partitions_of(world, 1)

    def fail(log: Log) -> None:
        raise NoDescriptorError("too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(type(partition.log), "flush_target", fail)
        world.append(partition)
        assert world.threads.jobs == []
        assert not world.replicas.is_flushing(partition)
    world.replicas.flush_due(world.scheduler.wall_ms())
    world.threads.run()
    assert partition.high_watermark == 1
