"""Timers of the broker: retention whatever stands in its way, and what a failing disk leads to."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from broker.model.errors import DiskFullError
from broker.replication.partition import Partition
from broker.server.background import Threads
from broker.server.maintenance import Maintenance
from broker.storage.filesystem import FileSystem
from broker.storage.segment import UNKNOWN
from tests.broker.replication.build import World
from tests.broker.server.running import on_loop
from tests.broker.storage.build import NOW_MS, batch
from tests.support.faulty_filesystem import FaultyFile, FaultyFileSystem, io_error

HOUR = 3_600_000


class FullableFileSystem(FaultyFileSystem):
    """A disk that has no room for new files while it is full."""

    is_full = False

    def open(self, path: str, *, create: bool = False, size: int | None = None) -> FaultyFile:
        if create and self.is_full:
            raise DiskFullError("no space left on device")
        return super().open(path, create=create, size=size)


class MaintainedWorld(World):
    def __init__(self, directories: list[str], fs: FileSystem) -> None:
        super().__init__(directories, fs)
        self.loop = asyncio.get_running_loop()
        self.broker: Any = SimpleNamespace(
            logs=self.logs,
            replicas=self.replicas,
            clock=self.scheduler,
            threads=Threads(self.loop),
            loop=self.loop,
            listeners=[],
            config=SimpleNamespace(
                log_retention_check_interval_ms=300_000,
                retention_scheduled=False,
                log_cleaner_enable=False,
                producer_id_expiration_check_interval_ms=600_000,
                log_flush_offset_checkpoint_interval_ms=60_000,
                replica_high_watermark_checkpoint_interval_ms=5_000,
            ),
            tasks=SimpleNamespace(spawn=self.spawn, attempt=lambda call, name: call()),
            dispatcher=SimpleNamespace(request_counts={}),
            coordination=SimpleNamespace(tick=lambda now_ms: None),
            transactions=SimpleNamespace(tick=lambda now_ms: None),
            image=SimpleNamespace(version=0),
        )
        self.maintenance = self.broker.maintenance = Maintenance(self.broker)
        self.spawned: list[str] = []

    def spawn(self, coroutine: Any, name: str) -> None:
        self.spawned.append(name)
        coroutine.close()

    def old_topic(self, name: str, number: int, **changes: Any) -> Partition:
        """Two sealed segments and an active one, all of them too old."""
        partition = self.host(
            name, topic_id=uuid.UUID(int=number), retention_ms=HOUR, segment_ms=HOUR, **changes
        )
        for _ in range(3):
            self.append(partition, batch(timestamp=NOW_MS - 10 * HOUR))
            partition.log.roll(NOW_MS)
        self.append(partition, batch(timestamp=NOW_MS - 10 * HOUR))
        partition.high_watermark = partition.log.log_end_offset
        partition.log.set_high_watermark(partition.log.log_end_offset)
        self.threads.run()
        return partition

    async def retain(self) -> set[str]:
        """Partitions of which something was deleted."""
        results = await self.maintenance.retention.run(None)
        return {f"{each.topic}-{each.partition}" for each in results}


def faulty() -> FullableFileSystem:
    return FullableFileSystem(random.Random(4))


@on_loop
async def test_retention_makes_room_on_a_full_disk() -> None:
    fs = faulty()
    world = MaintainedWorld(["/a"], fs)
    partition = world.old_topic("orders", 1)
    fs.is_full = True
    assert await world.retain() == {"orders-0"}
    assert partition.log.log_start_offset == 3
    assert not partition.is_closed
    fs.is_full = False
    assert await world.retain() == {"orders-0"}
    assert partition.log.log_start_offset == 4


@on_loop
async def test_a_log_that_cannot_be_read_holds_up_no_other() -> None:
    world = MaintainedWorld(["/a"], faulty())
    make_cold(world.old_topic("bad", 1), fail_to_pull)
    good = world.old_topic("good", 2)
    assert await world.retain() == {"good-0"}
    assert not good.is_closed


@on_loop
async def test_a_log_directory_that_fails_holds_up_no_other() -> None:
    fs = faulty()
    world = MaintainedWorld(["/a", "/b"], fs)
    bad, good = world.old_topic("bad", 1), world.old_topic("good", 2)
    assert bad.log.directory.startswith("/a")
    assert good.log.directory.startswith("/b")
    fs.fail_at(1, io_error)
    assert await world.retain() == {"good-0"}
    assert bad.is_closed
    assert not good.is_closed


@on_loop
async def test_a_topic_made_anew_while_its_old_log_is_pulled_in_is_left_alone() -> None:
    world = MaintainedWorld(["/a"], faulty())
    old = world.old_topic("orders", 1)

    def replace(position: int, length: int) -> None:
        world.loop.call_soon_threadsafe(make_anew)

    def make_anew() -> None:
        world.replicas.drop_topic("orders")
        world.logs.delete(old.topic_partition)
        world.old_topic("orders", 3)

    make_cold(old, replace)
    assert await world.retain() == set()
    assert world.replicas.find("orders", 0).log.log_start_offset == 0
    assert await world.retain() == {"orders-0"}
    anew = world.replicas.find("orders", 0)
    assert anew is not old
    assert anew.log.log_start_offset == 4


def make_cold(partition: Partition, pull: Callable[[int, int], None]) -> None:
    """The active segment's first page is not in memory; nobody remembers what it says."""
    active = partition.log.segments.active
    active.first_timestamp = UNKNOWN
    file: Any = active.records.file
    file.peek = lambda length, position: None
    file.pull = pull


