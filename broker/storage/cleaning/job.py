"""What a cleaning child is told, and what it tells: plain values that travel as JSON lines.

Broker to child: a ``CleaningJob``; then ``{"go": true}`` or ``{"go": false}`` after each group. Child
to broker: ``group`` (segments are written aside and synced: put them in place), at last ``done`` or
``failed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


class SegmentFile(NamedTuple):
    """A sealed segment that may be cleaned."""

    base_offset: int
    size: int
    #: When it was sealed: the segment that takes its place is as old.
    changed_ms: int


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """One round over one log. The fields are settings of Kafka where they have their names."""

    directory: str
    #: All sealed segments from the log start to ``end_offset``.
    segments: Sequence[SegmentFile]
    #: Base offsets of the segments behind them: transactions may have ended there.
    later_segments: Sequence[int]
    #: Dirty from here on.
    first_dirty_offset: int
    #: Nothing at or behind it may be cleaned.
    end_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_decompressed_bytes: int
    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int
    io_bytes_per_second: float
    #: Producer id, last offset of its data (-1: none is remembered), producer epoch.
    producers: Sequence[tuple[int, int, int]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: dict[str, Any]) -> CleaningJob:
        segments = [SegmentFile(*each) for each in value.pop("segments")]
        producers = [(each[0], each[1], each[2]) for each in value.pop("producers")]
        return CleaningJob(segments=segments, producers=producers, **value)


class CleanedSegment(NamedTuple):
    """Written aside, with ``.cleaned`` behind its files' names."""

    base_offset: int
    size: int
    transaction_index_size: int
    changed_ms: int


class CleanedGroup(NamedTuple):
    """``new`` are to take the place of the segments that begin at ``old``."""

    old: Sequence[int]
    new: Sequence[CleanedSegment]


class RoundResult(NamedTuple):
    """Of a round that came to its end."""

    #: Clean up to here; less than the job's end when the keys found no room.
    end_offset: int
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int
    #: Share of the table that was used, 0 to 1.
    table_use: float
