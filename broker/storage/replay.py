"""Rebuilding producer state from the log: the newest snapshot, then every batch behind it."""

from __future__ import annotations

from broker.records.header import CONTROL_FLAG
from broker.storage.cold import waiting
from broker.storage.file_records import BatchPlace
from broker.storage.markers import marker_in
from broker.storage.producer_state import ProducerState
from broker.storage.segment import Segment
from broker.storage.segments import Segments
from broker.storage.snapshot_files import SnapshotFiles


def rebuild_producers(
    producers: ProducerState,
    snapshots: SnapshotFiles,
    segments: Segments,
    end_offset: int,
    expired_before_ms: int,
) -> None:
    """Make ``producers`` what they were at ``end_offset``. Waits for the disk.

    Without a snapshot all that the files hold counts, what lies below the log start too: a
    producer whose records were deleted goes on with its sequence.
    Producers whose last batch is older than ``expired_before_ms`` are not brought back, but for
    those with an open transaction.
    """
    newest = snapshots.load_newest(end_offset)
    if newest is None:
        offset = min(segments[0].base_offset, end_offset)
        producers.clear(offset)
    else:
        offset, entries = newest
        producers.load(entries, offset, lambda entry: entry.last_timestamp < expired_before_ms)
    if offset >= end_offset:
        return
    for slot in range(segments.slot_for(offset), len(segments)):
        if segments[slot].base_offset >= end_offset:
            return
        _replay_segment(producers, segments[slot], offset, end_offset)


def _replay_segment(
    producers: ProducerState, segment: Segment, start_offset: int, end_offset: int
) -> None:
    if not segment.size:
        return
    first = waiting(lambda: segment.find_batch(start_offset))
    if first is None:
        return
    for place in segment.records.walk_waiting(first.position, segment.size):
        if place.base_offset >= end_offset:
            return
        _replay_batch(producers, segment, place)


def _replay_batch(producers: ProducerState, segment: Segment, place: BatchPlace) -> None:
    records = segment.records
    header = waiting(lambda: records.header_at(place.position))
    if header.producer_id < 0:
        return
    if not header.attributes & CONTROL_FLAG:
        producers.update(header, place.base_offset)
        return
    marker = marker_in(waiting(lambda: records.batch_at(place)))
    if marker is not None:
        producers.end_transaction(header, marker, place.base_offset)
