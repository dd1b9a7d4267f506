"""Writes ``.cleaned`` segments: batches in large writes, indexes as appends would make them."""

from __future__ import annotations

from typing import Final

from broker.records.header import BatchHeader
from broker.storage.cleaning.job import CleanedSegment, CleaningJob
from broker.storage.filesystem import FileSystem
from broker.storage.layout import CLEANED_SUFFIX, LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX
from broker.storage.segment import Segment, SegmentCache
from broker.storage.transaction_index import AbortedTransaction

WRITE_BYTES: Final = 1024 * 1024


class CleanedWriter:
    """The replacement of one group of segments; mostly one segment, more if its index gets full."""

    def __init__(self, fs: FileSystem, job: CleaningJob, base_offset: int) -> None:
        self._fs = fs
        self._job = job
        self._buffer = bytearray()
        self._segments: list[Segment] = []
        self._begin(base_offset)

    def _begin(self, base_offset: int) -> None:
        job = self._job
        segment = Segment(
            self._fs,
            SegmentCache(),
            job.directory,
            base_offset,
            max_index_bytes=job.segment_index_bytes,
            index_interval_bytes=job.index_interval_bytes,
        )
        segment.set_suffix(CLEANED_SUFFIX)
        for suffix in (LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            self._fs.remove(segment.path(suffix))  # what an earlier attempt left
        segment.create_files()
        self._segments.append(segment)

    def append(self, header: BatchHeader, batch: bytes | bytearray) -> None:
        """``header`` tells the offsets and the largest timestamp of ``batch``."""
        segment = self._segments[-1]
        if segment.is_index_full or not segment.has_room_for(header.last_offset, len(batch)):
            self._write()
            self._begin(header.base_offset)
            segment = self._segments[-1]
        segment.note_batch(len(batch), header.last_offset, header.newest_timestamp)
        self._buffer += batch
        if len(self._buffer) >= WRITE_BYTES:
            self._write()

    def append_aborted(self, transaction: AbortedTransaction) -> None:
        """Its marker was appended last, or is about to be."""
        self._segments[-1].transaction_index.append(transaction)

    def _write(self) -> None:
        if self._buffer:
            self._segments[-1].records.file.append(self._buffer)
            self._buffer.clear()

    def finish(self, changed_ms: int) -> list[CleanedSegment]:
        """Everything is on disk when it returns, names included."""
        self._write()
        fs, cleaned = self._fs, []
        for segment in self._segments:
            segment.seal()
            for file in segment.open_files():
                file.datasync()
            transactions = segment.transaction_index.size
            segment.close_files()
            fs.set_modified_ms(segment.path(LOG_SUFFIX), changed_ms)
            cleaned.append(
                CleanedSegment(segment.base_offset, segment.size, transactions, changed_ms)
            )
        fs.sync_directory(self._job.directory)
        return cleaned

    def abandon(self) -> None:
        """Leave nothing behind."""
        for segment in self._segments:
            segment.remove_files(self._fs)
