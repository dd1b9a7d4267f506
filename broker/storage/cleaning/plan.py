"""What of a log may be compacted, and whether it should be, by the rules of Kafka's cleaner.

Whole sealed segments only, below the last stable offset, older than ``min.compaction.lag.ms``. Beyond
Kafka: only what a recovery would not look at again (below the recovery point), because it leaves
holes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker.storage.cleaning.job import CleaningJob, SegmentFile
from broker.storage.cold import ColdRead, PagesCold
from broker.storage.log import Log
from broker.storage.producer_state import ProducerEntry
from broker.storage.segment import Segment

_NEVER_MS = (1 << 63) - 1


class CleanerLimits(NamedTuple):
    """What one worker may use."""

    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int
    io_bytes_per_second: float


class Cleanable(NamedTuple):
    """One log, as it is now."""

    #: Everything that a round goes over, from the log start to ``end_offset``.
    segments: list[Segment]
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    #: By so much the oldest dirty record waits longer than ``max.compaction.lag.ms`` allows.
    delay_ms: int

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, log: Log) -> bool:
        if self.delay_ms > 0:
            return self.dirty_bytes > 0
        return self.dirty_ratio > log.config.min_cleanable_dirty_ratio

    def files(self) -> list[SegmentFile]:
        return [
            SegmentFile(segment.base_offset, segment.size, segment.changed_ms)
            for segment in self.segments
        ]


def cleanable(log: Log, now_ms: int) -> Cleanable | ColdRead:
    """Costs what the log has segments; a ColdRead is to be pulled first."""
    try:
        return _cleanable(log, now_ms)
    except PagesCold as cold:
        return cold.read


def _cleanable(log: Log, now_ms: int) -> Cleanable:
    first_dirty = _first_dirty_offset(log)
    stable = log.last_stable_offset(log.high_watermark)
    lag_ms = log.config.min_compaction_lag_ms
    segments: list[Segment] = []
    clean_bytes = dirty_bytes = 0
    end_offset = log.segments.first.base_offset
    for slot, segment in enumerate(log.segments):
        end = log.segments.end_of(slot, log.log_end_offset)
        if segment.is_active or end > stable or end > log.recovery_point:
            break
        is_dirty = end > first_dirty
        if is_dirty and lag_ms > 0 and segment.load_max_timestamp() > now_ms - lag_ms:
            break
        segments.append(segment)
        end_offset = end
        # As Kafka counts it: a segment that is dirty in part is dirty.
        if is_dirty:
            dirty_bytes += segment.size
        else:
            clean_bytes += segment.size
    delay_ms = _delay_ms(log, segments, first_dirty, now_ms)
    return Cleanable(
        segments, min(first_dirty, end_offset), end_offset, clean_bytes, dirty_bytes, delay_ms
    )


def _first_dirty_offset(log: Log) -> int:
    """What was cleaned; the log start where that makes no sense any more."""
    cleaned = log.cleaned_offset
    return (
        cleaned if log.log_start_offset <= cleaned <= log.log_end_offset else log.log_start_offset
    )


def _delay_ms(log: Log, segments: list[Segment], first_dirty: int, now_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms >= _NEVER_MS:
        return 0
    oldest_ms = _NEVER_MS
    for slot, segment in enumerate(segments):
        if log.segments.end_of(slot, log.log_end_offset) > first_dirty and segment.size:
            timestamp = segment.load_first_timestamp()
            if timestamp > 0:
                oldest_ms = min(oldest_ms, timestamp)
    return max(0, now_ms - lag_ms - oldest_ms)


def job_for(
    log: Log,
    what: Cleanable,
    producers: Iterable[ProducerEntry],
    limits: CleanerLimits,
    now_ms: int,
) -> CleaningJob:
    """May run in a thread; ``producers`` is a copy of the log's. One that goes on writing meanwhile
    does so behind ``end_offset``: what it tells now keeps too much at worst."""
    config = log.config
    last_records = [
        (
            entry.producer_id,
            entry.batches[-1].last_offset if entry.batches else -1,
            entry.producer_epoch,
        )
        for entry in producers
    ]
    return CleaningJob(
        directory=log.directory,
        segments=what.files(),
        later_segments=[
            segment.base_offset
            for segment in log.segments
            if segment.base_offset >= what.end_offset
        ],
        first_dirty_offset=what.first_dirty_offset,
        end_offset=what.end_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        max_decompressed_bytes=config.max_decompressed_message_bytes,
        dedupe_buffer_bytes=limits.dedupe_buffer_bytes,
        load_factor=limits.load_factor,
        io_buffer_bytes=limits.io_buffer_bytes,
        io_bytes_per_second=limits.io_bytes_per_second,
        producers=[last for last in last_records if last[1] < what.end_offset],
    )
