"""Walks over logs in memory: order, cursors, bounds."""

import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.model.ids import TopicPartition
from dashboard.cluster import PartitionEnd, Record
from dashboard.scan.requests import Bounds, Way
from dashboard.scan.walk import MAX_HELD_BYTES, BoundReached, Walk

BOUNDS = Bounds()
Log = dict[int, list[Record]]


class ManualClock:
    def __init__(self) -> None:
        self.now_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class LogReader:
    """Reads as the library does: some records of each partition at a time, beyond any window."""

    def __init__(self, log: Log, batch: int = 3) -> None:
        self._log = log
        self._batch = batch
        self._at: dict[int, int] = {}
        self.moves = 0

    def move(self, starts: Mapping[TopicPartition, int]) -> None:
        self.moves += 1
        self._at = {key.partition: offset for key, offset in starts.items()}

    def read(self, timeout_s: float) -> list[Record | PartitionEnd]:
        found: list[Record | PartitionEnd] = []
        for partition, at in list(self._at.items()):
            left = [record for record in self._log[partition] if record.offset >= at]
            found += left[: self._batch]
            if len(left) <= self._batch:
                found.append(PartitionEnd("t", partition))
                del self._at[partition]
            else:
                self._at[partition] = left[self._batch - 1].offset + 1
        return found

    def stop_reading(self, partition: TopicPartition) -> None:
        self._at.pop(partition.partition, None)


def make_log(times: list[list[int]], holes: random.Random | None = None) -> Log:
    log: Log = {}
    for partition, stamps in enumerate(times):
        offset = 0
        log[partition] = []
        for stamp in stamps:
            offset += holes.choice((0, 0, 1, 40)) if holes else 0
            log[partition].append(Record("t", partition, offset, 1, stamp, None, b"x", []))
            offset += 1
    return log


def spans_of(log: Log) -> dict[int, tuple[int, int]]:
    # Marks of transactions may follow the last record.
    return {
        partition: (0, records[-1].offset + 3 if records else 0)
        for partition, records in log.items()
    }


def walk_of(log: Log, way: Way, *, bounds: Bounds = BOUNDS, spans: object = None) -> Walk:
    found = spans_of(log) if spans is None else spans
    return Walk("t", found, way, bounds, ManualClock(), first_window=2)  # type: ignore[arg-type]


def places(records: list[Record]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


def take(walk: Walk, log: Log, count: int | None = None) -> list[Record]:
    records = []
    if count == 0:
        return []
    for record in walk.records(LogReader(log)):
        if record is not None:
            records.append(record)
            if len(records) == count:
                break
    return records


LOGS = st.lists(st.lists(st.integers(0, 50), max_size=30), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(LOGS, st.integers(0, 100), st.integers(0, 2**32))
def test_pages_go_back_and_forth_over_every_record_once(
    times: list[list[int]], count: int, seed: int
) -> None:
    """Cut anywhere, a walk that goes on from its cursor gives what a walk without a cut gives; and
    the way back over the same cursor gives exactly the first page."""
    log = make_log(times, random.Random(seed))
    whole = take(walk_of(log, "backward"), log)
    assert sorted(places(whole)) == sorted(
        (record.partition, record.offset) for records in log.values() for record in records
    )

    first = walk_of(log, "backward")
    page = take(first, log, count)
    cursor = first.positions if count else {p: span[1] for p, span in spans_of(log).items()}
    rest = walk_of(log, "backward", spans={p: (0, at) for p, at in cursor.items()})

    assert places(page + take(rest, log)) == places(whole)
    again = walk_of(
        log, "forward", spans={p: (at, spans_of(log)[p][1]) for p, at in cursor.items()}
    )
    assert sorted(places(take(again, log))) == sorted(places(page))


def test_the_order_is_that_of_time_among_partitions_and_of_offsets_within() -> None:
    log = make_log([[10, 30, 20], [15, 25]])

    forward = take(walk_of(log, "forward"), log)

    assert [(r.partition, r.timestamp_ms) for r in forward] == [
        (0, 10), (1, 15), (1, 25), (0, 30), (0, 20),
    ]  # fmt: skip


def test_a_bound_leaves_a_cursor_from_which_it_goes_on() -> None:
    log = make_log([list(range(40)), list(range(40))])
    walk = walk_of(log, "forward", bounds=Bounds(records=30))
    seen = []
    with pytest.raises(BoundReached, match="records"):
        for record in walk.records(LogReader(log)):
            if record is not None:
                seen.append(record)
    rest = walk_of(
        log, "forward", spans={p: (at, spans_of(log)[p][1]) for p, at in walk.positions.items()}
    )

    assert len(seen) == 30
    assert places(seen + take(rest, log)) == places(take(walk_of(log, "forward"), log))


def test_an_empty_range_asks_nobody() -> None:
    reader = LogReader({0: []})

    assert list(walk_of({0: []}, "backward").records(reader)) == []
    assert reader.moves == 0


def test_time_is_up_also_while_nothing_comes() -> None:
    class Silent(LogReader):
        def read(self, timeout_s: float) -> list[Record | PartitionEnd]:
            clock.now_ms += 1_000
            return []

    clock = ManualClock()
    walk = Walk("t", {0: (0, 5)}, "forward", Bounds(seconds=3), clock, first_window=5)

    with pytest.raises(BoundReached, match="seconds"):
        list(walk.records(Silent({0: []})))


def test_large_records_are_read_in_smaller_windows() -> None:
    log = make_log([[1] * 20])
    large = b"x" * (MAX_HELD_BYTES // 4)
    for record in log[0]:
        record.value = large
    walk = Walk(
        "t", spans_of(log), "backward", Bounds(size_bytes=10**12), ManualClock(), first_window=20
    )
    reader = LogReader(log, batch=1)

    assert len([record for record in walk.records(reader) if record is not None]) == 20
    assert walk.read_count < 40