def fail_to_pull(position: int, length: int) -> None:
    raise io_error()


@on_loop
async def test_retention_runs_at_once_when_room_gets_short_and_often_while_it_is() -> None:
    fs = faulty()
    world = MaintainedWorld(["/a"], fs)
    world.logs.floor_bytes = 1000
    world.maintenance.start()
    world.maintenance._on_tick()
    assert "retention" not in world.spawned
    fs.free = 999
    world.maintenance._on_tick()
    assert world.spawned.count("retention") == 1
    for second in range(1, 31):
        world.scheduler.now_ms += 1000
        world.maintenance._on_tick()
        assert world.spawned.count("retention") == 1 + second // 10
    world.maintenance.stop()


@on_loop
async def test_a_rehearsal_tells_what_would_go_and_changes_nothing() -> None:
    world = MaintainedWorld(["/a"], faulty())
    partition = world.old_topic("orders", 1)
    world.old_topic("other", 2)
    retention = world.maintenance.retention
    start = partition.log.log_start_offset
    told = await retention.rehearse({"orders"})
    assert [(each.topic, each.reason.value, each.segments) for each in told] == [
        ("orders", "time", 4)
    ]
    assert told[0].log_start_offset == partition.log.log_end_offset
    assert (partition.log.log_start_offset, retention.last_run_ms) == (start, 0)
    assert await retention.run({"orders"}) == told
    assert retention.deleted_segments == 4
    assert retention.last_run_ms == 0, "a run over one topic says nothing of the others"
    assert {each.topic for each in await retention.run(None)} == {"other"}
    assert retention.last_run_by == "request"


@on_loop
async def test_retention_steps_in_for_a_scheduler_that_is_silent() -> None:
    world = MaintainedWorld(["/a"], faulty())
    world.broker.config.retention_scheduled = True
    maintenance = world.maintenance
    maintenance.start()

    def runs_within(seconds: int) -> int:
        before = world.spawned.count("retention")
        for _ in range(seconds):
            world.scheduler.now_ms += 1000
            maintenance._on_tick()
        return world.spawned.count("retention") - before

    assert runs_within(119) == 0
    assert not maintenance.retention.is_scheduler_silent
    assert runs_within(1) == 1
    assert maintenance.retention.is_scheduler_silent
    assert runs_within(120) == 2, "and goes on, every minute"
    await maintenance.retention.run({"orders"})
    assert maintenance.retention.is_scheduler_silent, "one topic is not all"
    await maintenance.retention.run(None)
    assert not maintenance.retention.is_scheduler_silent
    assert runs_within(119) == 0
    maintenance.stop()


@on_loop
async def test_what_went_unasked_is_told_to_whoever_asks_later() -> None:
    world = MaintainedWorld(["/a"], faulty())
    world.old_topic("orders", 1)
    retention = world.maintenance.retention
    await retention._run_unasked("timer")
    await retention._run_unasked("timer")
    (run,) = retention.unasked
    assert (run["number"], run["by"], run["segments"]) == (1, "timer", 4)
    assert [(each["topic"], each["reason"]) for each in run["results"]] == [("orders", "time")]
    await retention.run(None)
    assert len(retention.unasked) == 1, "what was asked for is told to whoever asked"
    assert retention.unasked.maxlen == 60


@on_loop
async def test_a_tail_that_cannot_be_cut_takes_its_directory_offline_and_not_the_timer() -> None:
    fs = faulty()
    world = MaintainedWorld(["/a", "/b"], fs)
    bad, good = world.host("bad", topic_id=uuid.UUID(int=1)), world.host("good")
    for partition in (bad, good):
        world.append(partition)
    world.scheduler.now_ms += 20_000
    world.maintenance.start()
    world.maintenance._on_tick()  # both were appended to in this window
    file: Any = bad.log.segments.active.records.file

    def fail() -> None:
        raise io_error()

    file.cool = fail
    for _ in range(3):
        world.scheduler.now_ms += 20_000
        world.maintenance._on_tick()
    assert bad.is_closed
    assert not good.is_closed
    assert not world.logs._awake
    world.maintenance.stop()


@on_loop
async def test_a_directory_that_is_gone_is_offline_at_the_next_tick_alone() -> None:
    fs = faulty()
    world = MaintainedWorld(["/a", "/b"], fs)
    bad, good = world.host("bad", topic_id=uuid.UUID(int=1)), world.host("good")
    lost = world.logs._where[bad.topic_partition].path
    assert world.logs._where[good.topic_partition].path != lost
    world.logs.floor_bytes = 1
    measure = fs.free_bytes

    def free_bytes(path: str) -> int:
        if path == lost:
            raise io_error()
        return measure(path)

    fs.free_bytes = free_bytes  # type: ignore[method-assign]
    world.maintenance.start()
    world.maintenance._on_tick()
    assert bad.is_closed
    assert not good.is_closed
    world.maintenance._on_tick()
    world.maintenance.stop()


@on_loop
async def test_a_fault_is_reported_once_and_so_many_of_them(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.server.maintenance.MAX_REPORTED", 3)
    world = MaintainedWorld(["/a"], faulty())
    for number in (1, 1, 2, 3, 4, 4):
        world.maintenance.report_once(f"fault {number}")
    assert [m for m in caplog.messages if m.startswith("fault")] == [
        "fault 1",
        "fault 2",
        "fault 3",
    ]
