"""Which segments are to go, and why. Pure: segments and rules in, names and reasons out.

Retention means what it says. A sealed segment is as old as its youngest record or as its sealing,
whichever is older, so that one record from the future cannot hold a segment for ever; and segments
are rolled often enough (``roll_age_ms``) that data leaves little later than ``retention.ms``.
Nothing at or above the high watermark goes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

#: A segment is rolled for retention after this part of ``retention.ms``, but not before a minute.
_ROLL_FRACTION: Final = 10
_MIN_ROLL_MS: Final = 60_000


class RetentionReason(Enum):
    """Why a segment goes; the values are what the control socket tells."""

    TIME = "time"
    SIZE = "size"
    LOG_START_OFFSET = "start_offset"


class SegmentFacts(NamedTuple):
    """What retention asks of a segment."""

    base_offset: int
    #: Base offset of the next segment, or the log end offset.
    end_offset: int
    size: int
    #: -1 without timestamps.
    max_timestamp: int
    #: When it was sealed; of the active one, now.
    sealed_ms: int
    is_active: bool


class RetentionRules(NamedTuple):
    """-1 means no limit."""

    retention_ms: int
    retention_bytes: int
    #: False on topics that are only compacted: there the start offset alone counts.
    deletes: bool


class Doomed(NamedTuple):
    segment: SegmentFacts
    reason: RetentionReason


def roll_age_ms(segment_ms: int, rules: RetentionRules) -> int:
    """Age of its first record at which an active segment is to be rolled without an append."""
    if not rules.deletes or rules.retention_ms < 0:
        return segment_ms
    return min(segment_ms, max(rules.retention_ms // _ROLL_FRACTION, _MIN_ROLL_MS))


def segments_to_delete(
    segments: Sequence[SegmentFacts],
    rules: RetentionRules,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> list[Doomed]:
    """A prefix of ``segments``, each with the first reason that hits it: start, size, time."""
    doomed: list[Doomed] = []
    remaining = list(segments)

    def take_while(reason: RetentionReason, is_hit: Callable[[SegmentFacts], bool]) -> None:
        while remaining:
            segment = remaining[0]
            if segment.end_offset > high_watermark or (not segment.size and segment.is_active):
                return
            if not is_hit(segment):
                return
            doomed.append(Doomed(remaining.pop(0), reason))

    take_while(
        RetentionReason.LOG_START_OFFSET,
        lambda segment: not segment.is_active and segment.end_offset <= log_start_offset,
    )
    if not rules.deletes:
        return doomed
    if rules.retention_bytes >= 0:
        excess = sum(segment.size for segment in remaining) - rules.retention_bytes

        def is_excess(segment: SegmentFacts) -> bool:
            nonlocal excess
            if segment.size > excess:
                return False
            excess -= segment.size
            return True

        take_while(RetentionReason.SIZE, is_excess)
    if rules.retention_ms >= 0:
        take_while(
            RetentionReason.TIME,
            lambda segment: now_ms - _youngest_ms(segment) > rules.retention_ms,
        )
    return doomed


def _youngest_ms(segment: SegmentFacts) -> int:
    if segment.max_timestamp < 0:
        return segment.sealed_ms
    return min(segment.max_timestamp, segment.sealed_ms)
