"""Reading a log: regions for fetches, offsets for timestamps, aborted transactions.

Nothing is copied and nothing waits for the disk: a read gives a ``FileRegion`` for ``sendfile``,
or a ``ColdRead`` when a page that the search needs is not in memory.

Hot path: ``read`` runs per fetched partition. Where the last reads ended is remembered (``_ends``),
so a consumer that reads on, and a high watermark that many readers share, cost no search; a full
``max_bytes`` walks only the headers between the last index entry and the cut.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.model.file_region import FileRegion
from broker.records.batch import iter_records
from broker.records.header import CODEC_MASK, MalformedBatch, peek_header
from broker.storage.cold import ColdRead, PagesCold
from broker.storage.file_records import BatchPlace
from broker.storage.segment import Segment
from broker.storage.segments import Segments

#: Places where reads ended, remembered per log; each may be where the next one begins.
MAX_REMEMBERED_ENDS: Final = 16
#: No batch in a log was accepted above this, decompressed; a look-up gives up beyond it.
MAX_LOOKUP_BYTES: Final = 1 << 30


#: A batch with more records, or bytes, is looked through in a thread: a microsecond a record. A
#: compressed one may hold a thousand times its size.
MAX_RECORDS_AT_ONCE: Final = 1000
MAX_BYTES_AT_ONCE: Final = 64 * 1024
MAX_COMPRESSED_BYTES_AT_ONCE: Final = 4 * 1024
#: What was found in such batches is remembered until it is asked for again.
MAX_REMEMBERED_SEARCHES: Final = 32


class LogRead:
    """Whole batches of one segment. ``region`` is None when there is nothing in the range."""

    __slots__ = ("base_offset", "next_offset", "region")

    def __init__(self, region: FileRegion | None, base_offset: int, next_offset: int) -> None:
        self.region = region
        #: Of the first batch (the fetch offset, where that was remembered as a beginning).
        self.base_offset = base_offset
        #: Where a consumer of these bytes goes on.
        self.next_offset = next_offset

    @property
    def size(self) -> int:
        return 0 if self.region is None else self.region.length


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


#: Generation of the file, position of the batch, timestamp, start offset.
SearchKey = tuple[int, int, int, int]


class RecordSearch(ColdRead):
    """A batch of many records: looked through in a thread, by ``pull``, then asked for again."""

    __slots__ = ("_batch", "_found", "_key", "_segment")

    def __init__(
        self,
        segment: Segment,
        batch: bytes,
        key: SearchKey,
        found: dict[tuple[Segment, SearchKey], TimestampOffset | None],
    ) -> None:
        super().__init__(segment.records.file, key[1], len(batch))
        self._segment = segment
        self._batch = batch
        self._key = key
        self._found = found

    def pull(self) -> None:
        _, _, timestamp, start_offset = self._key
        result = _first_record_in(self._batch, timestamp, start_offset)
        found = self._found
        if len(found) >= MAX_REMEMBERED_SEARCHES:
            found.pop(next(iter(found)), None)
        found[self._segment, self._key] = result


def _first_record_in(batch: bytes, timestamp: int, start_offset: int) -> TimestampOffset | None:
    header = peek_header(batch)
    leader_epoch = header.partition_leader_epoch
    try:
        for record in iter_records(batch, MAX_LOOKUP_BYTES):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, record.offset, leader_epoch)
    except MalformedBatch:
        # Damaged records: the batch is the best answer there is, and its reader will see.
        return TimestampOffset(header.max_timestamp, header.base_offset, leader_epoch)
    return None


class LogReader:
    """Looks into ``segments``; the log tells it when they change under it."""

    __slots__ = ("_ends", "_found", "segments")

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        #: Offset -> segment and position where its batch begins, or will.
        self._ends: dict[int, tuple[Segment, int]] = {}
        #: What searches in threads gave. Another dictionary after a change: some may still run.
        self._found: dict[tuple[Segment, SearchKey], TimestampOffset | None] = {}

    def forget(self) -> None:
        """Positions changed: segments were cut, deleted or replaced."""
        self._ends.clear()
        if self._found:
            self._found = {}

    def remember_end(self, offset: int, segment: Segment, position: int) -> None:
        ends = self._ends
        if offset in ends:
            del ends[offset]
        elif len(ends) >= MAX_REMEMBERED_ENDS:
            del ends[next(iter(ends))]
        ends[offset] = (segment, position)

    # Fetch -----------------------------------------------------------------------------------

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        end_offset: int,
        log_end_offset: int,
        min_one_batch: bool,
    ) -> LogRead | ColdRead:
        try:
            found = self._locate(start_offset)
            if found is None:
                return LogRead(None, start_offset, start_offset)
            segment, position, base_offset, slot = found
            if base_offset >= end_offset:
                return LogRead(None, start_offset, start_offset)
            limit, next_offset = self._limit(segment, slot, end_offset, log_end_offset)
            if limit <= position:
                return LogRead(None, start_offset, start_offset)
            if limit - position > max_bytes:
                cut, next_offset = self._cut(segment, position, max_bytes, limit, min_one_batch)
                if cut == position:
                    return LogRead(None, start_offset, start_offset)
            else:
                cut = limit
        except PagesCold as cold:
            return cold.read
        self.remember_end(next_offset, segment, cut)
        file = segment.records.file
        region = FileRegion(file, file.generation, position, cut - position)
        return LogRead(region, base_offset, next_offset)

    def _locate(self, offset: int) -> tuple[Segment, int, int, int] | None:
        """Segment, position and base offset of the batch that holds ``offset``, and a slot."""
        segments = self.segments
        slot = segments.slot_for(offset)
        end = self._ends.get(offset)
        if end is not None:
            segment, position = end
            if position < segment.size:
                # The same segment, or the one before, when the log was rolled since.
                if segments[slot] is segment:
                    return segment, position, offset, slot
            elif slot and segments[slot - 1] is segment and segments[slot].size:
                return segments[slot], 0, offset, slot
        while slot < len(segments):
            segment = segments[slot]
            place = segment.find_batch(offset) if segment.size else None
            if place is not None:
                return segment, place.position, place.base_offset, slot
            slot += 1
        return None

    def _limit(
        self, segment: Segment, slot: int, end_offset: int, log_end_offset: int
    ) -> tuple[int, int]:
        """Position behind the last batch of ``segment`` below ``end_offset``; next offset."""
        segment_end = self.segments.end_of(slot, log_end_offset)
        if end_offset >= segment_end:
            return segment.size, segment_end
        end = self._ends.get(end_offset)
        if end is not None and end[0] is segment:
            return end[1], end_offset
        place = segment.find_batch(end_offset)
        if place is None:
            return segment.size, segment_end
        if place.base_offset >= end_offset:
            self.remember_end(end_offset, segment, place.position)
        return place.position, end_offset

    def _cut(
        self, segment: Segment, position: int, max_bytes: int, limit: int, min_one_batch: bool
    ) -> tuple[int, int]:
        """Position and next offset behind the last whole batch within ``max_bytes``."""
        cut, next_offset = segment.find_cut(position, position + max_bytes, limit)
        if cut > position or not min_one_batch:
            return cut, next_offset
        header = segment.records.header_at(position)
        segment.records.check_is_whole(position, header.size_in_bytes)
        return position + header.size_in_bytes, header.next_offset

    # Transactions ----------------------------------------------------------------------------

    def aborted_transactions(
        self, start_offset: int, end_offset: int
    ) -> list[tuple[int, int]] | ColdRead:
        """(producer id, first offset), by first offset, of aborted ones with records in the range."""
        found: list[tuple[int, int]] = []
        segments = self.segments
        try:
            for slot in range(segments.slot_for(start_offset), len(segments)):
                segment = segments[slot]
                if not segment.has_aborted_transactions:
                    continue
                transactions, is_all = segment.transaction_index.overlapping(
                    start_offset, end_offset
                )
                found += [(entry.producer_id, entry.first_offset) for entry in transactions]
                if is_all:
                    break
        except PagesCold as cold:
            return cold.read
        found.sort(key=lambda pair: pair[1])
        return found

    # Timestamps ------------------------------------------------------------------------------

    def offset_for_timestamp(
        self, timestamp: int, start_offset: int, end_offset: int
    ) -> TimestampOffset | ColdRead | None:
        """First record from ``start_offset`` on that is as young as ``timestamp``."""
        try:
            for segment in self.segments:
                if not segment.size or segment.load_max_timestamp() < timestamp:
                    continue
                found = self._record_as_young_as(segment, timestamp, start_offset)
                if found is not None:
                    return found if found.offset < end_offset else None
        except PagesCold as cold:
            return cold.read
        return None

    def _record_as_young_as(
        self, segment: Segment, timestamp: int, start_offset: int
    ) -> TimestampOffset | None:
        place = segment.find_timestamp(timestamp, start_offset)
        while place is not None:
            found = self._first_record(segment, place, timestamp, start_offset)
            if found is not None:
                return found
            # Its young records lie before the start offset, or its header promised too much.
            place = segment.find_timestamp_behind(place, timestamp)
        return None

    def _first_record(
        self, segment: Segment, place: BatchPlace, timestamp: int, start_offset: int
    ) -> TimestampOffset | None:
        key = (segment.records.file.generation, place.position, timestamp, start_offset)
        if (segment, key) in self._found:
            return self._found[segment, key]
        batch = segment.records.batch_at(place)
        is_compressed = peek_header(batch).attributes & CODEC_MASK
        most = MAX_COMPRESSED_BYTES_AT_ONCE if is_compressed else MAX_BYTES_AT_ONCE
        if place.size > most or place.last_offset - place.base_offset >= MAX_RECORDS_AT_ONCE:
            raise PagesCold(RecordSearch(segment, batch, key, self._found))
        return _first_record_in(batch, timestamp, start_offset)

    def max_timestamp_offset(self) -> TimestampOffset | ColdRead | None:
        """The record with the largest timestamp in the log, the first one of several."""
        try:
            best: Segment | None = None
            for segment in self.segments:
                if not segment.size or segment.load_max_timestamp() < 0:
                    continue
                if best is None or segment.max_timestamp > best.max_timestamp:
                    best = segment
            if best is None:
                return None
            return self._record_as_young_as(best, best.max_timestamp, best.base_offset)
        except PagesCold as cold:
            return cold.read
