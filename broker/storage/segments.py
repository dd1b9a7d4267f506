"""The segments of one log, in order of their base offsets. Never empty once the log is open."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

from broker.storage.segment import Segment

_base_offset = attrgetter("base_offset")


class Segments:
    __slots__ = ("_segments", "sealed_bytes")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        #: Size of all but the last one.
        self.sealed_bytes = 0
        self.recount()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, slot: int) -> Segment:
        return self._segments[slot]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def size_in_bytes(self) -> int:
        return self.sealed_bytes + self._segments[-1].size

    def recount(self) -> None:
        self.sealed_bytes = sum(segment.size for segment in self._segments[:-1])

    def append(self, segment: Segment) -> None:
        if self._segments:
            self.sealed_bytes += self._segments[-1].size
        self._segments.append(segment)

    def slot_for(self, offset: int) -> int:
        """Slot of the segment that holds ``offset`` if any does; 0 for offsets before all."""
        last = self._segments[-1]
        if offset >= last.base_offset:
            return len(self._segments) - 1
        return max(bisect_right(self._segments, offset, key=_base_offset) - 1, 0)

    def end_of(self, slot: int, log_end_offset: int) -> int:
        """Offset behind everything that the segment at ``slot`` may hold."""
        if slot + 1 < len(self._segments):
            return self._segments[slot + 1].base_offset
        return log_end_offset

    def end_behind(self, segment: Segment, log_end_offset: int) -> int:
        """As ``end_of``, by the segment."""
        return self.end_of(self.slot_for(segment.base_offset), log_end_offset)

    def remove(self, doomed: list[Segment]) -> None:
        gone = set(doomed)
        self._segments = [segment for segment in self._segments if segment not in gone]
        self.recount()

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """``new`` take the place of ``old``, which are neighbours."""
        slot = self._segments.index(old[0])
        self._segments[slot : slot + len(old)] = new
        self.recount()

    def replace_all(self, segments: list[Segment]) -> None:
        self._segments = segments
        self.recount()
