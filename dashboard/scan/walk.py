"""Walks through a topic's records in the order of time, forward or backward.

Each partition is read in windows, and the record with the next timestamp among all partitions is
taken first (within a partition the order of offsets is never changed). So the order depends on the
log alone, and a position is a map from partition to offset: the log does not change, so a walk that
goes on from there gives exactly what would have come next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, Protocol

from broker.clock import Clock
from broker.model.ids import TopicPartition
from dashboard.cluster import PartitionEnd, Record
from dashboard.scan.requests import Bounds, Way

MAX_WINDOW: Final = 4_096
MAX_WINDOW_BYTES: Final = 32 * 1024 * 1024
"""Of all partitions together, going by the mean size so far."""
MAX_HELD_BYTES: Final = 2 * MAX_WINDOW_BYTES
"""More than this in one window, and it is read again in smaller ones."""
POLL_S: Final = 0.2
FLOOD: Final = 200
"""A partition that brings so much beyond its window is read no further for now."""


class Reader(Protocol):
    def move(self, starts: Mapping[TopicPartition, int]) -> None: ...
    def read(self, timeout_s: float) -> list[Record | PartitionEnd]: ...
    def stop_reading(self, partition: TopicPartition) -> None: ...


class BoundReached(Exception):
    """The scan may not read more; ``args[0]`` names the bound."""


class _TooMuch(Exception):
    """A window turned out too large to be held."""


@dataclass(slots=True)
class _Side:
    """One partition's part of a walk: ``low`` to ``high`` (exclusive) is not read yet."""

    key: TopicPartition
    low: int
    high: int
    window: int
    origin: int
    position: int
    """Where a cursor stands: moves with the records that were taken, not with those read."""
    buffer: deque[Record] = field(default_factory=deque)

    @property
    def is_read(self) -> bool:
        return self.low >= self.high


class Walk:
    """Yields records; ``positions`` is the cursor behind the last of them."""

    def __init__(
        self,
        topic: str,
        spans: Mapping[int, tuple[int, int]],
        way: Way,
        bounds: Bounds,
        clock: Clock,
        *,
        first_window: int,
    ) -> None:
        """``spans``: from offset, to offset (exclusive) of each partition."""
        self._is_backward = way == "backward"
        self._sides = {}
        for partition, (low, high) in spans.items():
            high = max(low, high)
            origin = high if self._is_backward else low
            key = TopicPartition(topic, partition)
            self._sides[partition] = _Side(key, low, high, first_window, origin, origin)
        self._bounds = bounds
        self._clock = clock
        self._end_ms = clock.monotonic_ms() + bounds.seconds * 1000
        self.total = sum(side.high - side.low for side in self._sides.values())
        self.read_count = 0
        self.read_bytes = 0
        self.scanned_count = 0

    @property
    def positions(self) -> dict[int, int]:
        return {partition: side.position for partition, side in self._sides.items()}

    @property
    def passed(self) -> int:
        """Of ``total``, how many offsets the cursor has passed."""
        return sum(abs(side.position - side.origin) for side in self._sides.values())

    def records(self, reader: Reader) -> Iterator[Record | None]:
        """None now and then while nothing can be told yet, so that the caller may say so.

        Raises BoundReached.
        """
        hungry = [side for side in self._sides.values() if not side.is_read]
        heads: list[tuple[int, int]] = []  # (time, partition) of each side's next record, a heap
        while hungry or heads:
            if hungry:
                if self.read_bytes >= self._bounds.size_bytes and self.scanned_count:
                    raise BoundReached("bytes")
                yield from self._load(reader)
                for side in hungry:
                    if side.buffer:
                        heappush(heads, self._head(side))
                hungry = [side for side in hungry if not side.buffer and not side.is_read]
                continue
            side = self._sides[abs(heappop(heads)[1])]
            record = side.buffer.popleft()
            if side.buffer:
                heappush(heads, self._head(side))
            elif not side.is_read:
                hungry.append(side)
            if side.buffer or not side.is_read:
                side.position = record.offset if self._is_backward else record.offset + 1
            else:
                side.position = self._edge(side)
            self.scanned_count += 1
            yield record
            if self.scanned_count >= self._bounds.records:
                raise BoundReached("records")

    def _head(self, side: _Side) -> tuple[int, int]:
        time_ms = side.buffer[0].timestamp_ms
        return (
            (-time_ms, -side.key.partition) if self._is_backward else (time_ms, side.key.partition)
        )

    def _edge(self, side: _Side) -> int:
        """Where what is read of a side ends."""
        return side.high if self._is_backward else side.low

    def _load(self, reader: Reader) -> Iterator[None]:
        """Read the next windows of all that have few records left, into their buffers."""
        wanted = [
            side
            for side in self._sides.values()
            if not side.is_read and len(side.buffer) * 4 < side.window
        ]
        while True:
            windows = {side.key: self._window(side) for side in wanted}
            found: dict[TopicPartition, list[Record]] = {side.key: [] for side in wanted}
            try:
                yield from self._read(reader, windows, found)
                break
            except _TooMuch:
                for side in wanted:
                    side.window = max(1, side.window // 8)
        for side in wanted:
            start, end = windows[side.key]
            records = found[side.key]
            if self._is_backward:
                records.reverse()
                side.high = start
            else:
                side.low = end
            side.buffer.extend(records)
            side.window = min(MAX_WINDOW, side.window * 2)
            if not side.buffer:
                # Nothing but holes: the cursor passes them, so that going on gets further.
                side.position = self._edge(side)

    def _window(self, side: _Side) -> tuple[int, int]:
        count = side.window
        if self.read_count:
            mean = self.read_bytes / self.read_count + 1
            count = max(1, min(count, int(MAX_WINDOW_BYTES / mean / len(self._sides))))
        if self._is_backward:
            return max(side.low, side.high - count), side.high
        return side.low, min(side.high, side.low + count)

    def _read(
        self,
        reader: Reader,
        windows: Mapping[TopicPartition, tuple[int, int]],
        found: dict[TopicPartition, list[Record]],
    ) -> Iterator[None]:
        pending = set(windows)
        beyond = dict.fromkeys(windows, 0)
        held = self.read_bytes
        can_shrink = any(end - start > 1 for start, end in windows.values())
        reader.move({key: start for key, (start, _) in windows.items()})
        while pending:
            if self._clock.monotonic_ms() >= self._end_ms:
                raise BoundReached("seconds")
            for item in reader.read(POLL_S):
                key = TopicPartition(item.topic, item.partition)
                if isinstance(item, PartitionEnd):
                    pending.discard(key)
                    continue
                start, end = windows.get(key, (0, 0))
                if item.offset >= end - 1:
                    pending.discard(key)
                if start <= item.offset < end:
                    found[key].append(item)
                    self._count(item)
                elif key in beyond:
                    beyond[key] += 1
                    if beyond[key] == FLOOD and pending:
                        reader.stop_reading(key)
            if can_shrink and self.read_bytes - held > MAX_HELD_BYTES:
                raise _TooMuch
            yield None

    def _count(self, record: Record) -> None:
        self.read_count += 1
        self.read_bytes += len(record.key or b"") + len(record.value or b"")
        for name, value in record.headers:
            self.read_bytes += len(name) + len(value or b"")
