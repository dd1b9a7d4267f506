"""One round of cleaning over one log, in a child process: reads sealed segments, writes others aside.

First pass, over the dirty part: every key is noted with its last offset, and every offset that is
the last of its key is marked. Second pass, over everything from the log start on: batches are
filtered (``batch_filter``) and written aside, group by group; the broker puts each group in place
before the next is begun, so a full disk or a stop costs one group. When the table of keys is full
the round ends at the record that found no room, and the rest is the next round's.

Memory: the table (``log.cleaner.dedupe.buffer.size``), one byte an offset of the dirty part (at most
``MAX_MARKED_OFFSETS``), a block of input, one decompressed batch, ``WRITE_BYTES`` of output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from broker.model.errors import CorruptLogError
from broker.records.header import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    MalformedBatch,
    peek_header,
)
from broker.storage.cleaning.batch_filter import BatchFilter, payload_of
from broker.storage.cleaning.cleaned_writer import CleanedWriter
from broker.storage.cleaning.job import CleanedGroup, CleaningJob, RoundResult, SegmentFile
from broker.storage.cleaning.key_table import BYTES_PER_SLOT, KeyTable
from broker.storage.cleaning.record_scan import Marks, Sieve, note_keys
from broker.storage.cleaning.throttle import Throttle
from broker.storage.cleaning.transactions import CleanedTransactions
from broker.storage.filesystem import FileSystem
from broker.storage.layout import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from broker.storage.offset_index import MAX_RELATIVE_OFFSET
from broker.storage.recovery import MAX_BATCH_BYTES
from broker.storage.transaction_index import ENTRY, AbortedTransaction

MAX_MARKED_OFFSETS: Final = 16 * 1024 * 1024
#: Input is read in blocks of half the io buffer, but not of less.
MIN_BLOCK_BYTES: Final = 64 * 1024

#: Puts a group in place; False: it was refused, and the round ends.
PutInPlace = Callable[[CleanedGroup], bool]


class RoundStopped(Exception):
    """The broker wants no more of it."""


def clean(
    fs: FileSystem, job: CleaningJob, put_in_place: PutInPlace, throttle: Throttle
) -> RoundResult:
    """Raises CorruptLogError, DiskFullError, OSError or RoundStopped; nothing is left behind then
    but what was given to ``put_in_place``."""
    return _Round(fs, job, put_in_place, throttle).run()


class _Round:
    def __init__(
        self, fs: FileSystem, job: CleaningJob, put_in_place: PutInPlace, throttle: Throttle
    ) -> None:
        self._fs = fs
        self._job = job
        self._put_in_place = put_in_place
        self._throttle = throttle
        slots = max(job.dedupe_buffer_bytes // BYTES_PER_SLOT, 2)
        # No more than there can be keys: small logs take little memory.
        most = max(int((job.end_offset - job.first_dirty_offset) / job.load_factor) + 2, 16)
        slots = min(slots, most)
        self._table = KeyTable(slots, int(slots * job.load_factor))
        self._marks = Marks(job.first_dirty_offset)
        starts = [segment.base_offset for segment in job.segments]
        #: Base offset of a segment to the offset behind everything that it may hold.
        self._ends = dict(zip(starts, [*starts[1:], job.end_offset], strict=True))
        self._bytes_before = 0
        self._bytes_after = 0

    def run(self) -> RoundResult:
        job = self._job
        end_offset = self._note_dirty()
        sieve = Sieve(self._table, self._marks, end_offset)
        batches = BatchFilter(
            sieve,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
            round_end=job.end_offset,
            last_records={
                producer_id: (offset, epoch) for producer_id, offset, epoch in job.producers
            },
            max_decompressed_bytes=job.max_decompressed_bytes,
        )
        for group in self._groups(end_offset):
            self._clean_group(group, batches)
        return RoundResult(
            end_offset,
            batches.records_before,
            batches.records_after,
            self._bytes_before,
            self._bytes_after,
            self._table.count / max(self._table.capacity, 1),
        )

    # First pass ------------------------------------------------------------------------------

    def _note_dirty(self) -> int:
        """Gives the offset behind what was noted."""
        first_dirty = self._job.first_dirty_offset
        transactions = CleanedTransactions()
        is_first = True
        for segment in self._job.segments:
            if self._end_of(segment) <= first_dirty:
                continue
            transactions.add_aborted(self._aborted_in(segment, is_first))
            is_first = False
            for position, header, batch in self._batches(segment):
                full_at = self._note(segment, position, header, batch, transactions)
                if full_at >= 0:
                    return full_at
        return self._job.end_offset

    def _note(
        self,
        segment: SegmentFile,
        position: int,
        header: BatchHeader,
        batch: bytes,
        transactions: CleanedTransactions,
    ) -> int:
        """Note one batch; gives the offset at which the round must end, or -1."""
        if header.is_control:
            transactions.end(header, batch)
            return -1
        is_aborted = transactions.is_aborted(header)
        first_dirty = self._job.first_dirty_offset
        if header.last_offset < first_dirty:
            return -1
        marks = self._marks
        if not marks.flags:
            marks.start = max(first_dirty, header.base_offset)
        if header.last_offset - marks.start >= MAX_MARKED_OFFSETS:
            if marks.flags:
                return header.base_offset
            raise self._corrupt(
                segment, position, header.base_offset, "a batch of too many offsets to clean"
            )
        marks.extend_to(header.next_offset)
        if is_aborted or not header.record_count:
            return -1
        try:
            payload = payload_of(header, batch, self._job.max_decompressed_bytes)
            return note_keys(
                payload, header.record_count, header.base_offset, first_dirty, self._table, marks
            )
        except MalformedBatch as error:
            raise self._corrupt(segment, position, header.base_offset, str(error)) from error

    # Second pass -----------------------------------------------------------------------------

    def _clean_group(self, group: list[SegmentFile], batches: BatchFilter) -> None:
        writer = CleanedWriter(self._fs, self._job, group[0].base_offset)
        try:
            for segment in group:
                is_first = segment is self._job.segments[0]
                batches.transactions.add_aborted(self._aborted_in(segment, is_first))
                self._bytes_before += segment.size
                self._filter_segment(segment, batches, writer)
            new = writer.finish(group[-1].changed_ms)
        except BaseException:
            writer.abandon()
            raise
        # From here on the files are the broker's: it may be renaming them while it dies.
        if not self._put_in_place(CleanedGroup([each.base_offset for each in group], new)):
            raise RoundStopped

    def _filter_segment(
        self, segment: SegmentFile, batches: BatchFilter, writer: CleanedWriter
    ) -> None:
        for position, header, batch in self._batches(segment):
            try:
                result, aborted = batches.filter(header, batch)
            except MalformedBatch as error:
                raise self._corrupt(segment, position, header.base_offset, str(error)) from error
            if result is None:
                continue
            if result is not batch:
                header = peek_header(result)
            writer.append(header, result)
            if aborted is not None:
                writer.append_aborted(aborted)
            self._bytes_after += len(result)
            self._throttle.take(len(result))

    def _groups(self, end_offset: int) -> Iterator[list[SegmentFile]]:
        """Neighbours that fit together into one segment, so that segments do not get ever smaller."""
        job = self._job
        sizes = {entry.name: entry.size for entry in self._fs.list_directory(job.directory)}

        def costs(segment: SegmentFile) -> tuple[int, int, int]:
            names = (
                segment_file_name(segment.base_offset, suffix)
                for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)
            )
            offsets, times = (sizes.get(name, 0) for name in names)
            return segment.size, offsets, times

        limits = (job.segment_bytes, job.segment_index_bytes, job.segment_index_bytes)
        group: list[SegmentFile] = []
        total = (0, 0, 0)
        for segment in job.segments:
            if segment.base_offset >= end_offset:
                break
            cost = costs(segment)
            grown = (total[0] + cost[0], total[1] + cost[1], total[2] + cost[2])
            fits = all(size <= limit for size, limit in zip(grown, limits, strict=True))
            if group and not (
                fits and self._end_of(segment) - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET
            ):
                yield group
                group, grown = [], cost
            group.append(segment)
            total = grown
        if group:
            yield group

    # Reading ---------------------------------------------------------------------------------

    def _end_of(self, segment: SegmentFile) -> int:
        return self._ends[segment.base_offset]

    def _batches(self, segment: SegmentFile) -> Iterator[tuple[int, BatchHeader, bytes]]:
        """Position, header and bytes of each batch."""
        path = f"{self._job.directory}/{segment_file_name(segment.base_offset, LOG_SUFFIX)}"
        file = self._fs.open(path, size=segment.size)
        block_bytes = max(self._job.io_buffer_bytes // 2, MIN_BLOCK_BYTES)
        try:
            position = 0
            while position < segment.size:
                length = min(block_bytes, segment.size - position)
                block = file.pread(length, position)
                at = 0
                for at, header in self._whole_batches(segment, position, block):
                    yield position + at, header, block[at : at + header.size_in_bytes]
                    at += header.size_in_bytes
                self._throttle.take(len(block))
                if not at:
                    yield self._large_batch(segment, position, block, file.pread)
                    at = peek_header(block).size_in_bytes
                position += at
        finally:
            file.close()

    def _whole_batches(
        self, segment: SegmentFile, start: int, block: bytes
    ) -> Iterator[tuple[int, BatchHeader]]:
        at, end = 0, len(block)
        while end - at >= HEADER_SIZE:
            header = peek_header(block, at)
            size = header.size_in_bytes
            if header.magic != MAGIC or not HEADER_SIZE <= size <= MAX_BATCH_BYTES:
                raise self._corrupt(segment, start + at, header.base_offset, "no batch")
            if at + size > end:
                return
            yield at, header
            at += size

    def _large_batch(
        self,
        segment: SegmentFile,
        position: int,
        block: bytes,
        pread: Callable[[int, int], bytes],
    ) -> tuple[int, BatchHeader, bytes]:
        if len(block) < HEADER_SIZE:
            raise self._corrupt(segment, position, -1, "the file ends inside a batch")
        header = peek_header(block)
        batch = pread(header.size_in_bytes, position)
        if len(batch) < header.size_in_bytes or position + len(batch) > segment.size:
            raise self._corrupt(segment, position, header.base_offset, "the file ends in a batch")
        self._throttle.take(len(batch))
        return position, header, batch

    def _aborted_in(self, segment: SegmentFile, is_first: bool) -> list[AbortedTransaction]:
        """Aborted transactions that begin in ``segment`` (or before, for the first one). They are
        noted where they end: there, or in a later segment."""
        start, end = segment.base_offset, self._end_of(segment)
        found: list[AbortedTransaction] = []
        bases = [each.base_offset for each in self._job.segments if each.base_offset >= start]
        for base_offset in [*bases, *self._job.later_segments]:
            for transaction in self._index_of(base_offset):
                if transaction.first_offset < end and (
                    is_first or transaction.first_offset >= start
                ):
                    found.append(transaction)
                if transaction.last_stable_offset >= end:
                    return found  # whatever was open before has ended
        return found

    def _index_of(self, base_offset: int) -> list[AbortedTransaction]:
        path = f"{self._job.directory}/{segment_file_name(base_offset, TRANSACTION_INDEX_SUFFIX)}"
        try:
            file = self._fs.open(path)
        except FileNotFoundError:
            return []
        try:
            size = file.size // ENTRY.size * ENTRY.size  # the active one may be growing
            return [
                AbortedTransaction(*fields[1:])
                for fields in ENTRY.iter_unpack(file.pread(size, 0) if size else b"")
            ]
        finally:
            file.close()

    def _corrupt(
        self, segment: SegmentFile, position: int, offset: int, message: str
    ) -> CorruptLogError:
        path = f"{self._job.directory}/{segment_file_name(segment.base_offset, LOG_SUFFIX)}"
        return CorruptLogError(path, position, offset, message)
