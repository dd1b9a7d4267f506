"""One segment: a ``.log`` with its offset, time and transaction index.

The last segment of a log is *active* and takes appends; all others are sealed and never change
again but by truncation and deletion. A sealed segment nobody reads is three numbers: files and
indexes are opened on demand and dropped again by ``SegmentCache``. Positions, index entries and
the largest timestamp follow Kafka's ``LogSegment`` exactly, because its tools check them.
"""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, TypeVar

from broker.model.errors import CorruptLogError, DiskFullError
from broker.storage.cold import ColdRead, PagesCold, waiting
from broker.storage.file_records import BLOCK_BYTES, SCAN_BLOCK_BYTES, BatchPlace, FileRecords
from broker.storage.filesystem import Buffer, File, FileSystem
from broker.storage.layout import (
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from broker.storage.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from broker.storage.sparse_index import SparseIndex
from broker.storage.time_index import NO_TIMESTAMP, TimeIndex
from broker.storage.transaction_index import TransactionIndex

_log: Final = logging.getLogger(__name__)

Index = TypeVar("Index", bound=SparseIndex)

#: Not looked up yet.
UNKNOWN: Final = -2
MAX_POSITION: Final = 0x7FFF_FFFF


class SegmentCache:
    """The sealed segments whose files were used last; the others hold nothing open."""

    DEFAULT_LIMIT: Final = 256

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._segments: OrderedDict[Segment, None] = OrderedDict()

    def touch(self, segment: Segment) -> None:
        segments = self._segments
        if segment in segments:
            segments.move_to_end(segment)
            return
        segments[segment] = None
        if len(segments) > self.limit:
            oldest, _ = segments.popitem(last=False)
            oldest.drop_indexes()

    def forget(self, segment: Segment) -> None:
        self._segments.pop(segment, None)


class IndexRepair(ColdRead):
    """A sealed segment's index makes no sense: made anew, in a thread, by ``pull``."""

    __slots__ = ("_segment",)

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment.records.file, 0, 0)
        self._segment = segment

    def pull(self) -> None:
        # If it fails, the next look-up says what is wrong, where it can be answered.
        with contextlib.suppress(CorruptLogError, DiskFullError):
            self._segment.replace_indexes()


