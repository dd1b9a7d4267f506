"""Compaction against a plain reference, and against crashes at every kind of instant."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from broker.model.errors import CorruptLogError, DiskFullError
from broker.records.header import walk_headers
from broker.storage.cleaning.plan import CleanerLimits
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.storage.segment_swap import SegmentSwap, SwapRefused
from tests.broker.storage.build import FixedClock, open_manager, retain
from tests.broker.storage.check import check_indexes, check_producers
from tests.broker.storage.cleaning import (
    TP,
    Story,
    batches_of,
    clean_all,
    clean_once,
    committed,
    compacted,
    latest,
    look_at,
)
from tests.support.faulty_filesystem import Crash, FaultyFileSystem, disk_full

HOUR = 3_600_000
#: Room for very few keys, so that rounds end amid batches.
CRAMPED = CleanerLimits(24 * 8, 0.9, 1 << 16, 1e18)


def check(log: Log, story: Story) -> None:
    assert latest(committed(log, story.open_from)) == story.expected()
    check_indexes(log)
    check_producers(log)


@pytest.mark.parametrize("seed", range(25))
def test_exactly_the_latest_of_each_key_stays(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    topic = compacted()
    manager = open_manager([tmp_path], topic)
    story = Story(manager.get_or_create(TP, None, topic), rng)
    log = story.log
    limits = rng.choice((CRAMPED, CleanerLimits(1 << 20, 0.9, 1 << 16, 1e18)))
    for _ in range(4):
        story.write(rng.randrange(10, 80))
        if rng.random() < 0.7:
            story.end_all()
        story.seal()
        check(log, story)
        clean_all(manager, log, story.now_ms, limits)
        check(log, story)
        story.now_ms += rng.choice((0, 500, 2000))
    story.end_all()
    story.append(-1)
    story.seal()
    clean_all(manager, log, story.now_ms, limits)
    keys = [record.key for record in committed(log)]
    assert len(keys) == len(set(keys)), "each key once, when nothing is dirty"
    check(log, story)


def test_tombstones_and_markers_go_after_their_time(tmp_path: Path) -> None:
    topic = compacted(delete_retention_ms=1000)
    manager = open_manager([tmp_path], topic)
    story = Story(manager.get_or_create(TP, None, topic), random.Random(3), keys=3)
    log = story.log
    story.write(120)
    story.end_all()

    def clean_later(later_ms: int) -> None:
        story.now_ms += later_ms
        story.append(-1)
        story.seal()
        clean_all(manager, log, story.now_ms)
        check(log, story)

    def horizons() -> set[int]:
        headers = [header for batch in batches_of(log) for _, header in walk_headers(batch)]
        return {header.base_timestamp for header in headers if header.has_delete_horizon}

    clean_later(0)  # the batches of transactions go here, their markers lose their reason
    clean_later(0)
    before = horizons()
    assert before
    assert max(before) == story.now_ms + 1000
    clean_later(500)
    assert before <= horizons(), "a horizon that is set stays"
    clean_later(2000)
    clean_later(2000)
    assert not before & horizons()
    producers = set(log.producers.entries)
    controls = [
        header.producer_id
        for batch in batches_of(log)
        for _, header in walk_headers(batch)
        if header.is_control and header.record_count
    ]
    assert len(controls) <= len(producers), "markers of transactions that left nothing are gone"


def test_positions_reach_the_end_whatever_was_removed(tmp_path: Path) -> None:
    """C042, C049: the last batch stays, empty if it must, so that its offset stays known."""
    topic = compacted(delete_retention_ms=0)
    manager = open_manager([tmp_path], topic)
    story = Story(manager.get_or_create(TP, None, topic), random.Random(5), keys=1)
    for _ in range(5):
        story.append(100)
        story.end(100)
        story.seal()
        story.now_ms += 10
        clean_all(manager, story.log, story.now_ms)
        ((_, header),) = walk_headers(batches_of(story.log)[-1])
        assert header.next_offset == story.log.log_end_offset


def test_holes_and_a_small_table_cost_one_pass(tmp_path: Path) -> None:
    """C043: the dirty offset gets past the holes, and later passes find nothing to do."""
    topic = compacted()
    manager = open_manager([tmp_path], topic)
    story = Story(manager.get_or_create(TP, None, topic), random.Random(6), keys=500)
    log = story.log
    story.append(-1)
    log.truncate_fully_and_start_at(5000)
    story.last.clear()
    story.write(60)
    story.end_all()
    story.seal()
    rounds = clean_all(manager, log, story.now_ms, CRAMPED)
    assert rounds > 2
    assert not look_at(log, story.now_ms).dirty_bytes
    assert log.cleaned_offset == log.segments.active.base_offset
    check(log, story)


def test_a_young_segment_waits_and_an_old_one_is_due(tmp_path: Path) -> None:
    topic = compacted(min_compaction_lag_ms=1000, max_compaction_lag_ms=HOUR)
    manager = open_manager([tmp_path], topic)
    story = Story(manager.get_or_create(TP, None, topic), random.Random(7))
    story.append(-1)
    story.seal()
    assert not look_at(story.log, story.now_ms + 900).dirty_bytes
    what = look_at(story.log, story.now_ms + 1100)
    assert what.dirty_bytes
    assert what.is_due(story.log), "all of it is dirty"
    clean_all(manager, story.log, story.now_ms + 1100)
    story.keys = 1000
    assert look_at(story.log, story.now_ms).dirty_ratio == 0
    for _ in range(3):
        story.append(-1)
        story.seal()
    late = look_at(story.log, story.now_ms + 2 * HOUR)
    assert late.delay_ms > 0
    assert late.is_due(story.log)


def test_readers_of_an_old_segment_go_on_reading_it(tmp_path: Path) -> None:
    topic = compacted(file_delete_delay_ms=1000)
    clock = FixedClock()
    manager = open_manager([tmp_path], topic, clock=clock)
    story = Story(manager.get_or_create(TP, None, topic), random.Random(8))
    log = story.log
    story.write(40)
    story.end_all()
    story.seal()
    found = log.read(0, 1 << 20, log.log_end_offset, True)
    region = found.region  # type: ignore[union-attr]
    assert region is not None
    file = region.file
    before = file.pread(region.length, region.position)  # type: ignore[attr-defined]
    clean_all(manager, log, story.now_ms)
    assert file.generation == region.generation
    assert file.pread(region.length, region.position) == before  # type: ignore[attr-defined]
    for work in manager.tick(clock.monotonic):
        work.run()
    assert list((tmp_path / str(TP)).glob("*.deleted"))
    clock.monotonic += 1001
    for work in manager.tick(clock.monotonic):
        work.run()
    assert not list((tmp_path / str(TP)).glob("*.deleted"))


def test_a_swap_is_refused_when_retention_took_a_segment_meanwhile(tmp_path: Path) -> None:
    topic = compacted()
    manager = open_manager([tmp_path], topic)
    story = Story(manager.get_or_create(TP, None, topic), random.Random(9))
    log = story.log
    story.write(80)
    story.end_all()
    story.seal()
    end = log.segments[1].base_offset
    real = Log.sealed_segment

    def delete_first(self: Log, *arguments: int) -> object:
        log.set_log_start_offset(end)
        retain(manager, log, story.now_ms)
        return real(self, *arguments)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SwapRefused):
        patch.setattr(Log, "sealed_segment", delete_first)
        clean_once(manager, log, story.now_ms)
    assert not list((tmp_path / str(TP)).glob("*.cleaned"))
    assert not list((tmp_path / str(TP)).glob("*.swap"))
    clean_all(manager, log, story.now_ms)
    survivors = {key: told for key, told in story.expected().items() if told.offset >= end}
    assert {k: v for k, v in latest(committed(log)).items() if v.offset >= end} == survivors


@pytest.mark.parametrize("steps_before", range(0, 14))
def test_a_truncation_amid_a_swap_takes_it_back_or_ends_it(
    tmp_path: Path, steps_before: int
) -> None:
    topic = compacted()
    manager = open_manager([tmp_path], topic)
    story = Story(manager.get_or_create(TP, None, topic), random.Random(10))
    log = story.log
    story.write(60)
    story.end_all()
    story.seal()
    cut = log.segments[2].base_offset + 1
    count = 0
    original = SegmentSwap.steps

    def steps(self: SegmentSwap) -> object:
        nonlocal count
        for step in original(self):
            yield step
            if count == steps_before:
                log.truncate_to(cut)
            count += 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SegmentSwap, "steps", steps)
        with contextlib.suppress(SwapRefused, FileNotFoundError, CorruptLogError):
            clean_once(manager, log, story.now_ms)
    assert count > steps_before
    assert log.log_end_offset == cut
    assert log.cleaned_offset <= cut
    names = {path.name for path in (tmp_path / str(TP)).iterdir()}
    assert not {name for name in names if name.endswith(".swap")}
    bases = [header.base_offset for b in batches_of(log) for _, header in walk_headers(b)]
    assert bases == sorted(set(bases))
    assert all(base < cut for base in bases)


# Crashes -------------------------------------------------------------------------------------

CRASHES = 600
GROUPS = 12


def open_faulty(fs: FaultyFileSystem) -> LogManager:
    return open_manager(["/data"], compacted(), fs=fs)


def crash_once(seed: int) -> None:
    rng = random.Random(seed)
    fs = FaultyFileSystem(rng)
    manager = open_faulty(fs)
    story = Story(manager.get_or_create(TP, None, compacted()), rng)
    story.write(rng.randrange(20, 90))
    story.end_all()
    story.seal()
    if rng.random() < 0.5:
        clean_all(manager, story.log, story.now_ms)
        story.now_ms += 2000
        story.write(30)
        story.end_all()
        story.seal()
    end = story.log.log_end_offset
    fs.fail_at(rng.randrange(1, 160))
    with contextlib.suppress(Crash):
        clean_all(manager, story.log, story.now_ms)
    while True:
        fs = fs.after_power_loss() if rng.random() < 0.6 else fs.after_kill()
        if rng.random() < 0.5:
            fs.fail_at(rng.randrange(1, 60))  # and once more, while it starts
        try:
            manager = open_faulty(fs)
            fs.fail_at(-1)
            break
        except Crash:
            pass
    assert not manager.offline_partitions
    log = story.log = manager.logs[TP]
    assert log.log_end_offset == end
    log.set_high_watermark(end)
    check(log, story)
    story.now_ms += rng.choice((0, 5000))
    story.append(-1)
    story.seal()
    clean_all(manager, log, story.now_ms)
    check(log, story)
    manager.close()
    manager = open_faulty(fs)
    story.log = manager.logs[TP]
    check(story.log, story)


@pytest.mark.parametrize("group", range(GROUPS))
def test_a_crash_amid_cleaning_loses_nothing_and_brings_nothing_back(group: int) -> None:
    for seed in range(group, CRASHES, GROUPS):
        try:
            crash_once(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_full_disk_ends_a_round_and_leaves_the_log_alone() -> None:
    fs = FaultyFileSystem(random.Random(1))
    manager = open_faulty(fs)
    story = Story(manager.get_or_create(TP, None, compacted()), random.Random(1))
    story.write(60)
    story.end_all()
    story.seal()
    for calls in (1, 40):
        fs.full = calls == 1
        if calls > 1:
            fs.fail_at(calls, disk_full)
        with pytest.raises(DiskFullError):
            clean_once(manager, story.log, story.now_ms)
        fs.full = False
        left = [entry.name for entry in fs.list_directory(story.log.directory)]
        assert not [name for name in left if name.endswith((".cleaned", ".swap"))]
        check(story.log, story)
    clean_all(manager, story.log, story.now_ms)
    check(story.log, story)
