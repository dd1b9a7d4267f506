"""Tells when a record was appended, from the ends of its log as they were seen over time. Pure.

A partition's track holds a few (offset, from when, until when) marks: the log was seen to end at
``offset`` from the first time to the last. A record's time lies between the last sight of an end
at or below its offset and the first sight of an end above, and is interpolated between the two. So
it is as exact as ticks are close (10 s while somebody looks, else 60 s), coarser for what was long
ago: a full track forgets every other mark of its older half. An anchor, put in by whoever read a
record, is exact.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from enum import StrEnum
from typing import Final, NamedTuple

MAX_MARKS: Final = 48
MAX_ANCHORS: Final = 4
_FIELDS: Final = 3


class Exactness(StrEnum):
    """How far the age of a record can be trusted; the words stand beside it."""

    EXACT = "exact"
    """The timestamp of the record itself."""
    ABOUT = "about"
    """Between two sights of the log's end."""
    AT_LEAST = "at least"
    """It was there before we looked first."""


class AppendTime(NamedTuple):
    at_ms: int
    exactness: Exactness


class EndTrack:
    """The ends of one partition's log, oldest first; at most about a kilobyte."""

    __slots__ = ("_anchors", "_marks")

    def __init__(self) -> None:
        self._marks = array("q")
        self._anchors: list[tuple[int, int]] | None = None

    def __len__(self) -> int:
        return len(self._marks) // _FIELDS

    @property
    def first_seen_ms(self) -> int | None:
        return self._marks[1] if self._marks else None

    def see(self, log_end_offset: int, now_ms: int) -> None:
        """An end that went back (a topic made anew, a log that was cut) begins a new track."""
        marks = self._marks
        if marks and (log_end_offset < marks[-3] or now_ms < marks[-1]):
            del marks[:]
            self._anchors = None
        if marks and marks[-3] == log_end_offset:
            marks[-1] = now_ms
            return
        marks.extend((log_end_offset, now_ms, now_ms))
        if len(self) > MAX_MARKS:
            self._thin()

    def anchor(self, offset: int, at_ms: int) -> None:
        """The record at this offset was read; its time is known."""
        anchors = [one for one in self._anchors or () if one[0] != offset]
        self._anchors = [*anchors, (offset, at_ms)][-MAX_ANCHORS:]

    def time_of(self, offset: int) -> AppendTime | None:
        """When the record at ``offset`` was appended. None: the log does not reach there."""
        for known, at_ms in self._anchors or ():
            if known == offset:
                return AppendTime(at_ms, Exactness.EXACT)
        marks = self._marks
        if not marks or offset >= marks[-3]:
            return None
        ends = marks[::_FIELDS]
        after = bisect_right(ends, offset)
        if after == 0:
            return self._before_first(offset)
        low, left_ms = marks[_FIELDS * (after - 1)], marks[_FIELDS * (after - 1) + 2]
        high, right_ms = marks[_FIELDS * after], marks[_FIELDS * after + 1]
        passed = (offset - low + 1) / (high - low)
        return AppendTime(left_ms + int((right_ms - left_ms) * passed), Exactness.ABOUT)

    def _before_first(self, offset: int) -> AppendTime:
        """Older than the track: an anchor further back may still tell."""
        first_end, first_ms = self._marks[0], self._marks[1]
        below = [one for one in self._anchors or () if one[0] < offset]
        if not below:
            return AppendTime(first_ms, Exactness.AT_LEAST)
        low, low_ms = max(below)
        passed = (offset - low) / max(1, first_end - low)
        return AppendTime(low_ms + int((first_ms - low_ms) * passed), Exactness.ABOUT)

    def _thin(self) -> None:
        """Every other mark of the older half goes; the first stays, it says since when we look."""
        count = len(self)
        kept = array("q")
        for place in range(count):
            if place == 0 or place >= count // 2 or place % 2 == 0:
                kept.extend(self._marks[_FIELDS * place : _FIELDS * (place + 1)])
        self._marks = kept