class Segment:
    """``base_offset`` is a lower bound of its offsets and names its files."""

    __slots__ = (
        "_bytes_since_entry",
        "_cache",
        "_fs",
        "_log_suffix",
        "_max_index_bytes",
        "_newest_time",
        "_offset_index",
        "_records",
        "_time_index",
        "_transaction_index",
        "_transaction_index_size",
        "_waiting_entries",
        "_was_repaired",
        "base_offset",
        "changed_ms",
        "created_ms",
        "directory",
        "first_timestamp",
        "index_interval_bytes",
        "is_active",
        "is_index_full",
        "max_timestamp",
        "offset_of_max_timestamp",
        "size",
        "suffix",
    )

    def __init__(
        self,
        fs: FileSystem,
        cache: SegmentCache,
        directory: str,
        base_offset: int,
        *,
        size: int = 0,
        transaction_index_size: int = 0,
        changed_ms: int = 0,
        max_index_bytes: int,
        index_interval_bytes: int,
    ) -> None:
        self._fs = fs
        self._cache = cache
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        #: When its bytes last changed: the time of sealing, for a sealed one.
        self.changed_ms = changed_ms
        self.created_ms = changed_ms
        #: Ends all file names; ``.deleted`` once the segment left its log.
        self.suffix = ""
        #: Of the ``.log`` alone, which is renamed first.
        self._log_suffix = ""
        self.is_active = False
        #: An index takes no more entries: roll. Known of the active segment only.
        self.is_index_full = False
        #: Of the first batch: the segment's age for rolling. UNKNOWN until looked up.
        self.first_timestamp = UNKNOWN
        self.max_timestamp = UNKNOWN
        self.offset_of_max_timestamp = base_offset
        self._max_index_bytes = max_index_bytes
        self.index_interval_bytes = index_interval_bytes
        self._was_repaired = False
        self._transaction_index_size = transaction_index_size
        self._bytes_since_entry = 0
        #: The last time index entry, kept while the index itself is dropped.
        self._newest_time: tuple[int, int] | None = None
        self._records: FileRecords | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None
        #: Of the active segment at rest: packed entries of both indexes that have no file yet.
        self._waiting_entries: tuple[bytes, bytes] | None = None

    def __repr__(self) -> str:
        return f"Segment({self.path(LOG_SUFFIX)}, size={self.size})"

    # Files -----------------------------------------------------------------------------------

    def path(self, suffix: str) -> str:
        ending = self._log_suffix if suffix == LOG_SUFFIX else self.suffix
        return f"{self.directory}/{segment_file_name(self.base_offset, suffix)}{ending}"

    def set_suffix(self, suffix: str) -> None:
        """Its files have this ending already, or will be made with it."""
        self.suffix = self._log_suffix = suffix

    def create_files(self) -> None:
        """A new active segment: its log at once, the indexes with their first entries."""
        self._records = FileRecords(self._fs.open(self.path(LOG_SUFFIX), create=True))
        self._offset_index = self._new_index(OffsetIndex, OFFSET_INDEX_SUFFIX, is_new=True)
        self._time_index = self._new_index(TimeIndex, TIME_INDEX_SUFFIX, is_new=True)
        self._bytes_since_entry = 0
        self.is_active = True
        self.max_timestamp = NO_TIMESTAMP
        self.first_timestamp = NO_TIMESTAMP

    def _new_index(
        self, kind: type[Index], suffix: str, *, is_new: bool = False, waiting: bytes = b""
    ) -> Index:
        path = self.path(suffix)
        limit = self._max_index_bytes
        return kind(self._fs, path, self.base_offset, limit, is_new=is_new, waiting=waiting)

    def _wake_indexes(self) -> None:
        """What ``rest`` kept of them becomes indexes again."""
        if self._waiting_entries is None:
            return
        offsets, times = self._waiting_entries
        self._waiting_entries = None
        self._offset_index = self._new_index(
            OffsetIndex, OFFSET_INDEX_SUFFIX, is_new=True, waiting=offsets
        )
        self._time_index = self._new_index(TimeIndex, TIME_INDEX_SUFFIX, is_new=True, waiting=times)
        self._time_index.newest = self._newest_time

    @property
    def records(self) -> FileRecords:
        records = self._records
        if records is None:
            file = self._fs.open(self.path(LOG_SUFFIX), size=self.size)
            records = self._records = FileRecords(file)
            self._touch()
        return records

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            self._wake_indexes()
            index = self._offset_index
        if index is None:
            self._touch()
            index = self._offset_index = self._new_index(OffsetIndex, OFFSET_INDEX_SUFFIX)
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            self._wake_indexes()
            index = self._time_index
        if index is None:
            self._touch()
            index = self._time_index = self._new_index(TimeIndex, TIME_INDEX_SUFFIX)
            index.newest = self._newest_time
        return index

    def _touch(self) -> None:
        if not self.is_active:
            self._cache.touch(self)

    @property
    def transaction_index(self) -> TransactionIndex:
        index = self._transaction_index
        if index is None:
            path = self.path(TRANSACTION_INDEX_SUFFIX)
            index = TransactionIndex(self._fs, path, self._transaction_index_size)
            self._transaction_index = index
        return index

    @property
    def has_aborted_transactions(self) -> bool:
        index = self._transaction_index
        return (self._transaction_index_size if index is None else index.size) > 0

    def open_files(self) -> list[File]:
        """The files that a sync must cover, opening those that are not."""
        files = [self.records.file, self.offset_index.file, self.time_index.file]
        if self.has_aborted_transactions:
            files.append(self.transaction_index.file)
        return files

    def drop_indexes(self) -> None:
        """A sealed segment has not been used for long."""
        if not self.is_active:
            self._drop_files()

    def _drop_files(self) -> None:
        """Give back memory and descriptors; the log's file object stays, for regions."""
        if self._transaction_index is not None:
            self._transaction_index_size = self._transaction_index.size
            self._transaction_index.close()
        if self._time_index is not None:
            self._newest_time = self._time_index.newest
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.close()
        if self._records is not None:
            self._records.file.close()
        self._offset_index = None
        self._time_index = None
        self._transaction_index = None

    def close_files(self) -> None:
        """Trim, write what waits, give all descriptors back."""
        self.write_pending()
        self._drop_files()
        self._cache.forget(self)

    def abandon(self) -> None:
        """The segment leaves the log by truncation: whoever still sends from it must stop."""
        self.records.file.generation += 1

    def move_to(self, directory: str) -> None:
        """The directory was renamed under the segment."""
        self.directory = directory
        self._set_paths()

    def rename_files(self, fs: FileSystem, suffix: str) -> None:
        """Give all files another ending; the log first, because it alone makes a segment."""
        self.rename_log(fs, suffix)
        self.rename_indexes(fs, suffix)

    def rename_log(self, fs: FileSystem, suffix: str) -> None:
        source = self.path(LOG_SUFFIX)
        self._log_suffix = suffix
        if fs.exists(source):
            fs.rename(source, self.path(LOG_SUFFIX))
        self._set_paths()

    def rename_indexes(self, fs: FileSystem, suffix: str) -> None:
        sources = [self.path(kind) for kind in INDEX_SUFFIXES]
        self.suffix = suffix
        for source, kind in zip(sources, INDEX_SUFFIXES, strict=True):
            if fs.exists(source):
                fs.rename(source, self.path(kind))
        self._set_paths()

    def remove_files(self, fs: FileSystem) -> None:
        for kind in SEGMENT_SUFFIXES:
            fs.remove(self.path(kind))

    def _set_paths(self) -> None:
        if self._records is not None:
            self._records.file.path = self.path(LOG_SUFFIX)
        if self._offset_index is not None:
            self._offset_index.move_to(self.path(OFFSET_INDEX_SUFFIX))
        if self._time_index is not None:
            self._time_index.move_to(self.path(TIME_INDEX_SUFFIX))
        if self._transaction_index is not None:
            self._transaction_index.move_to(self.path(TRANSACTION_INDEX_SUFFIX))

    # Appending -------------------------------------------------------------------------------

    def append(self, batch: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Add one whole batch that ends at ``last_offset``; DiskFullError changes nothing."""
        self.records.file.append(batch)
        self.note_batch(len(batch), last_offset, max_timestamp)

    def note_batch(self, length: int, last_offset: int, max_timestamp: int) -> None:
        """``length`` bytes were found or put behind the segment's end: a batch."""
        position = self.size
        self.size = position + length
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if not position:
            self.first_timestamp = max_timestamp
        if self._bytes_since_entry > self.index_interval_bytes:
            self._add_entries(last_offset, position)
        self._bytes_since_entry += length

    def _add_entries(self, last_offset: int, position: int) -> None:
        """Index the batch at ``position``. A full disk leaves the entries waiting in memory."""
        self._bytes_since_entry = 0
        with contextlib.suppress(DiskFullError):
            self.offset_index.append(last_offset, position)
        with contextlib.suppress(DiskFullError):
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self._set_is_index_full()

    def _set_is_index_full(self) -> None:
        self.is_index_full = self.offset_index.is_full or self.time_index.is_full

    def has_room_for(self, last_offset: int, length: int) -> bool:
        """Whether offset and position still fit into index entries."""
        return (
            last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
            and self.size + length <= MAX_POSITION
        )

    def set_max_index_bytes(self, max_index_bytes: int) -> None:
        if max_index_bytes == self._max_index_bytes:
            return
        self._max_index_bytes = max_index_bytes
        if self._offset_index is not None:
            self._offset_index.set_max_bytes(max_index_bytes)
        if self._time_index is not None:
            self._time_index.set_max_bytes(max_index_bytes)
        if self.is_active:
            self._set_is_index_full()

    def write_pending(self) -> None:
        """Bring the files up to date for other readers: index entries written, zeros cut."""
        self.write_entries()
        if self._records is not None:
            self._records.file.trim()

    def write_entries(self) -> None:
        """The index entries that wait in memory."""
        self._wake_indexes()
        if self._offset_index is not None:
            self._offset_index.flush()
        if self._time_index is not None:
            self._time_index.flush()

    def seal(self) -> None:
        """No more appends: note the largest timestamp, by which retention goes, and trim.

        Raises DiskFullError, and may be called again then.
        """
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        self.write_pending()
        self.make_index_files()
        self.records.file.cool()

    def make_index_files(self) -> None:
        """Kafka wants both beside every log that it opens, entries or not."""
        _ = self.offset_index.file, self.time_index.file

    def become_sealed(self) -> None:
        self.is_active = False
        self._cache.touch(self)

    def become_active(self) -> None:
        """The last segment takes appends (again). Waits for the disk."""
        self._cache.forget(self)
        self.is_active = True
        self._bytes_since_entry = self.size - waiting(self.offset_index.last)[1]
        waiting(self.time_index.load_newest)
        waiting(self.load_max_timestamp)
        waiting(self.load_first_timestamp)
        self._set_is_index_full()

    def rest(self) -> None:
        """Nobody appended for a while: hold no index and no descriptor.

        The few entries of a small segment stay in memory: two files of a block each would take
        more room than many a partition's records.
        """
        waiting_entries = self._entries_without_files()
        if waiting_entries is None:
            self.write_pending()
        elif self._records is not None:
            self._records.file.trim()
        self._drop_files()
        self._waiting_entries = waiting_entries

    def _entries_without_files(self) -> tuple[bytes, bytes] | None:
        if self._offset_index is None or self._time_index is None:
            return self._waiting_entries
        offsets = self._offset_index.waiting_entries()
        times = self._time_index.waiting_entries()
        return None if offsets is None or times is None else (offsets, times)

    def begin_rebuild(self) -> None:
        """Forget what is known of the bytes: recovery notes every batch anew."""
        self.size = 0
        self._bytes_since_entry = 0
        self.first_timestamp = self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = self.base_offset
        self.offset_index.begin_rebuild()
        self.time_index.begin_rebuild()

    def resume_rebuild(self, place: BatchPlace, offset_entries: int, time_entries: int) -> None:
        """As ``begin_rebuild``, but what lies before the end of the indexed batch at ``place`` is
        known, and the first entries of both indexes are right: the last ones are that batch's."""
        self.size = place.position + place.size
        self._bytes_since_entry = place.size
        self.first_timestamp = UNKNOWN
        self.offset_index.begin_rebuild(offset_entries)
        self.time_index.begin_rebuild(time_entries)
        waiting(self.time_index.load_newest)
        self.max_timestamp, self.offset_of_max_timestamp = self.time_index.last()

    def finish_rebuild(self) -> bool:
        """Bring the index files in line with the batches that were noted; were they not?"""
        self.time_index.maybe_append(self.max_timestamp, self.offset_of_max_timestamp)
        is_changed = False
        for index in (self.offset_index, self.time_index):
            with contextlib.suppress(DiskFullError):
                is_changed = index.finish_rebuild() or is_changed
        return is_changed

    # Looking up ------------------------------------------------------------------------------

    def find_batch(self, offset: int) -> BatchPlace | None:
        """The batch that holds ``offset``, or the first one behind it."""
        for place in self._walk_to(offset, BLOCK_BYTES):
            if place.last_offset >= offset:
                self.records.check_is_whole(place.position, place.size)
                return place
        return None

    def find_cut(self, position: int, wanted: int, end: int) -> tuple[int, int]:
        """Where to stop on the way from the batch at ``position`` to ``wanted``, which lies
        inside a batch or behind one, and before ``end``.

        Gives the position behind the last batch that ends there or before (``position`` if there
        is none) and the offset to go on from.
        """
        start, promised = self.offset_index.batch_at_or_before(wanted)
        if start <= position:
            start, promised = position, -1
        next_offset = -1
        for place in self._walk_from(start, promised, end, BLOCK_BYTES):
            behind = place.position + place.size
            if behind > wanted:
                return place.position, place.base_offset
            start, next_offset = behind, place.last_offset + 1
        return start, next_offset

    def _walk_to(self, offset: int, block_bytes: int) -> Iterator[BatchPlace]:
        """Batches from the index entry before ``offset`` on."""
        position, promised = self.offset_index.position_before(offset)
        return self._walk_from(position, promised, self.size, block_bytes)

    def _walk_from(
        self, position: int, promised: int, end: int, block_bytes: int
    ) -> Iterator[BatchPlace]:
        """Batches from an index entry on, whose batch must end at ``promised`` (-1: no entry).

        If it does not, the index is damaged, and going by it could skip or split batches.
        """
        if promised >= 0 and position >= self.size:
            raise self._damaged_index(position)
        try:
            for place in self.records.walk(position, end, block_bytes):
                if promised >= 0 and place.last_offset != promised:
                    raise self._damaged_index(position)
                promised = -1
                yield place
        except CorruptLogError:
            if promised < 0:
                raise
            raise self._damaged_index(position) from None

    def _damaged_index(self, position: int) -> Exception:
        """What to raise: the repair of a sealed segment's index, once; damage otherwise."""
        if self.is_active or self._was_repaired:
            message = "index and log do not agree"
            return CorruptLogError(self.path(LOG_SUFFIX), position, self.base_offset, message)
        return PagesCold(IndexRepair(self))

    def replace_indexes(self) -> None:
        """Both indexes anew from the log, which is sealed. Waits for the disk: in a thread.

        They are built aside and renamed over the old ones, which a look-up may be reading.
        """
        _log.warning("%r: its index is damaged and is made anew", self)
        self._was_repaired = True
        twin = Segment(
            self._fs,
            SegmentCache(),
            self.directory,
            self.base_offset,
            size=self.size,
            max_index_bytes=self._max_index_bytes,
            index_interval_bytes=self.index_interval_bytes,
        )
        twin.suffix, twin._log_suffix = self.suffix, self._log_suffix
        offsets = twin._offset_index = self._index_aside(OffsetIndex, OFFSET_INDEX_SUFFIX)
        times = twin._time_index = self._index_aside(TimeIndex, TIME_INDEX_SUFFIX)
        twin.rebuild_indexes()
        twin.close_files()
        self._fs.rename(offsets.path, self.path(OFFSET_INDEX_SUFFIX))
        self._fs.rename(times.path, self.path(TIME_INDEX_SUFFIX))
        self._offset_index = None
        self._time_index = None
        self.max_timestamp = UNKNOWN

    def _index_aside(self, kind: type[Index], suffix: str) -> Index:
        """A new index, whose file is there at once, under a temporary name."""
        path = self.path(suffix) + TEMPORARY_SUFFIX
        index = kind(self._fs, path, self.base_offset, self._max_index_bytes, is_new=True)
        _ = index.file
        return index

    def rebuild_indexes(self) -> bool:
        """Bring offset and time index in line with the log; gives whether they were not.

        Waits for the disk; nobody may use the segment meanwhile.
        """
        file = self.records.file
        self.begin_rebuild()
        for place in self.records.walk_waiting(0, file.size):
            self.note_batch(place.size, place.last_offset, place.max_timestamp)
        return self.finish_rebuild()

    def load_max_timestamp(self) -> int:
        """Largest timestamp of the segment; -1 if it has none. Sealed ones keep it in the index."""
        if self.max_timestamp == UNKNOWN:
            timestamp, offset = self.time_index.last()
            self._check_time(timestamp, offset)
            self.max_timestamp, self.offset_of_max_timestamp = timestamp, offset
        return self.max_timestamp

    def _check_time(self, timestamp: int, offset: int) -> None:
        """An entry of the time index must name a batch that ends there and is that young."""
        if timestamp == NO_TIMESTAMP:
            return
        place = self.find_batch(offset)
        if place is None or (place.last_offset, place.max_timestamp) != (offset, timestamp):
            raise self._damaged_index(0 if place is None else place.position)

    def check_newest_entries(self) -> None:
        """Look at the end of both indexes, as a reader would: damage asks for its repair."""
        self.find_batch(self.offset_index.last()[0])
        self.load_max_timestamp()

    def load_first_timestamp(self) -> int:
        if self.first_timestamp == UNKNOWN:
            place = self.records.find_batch(self.base_offset, 0, self.size)
            self.first_timestamp = NO_TIMESTAMP if place is None else place.max_timestamp
        return self.first_timestamp

    def find_timestamp(self, timestamp: int, start_offset: int) -> BatchPlace | None:
        """First batch with a record as young as ``timestamp`` at ``start_offset`` or behind."""
        indexed_timestamp, indexed_offset = self.time_index.entry_before(timestamp)
        self._check_time(indexed_timestamp, indexed_offset)
        offset = max(indexed_offset, start_offset)
        for place in self._walk_to(offset, SCAN_BLOCK_BYTES):
            if place.max_timestamp >= timestamp and place.last_offset >= start_offset:
                return place
        return None

    def find_timestamp_behind(self, place: BatchPlace, timestamp: int) -> BatchPlace | None:
        """As ``find_timestamp``, going on behind ``place``."""
        position = place.position + place.size
        for later in self.records.walk(position, self.size, SCAN_BLOCK_BYTES):
            if later.max_timestamp >= timestamp:
                return later
        return None

    # Cutting ---------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that holds ``offset`` or anything behind it. Waits for the disk."""
        place = waiting(lambda: self.find_batch(offset))
        waiting(lambda: self.offset_index.truncate_to(offset))
        waiting(lambda: self.time_index.truncate_to(offset))
        if self.has_aborted_transactions:
            waiting(lambda: self.transaction_index.truncate_to(offset))
        if place is not None:
            self.records.file.truncate(place.position)
            self.size = place.position
        waiting(self._find_max_timestamp)

    def _find_max_timestamp(self) -> None:
        timestamp, offset = self.time_index.last()
        for place in self._walk_to(offset, SCAN_BLOCK_BYTES):
            if place.max_timestamp > timestamp:
                timestamp, offset = place.max_timestamp, place.last_offset
        self.max_timestamp, self.offset_of_max_timestamp = timestamp, offset
        self.first_timestamp = UNKNOWN if self.size else NO_TIMESTAMP
