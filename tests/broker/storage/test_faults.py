"""Any call may fail: a full disk harms nothing, anything else is told as a failed directory."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from broker.model.errors import DiskFullError, StorageError
from broker.records.header import peek_header
from broker.storage.log_manager import WINDOW_MS, LogManager
from tests.broker.storage.build import (
    NOW_MS,
    TP,
    FixedClock,
    append,
    batch,
    config,
    fill,
    flush,
    open_manager,
    read_all,
)
from tests.broker.storage.check import check_indexes, check_producers
from tests.support.faulty_filesystem import FaultyFileSystem, disk_full, io_error

CONFIG = config(segment_bytes=900, index_interval_bytes=150, retention_bytes=3000, retention_ms=-1)
ROOT = "/data"


class Story:
    """A fixed life of a partition, in steps that may fail alone."""

    def __init__(self) -> None:
        self.fs = FaultyFileSystem(random.Random(0))
        self.clock = FixedClock()
        self.manager = self.open()
        self.log = self.manager.get_or_create(TP, None, CONFIG)
        self.stored: list[bytes] = []
        self.is_in_thread = False

    def open(self) -> LogManager:
        return open_manager([ROOT], CONFIG, fs=self.fs, clock=self.clock)

    def append(self) -> None:
        sequence = len(self.stored)
        data = batch(producer_id=4, producer_epoch=0, base_sequence=sequence)
        before = (self.log.log_end_offset, self.log.size_in_bytes)
        try:
            info = self.log.append_as_leader(data, peek_header(data), 0, NOW_MS)
        except DiskFullError:
            assert self.log.log_end_offset == before[0]
            raise
        assert info.base_offset == sequence
        self.stored.append(bytes(data))
        if info.rolled is not None:
            self.run_flush(info.rolled)

    def run(self, work: object) -> None:
        """Where the server would use a thread."""
        self.is_in_thread = True
        work.run()  # type: ignore[attr-defined]
        self.is_in_thread = False

    def run_flush(self, flush_needed: object) -> None:
        try:
            self.run(flush_needed)
        except (OSError, DiskFullError) as error:
            self.log.on_flushed(flush_needed, error)  # type: ignore[arg-type]
            raise
        self.log.on_flushed(flush_needed, None)  # type: ignore[arg-type]

    def flush(self) -> None:
        target = self.log.flush_target()
        if target is not None:
            self.run_flush(target)

    def checkpoint(self) -> None:
        for work in self.manager.checkpoint_work():
            self.run(work)

    def tick(self) -> None:
        self.clock.monotonic += WINDOW_MS
        for work in self.manager.tick(self.clock.monotonic):
            self.run(work)

    def retain(self) -> None:
        self.log.set_high_watermark(self.log.log_end_offset)
        for step in self.manager.condemn(self.log):
            if step.outcome is not None and step.outcome.flush is not None:
                self.run_flush(step.outcome.flush)
        for work in self.manager.log_start_work():
            self.run(work)
        for step in self.manager.delete_condemned(self.log):
            if step.wait is not None:
                step.wait()

    def steps(self) -> list[Callable[[], None]]:
        return (
            [self.append] * 12 + [self.flush, self.checkpoint] + [self.append] * 9
            + [self.tick, self.tick, self.retain, self.tick] + [self.append] * 5 + [self.flush]
        )  # fmt: skip

    def read_everything(self) -> list[int]:
        return [header.base_offset for header in read_all(self.log)]


def calls_of_a_story() -> int:
    story = Story()
    before = story.fs.calls
    for step in story.steps():
        step()
    return story.fs.calls - before


CALLS = calls_of_a_story()


@pytest.mark.parametrize("first", range(0, CALLS, 12))
def test_a_full_disk_at_any_call_refuses_that_step_and_no_other(first: int) -> None:
    for number in range(first, min(first + 12, CALLS)):
        story = Story()
        story.fs.fail_at(number + 1, disk_full)
        for step in story.steps():
            try:
                step()
            except DiskFullError:
                step()  # room again: the same step succeeds
        log = story.log
        assert log.log_end_offset == len(story.stored)
        assert story.read_everything() == list(range(log.log_start_offset, log.log_end_offset))
        log.trim()
        check_indexes(log)
        check_producers(log)
        story.manager.close()
        story.manager = story.open()
        story.log = story.manager.logs[TP]
        assert story.read_everything() == list(range(log.log_start_offset, log.log_end_offset))


@pytest.mark.parametrize("first", range(0, CALLS, 12))
def test_any_other_failure_is_told_as_the_directorys(first: int) -> None:
    for number in range(first, min(first + 12, CALLS)):
        story = Story()
        story.fs.fail_at(number + 1, io_error)
        with pytest.raises((StorageError, OSError)) as failure:
            for step in story.steps():
                step()
        # A plain OSError comes from work that ran in a thread, which says whose it was.
        if isinstance(failure.value, OSError):
            assert story.is_in_thread
        else:
            assert failure.value.log_dir == ROOT
            assert story.manager.on_storage_error(failure.value) == [TP]
            assert not story.manager.logs


def test_a_failed_sync_is_final() -> None:
    story = Story()
    story.append()
    target = story.log.flush_target()
    assert target is not None
    story.fs.fail_at(1, io_error)
    with pytest.raises(OSError):
        target.run()
    with pytest.raises(StorageError):
        story.log.on_flushed(target, io_error())
    assert story.log.flushed_offset == 0


def test_a_disk_that_stays_full_lets_readers_read_and_the_broker_stop_and_start() -> None:
    """C030: restart on a full disk comes up readable."""
    story = Story()
    fill(story.log, 12)
    flush(story.log)
    story.checkpoint()
    fill(story.log, 4)
    story.fs.full = True
    with pytest.raises(DiskFullError):
        fill(story.log, 1)
    assert story.read_everything() == list(range(16))
    story.manager.close()
    story.fs = story.fs.after_kill()
    story.fs.full = True
    story.manager = story.open()
    story.log = story.manager.logs[TP]
    assert story.read_everything() == list(range(16))
    with pytest.raises(DiskFullError):
        fill(story.log, 1)
    story.fs.full = False
    append(story.log, batch())
    story.manager.close()
    story.manager = story.open()
    story.log = story.manager.logs[TP]
    assert story.read_everything() == list(range(17))
    check_indexes(story.log)
