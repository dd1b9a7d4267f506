"""Which segments go, and why; and what a log does about it."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from broker.storage.cold import ColdRead
from broker.storage.log import Log
from broker.storage.log_manager import MAX_TAKEN_AT_ONCE, LogManager
from broker.storage.retention import (
    RetentionReason,
    RetentionRules,
    SegmentFacts,
    roll_age_ms,
    segments_to_delete,
)
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
    retain,
)
from tests.support.faulty_filesystem import Crash, FaultyFileSystem

HOUR = 3_600_000
TIME, SIZE, START = RetentionReason.TIME, RetentionReason.SIZE, RetentionReason.LOG_START_OFFSET


def segments(*ages_ms: int, size: int = 100) -> list[SegmentFacts]:
    """Ten records each; the last one is active."""
    return [
        SegmentFacts(
            10 * number, 10 * number + 10, size, NOW_MS - age, NOW_MS - age,
            number == len(ages_ms) - 1,
        )
        for number, age in enumerate(ages_ms)
    ]  # fmt: skip


def verdict(
    facts: list[SegmentFacts],
    *,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    deletes: bool = True,
    start: int = 0,
    high_watermark: int = 1000,
) -> list[tuple[int, RetentionReason]]:
    rules = RetentionRules(retention_ms, retention_bytes, deletes)
    doomed = segments_to_delete(facts, rules, start, high_watermark, NOW_MS)
    return [(entry.segment.base_offset, entry.reason) for entry in doomed]


def test_segments_go_by_age_from_the_front() -> None:
    assert verdict(segments(30, 20, 10), retention_ms=15) == [(0, TIME), (10, TIME)]
    assert verdict(segments(10, 30, 10), retention_ms=15) == []
    assert verdict(segments(30, 20), retention_ms=15) == [(0, TIME), (10, TIME)]


def test_one_future_timestamp_does_not_hold_a_segment() -> None:
    old = SegmentFacts(0, 10, 100, NOW_MS + HOUR, NOW_MS - 50, False)
    assert verdict([old, *segments(0)], retention_ms=20) == [(0, TIME)]


def test_segments_without_timestamps_go_by_the_time_of_their_sealing() -> None:
    old = SegmentFacts(0, 10, 100, -1, NOW_MS - 50, False)
    assert verdict([old, *segments(0)], retention_ms=20) == [(0, TIME)]


def test_segments_go_while_the_rest_is_large_enough() -> None:
    assert verdict(segments(3, 2, 1), retention_bytes=150) == [(0, SIZE)]
    assert verdict(segments(3, 2, 1), retention_bytes=100) == [(0, SIZE), (10, SIZE)]
    assert verdict(segments(3, 2, 1), retention_bytes=300) == []
    assert verdict(segments(3, 2, 1), retention_bytes=0) == [(0, SIZE), (10, SIZE), (20, SIZE)]


def test_segments_below_the_log_start_go_whatever_the_policy() -> None:
    assert verdict(segments(3, 2, 1), start=20, deletes=False) == [(0, START), (10, START)]
    assert verdict(segments(3, 2, 1), start=19, deletes=False) == [(0, START)]
    assert verdict(segments(3, 2, 1), start=30, deletes=False) == [(0, START), (10, START)]


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    # C038: what a follower that is still in sync has not fetched yet.
    assert verdict(segments(30, 20, 10), retention_ms=1, high_watermark=19) == [(0, TIME)]


def test_an_empty_active_segment_stays() -> None:
    facts = [SegmentFacts(0, 0, 0, -1, NOW_MS, True)]
    assert verdict(facts, retention_ms=0, retention_bytes=0) == []


def test_segments_are_rolled_in_time_for_retention() -> None:
    def age(retention_ms: int) -> int:
        return roll_age_ms(168 * HOUR, RetentionRules(retention_ms, -1, True))

    assert age(10 * HOUR) == HOUR
    assert age(1000) == 60_000
    assert age(-1) == 168 * HOUR
    assert roll_age_ms(5, RetentionRules(1000, -1, True)) == 5
    assert roll_age_ms(99, RetentionRules(1000, -1, False)) == 99


def apply(manager: LogManager, log: Log, now_ms: int = NOW_MS) -> list[tuple[int, RetentionReason]]:
    taken = retain(manager, log, now_ms)
    return [(entry.segment.base_offset, entry.reason) for entry in taken]


def test_a_new_start_is_on_disk_before_it_is_told_and_files_go_later(tmp_path: Path) -> None:
    clock = FixedClock()
    topic = config(segment_bytes=500, retention_bytes=600, file_delete_delay_ms=1000)
    manager = open_manager([tmp_path], topic, clock=clock)
    log = manager.get_or_create(TP, None, topic)
    fill(log, 10)
    log.set_high_watermark(10)

    def files() -> list[str]:
        return sorted(path.name[15:] for path in (tmp_path / str(TP)).glob("*.log*"))

    assert [step.outcome is not None for step in manager.condemn(log)] == [True]
    assert log.log_start_offset == 0
    assert "00000.log" in files()
    for work in manager.log_start_work():
        work.run()
    assert "orders 0 6" in (tmp_path / "log-start-offset-checkpoint").read_text()
    assert log.log_start_offset == 0
    (step,) = manager.delete_condemned(log)
    assert step.outcome is not None
    assert [gone.segment.base_offset for gone in step.outcome.doomed] == [0, 2, 4]
    assert log.log_start_offset == 6
    assert "00000.log.deleted" in files()
    assert [header.base_offset for header in read_all(log)] == list(range(6, 10))
    assert manager.tick(clock.monotonic) == []
    clock.monotonic += 1000
    for work in manager.tick(clock.monotonic):
        work.run()
    assert not any("deleted" in name or name == "00000.log" for name in files())


def test_many_segments_are_taken_a_few_at_a_time(tmp_path: Path) -> None:
    topic = config(segment_bytes=200, retention_bytes=0)
    manager = open_manager([tmp_path], topic)
    log = manager.get_or_create(TP, None, topic)
    fill(log, MAX_TAKEN_AT_ONCE + 5)
    log.set_high_watermark(log.log_end_offset)
    list(manager.condemn(log))
    for work in manager.log_start_work():
        work.run()
    starts = []
    for step in manager.delete_condemned(log):
        assert step.outcome is not None
        starts.append(log.log_start_offset)
    assert starts == [MAX_TAKEN_AT_ONCE, MAX_TAKEN_AT_ONCE + 5]


def test_what_was_truncated_after_it_was_condemned_is_not_taken(tmp_path: Path) -> None:
    topic = config(segment_bytes=500, retention_bytes=600)
    manager = open_manager([tmp_path], topic)
    log = manager.get_or_create(TP, None, topic)
    fill(log, 10)
    log.set_high_watermark(10)
    list(manager.condemn(log))
    for work in manager.log_start_work():
        work.run()
    log.truncate_to(3)
    assert list(manager.delete_condemned(log)) == []
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    assert "orders 0 6" not in (tmp_path / "log-start-offset-checkpoint").read_text()


@pytest.mark.parametrize("seed", range(20))
def test_a_full_disk_is_relieved_though_no_checkpoint_finds_room(seed: int) -> None:
    """And a loss of power at any call of it leaves a log without a gap."""
    fs = FaultyFileSystem(random.Random(seed))
    topic = config(segment_bytes=500, retention_bytes=600)
    manager = open_manager(["/data"], topic, fs=fs)
    log = manager.get_or_create(TP, None, topic)
    fill(log, 20)
    flush(log)
    log.set_high_watermark(20)
    for work in manager.checkpoint_work():
        work.run()
    fs.full = True
    if seed:
        fs.fail_at(seed)
    with contextlib.suppress(Crash):
        assert len(retain(manager, log)) == 8
        assert log.log_start_offset == 16
    told = log.log_start_offset
    fs = fs.after_power_loss()
    manager = open_manager(["/data"], topic, fs=fs)
    log = manager.logs[TP]
    assert not manager.offline_partitions
    # The going of the very last one that was told of may not have reached the disk yet.
    assert told - 2 <= log.log_start_offset <= 16
    assert [header.base_offset for header in read_all(log)] == list(range(log.log_start_offset, 20))


def test_an_old_active_segment_is_rolled_and_deleted(tmp_path: Path) -> None:
    topic = config(retention_ms=10 * 60_000)
    manager = open_manager([tmp_path], topic)
    log = manager.get_or_create(TP, None, topic)
    append(log, batch(5, timestamp=NOW_MS - 50_000))
    log.set_high_watermark(5)
    assert log.roll_if_old(NOW_MS) is None
    rolled = log.roll_if_old(NOW_MS + 20_000)
    assert rolled is not None
    assert not isinstance(rolled, ColdRead)
    rolled.run()
    log.on_flushed(rolled, None)
    assert apply(manager, log, NOW_MS + 20_000) == []
    assert apply(manager, log, NOW_MS + 10 * 60_000) == [(0, TIME)]
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)


def test_a_first_record_from_the_future_does_not_keep_a_segment_active(tmp_path: Path) -> None:
    clock = FixedClock()
    topic = config(retention_ms=10 * 60_000)
    manager = open_manager([tmp_path], topic, clock=clock)
    log = manager.get_or_create(TP, None, topic)
    append(log, batch(5, timestamp=NOW_MS + 1000 * HOUR))
    log.set_high_watermark(5)
    assert log.roll_if_old(NOW_MS + 60_000) is None
    rolled = log.roll_if_old(NOW_MS + 60_001)
    assert rolled is not None
    assert not isinstance(rolled, ColdRead)
    rolled.run()
    log.on_flushed(rolled, None)
    assert apply(manager, log, NOW_MS + 60_001 + 10 * 60_000) == []
    assert apply(manager, log, NOW_MS + 60_002 + 10 * 60_000) == [(0, TIME)]


def test_a_compacted_log_is_rolled_after_its_largest_lag(tmp_path: Path) -> None:
    topic = config(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=5000)
    log = open_manager([tmp_path], topic).get_or_create(TP, None, topic)
    append(log, batch(timestamp=NOW_MS))
    assert log.roll_if_old(NOW_MS + 5000) is None
    assert log.roll_if_old(NOW_MS + 5001) is not None


def test_everything_expired_leaves_an_empty_log_at_its_end(tmp_path: Path) -> None:
    topic = config(retention_ms=1000)
    manager = open_manager([tmp_path], topic)
    log = manager.get_or_create(TP, None, topic)
    fill(log, 5)
    log.set_high_watermark(5)
    assert apply(manager, log, NOW_MS + 5000) == [(0, TIME)]
    assert (log.log_start_offset, log.log_end_offset, log.size_in_bytes) == (5, 5, 0)
    fill(log, 1)
    assert [header.base_offset for header in read_all(log)] == [5]


def test_retention_forgets_idle_producers(tmp_path: Path) -> None:
    clock = FixedClock()
    manager = open_manager([tmp_path], clock=clock, producer_id_expiration_ms=1000)
    log = manager.get_or_create(TP, None, config())
    append(log, batch(producer_id=1, producer_epoch=0, base_sequence=0))
    list(manager.condemn(log))
    assert list(log.producers.entries) == [1]
    clock.now_ms += 1000
    list(manager.condemn(log))
    assert not log.producers.entries
