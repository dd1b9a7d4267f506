"""Opening a log: what lies in its directory becomes a ``Log``, after whatever end the last run had.

After a clean stop only the end of the last segment is looked at. Otherwise every batch from the
segment that holds the recovery point on is checked (structure, offsets, epochs; CRC from the
recovery point on), its indexes, epochs and producer state are built anew, and the torn tail is
cut. After a mere ``kill -9`` the last segment is read only from its newest producer snapshot on
(``Log.checkpoint``): every byte that was written before is in the page cache. What a crash may leave behind:

- zeros or a torn batch behind the end (a mapped tail, an interrupted write): cut;
- lost pages, lost files above the recovery point after a *power loss*: the log ends before the
  first of them, and what follows is dropped, because nobody was promised that it would stay;
- the same after a mere ``kill -9``, in an earlier segment: the page cache had everything, so this
  is damage; the partition goes offline (``CorruptLogError``) and a human chooses;
- damage below the recovery point: offline, likewise. Never a silent cut.

Runs in threads, before the partition is served. A full disk does not stop it: entries that find
no room wait in memory.
"""

from __future__ import annotations

import contextlib
import logging
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from broker.config.topic_config import TopicConfig
from broker.model.errors import CorruptLogError, DiskFullError
from broker.model.ids import TopicId, TopicPartition
from broker.records.crc import crc32c
from broker.records.header import (
    CONTROL_FLAG,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    compute_crc,
    peek_header,
)
from broker.storage.checkpoints import parse_epochs, parse_partition_metadata
from broker.storage.cold import waiting
from broker.storage.context import StorageContext
from broker.storage.file_records import BatchPlace, FileRecords
from broker.storage.filesystem import DirectoryEntry, File
from broker.storage.interrupted_swap import finished_swap
from broker.storage.layout import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file_name,
    segment_file_name,
)
from broker.storage.leader_epochs import LeaderEpochs
from broker.storage.log import Log
from broker.storage.markers import marker_in
from broker.storage.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from broker.storage.producer_state import ProducerState
from broker.storage.replay import rebuild_producers
from broker.storage.segment import Segment
from broker.storage.segments import Segments
from broker.storage.snapshot_files import SnapshotFiles
from broker.storage.time_index import TimeIndex

_log = logging.getLogger(__name__)

_SCAN_BYTES: Final = 1024 * 1024
#: More than any request could bring: a header that claims it is damaged, and must not cost memory.
MAX_BATCH_BYTES: Final = 256 * 1024 * 1024
#: A clean start looks at the ends of so many segments' indexes; the others are judged by their
#: sizes, and by their readers.
CHECKED_SEGMENTS: Final = 16


class LoadRules(NamedTuple):
    """What the directory's checkpoints say of one log, and how the last run ended."""

    recovery_point: int
    log_start_offset: int
    was_clean: bool
    #: The machine was restarted since, or nobody knows: unsynced pages may be gone.
    power_was_lost: bool
    now_ms: int
    #: A human has chosen: the log ends before the first damage, and what lies behind it goes.
    accepts_loss: bool = False


def load_log(
    context: StorageContext,
    directory: str,
    topic_partition: TopicPartition,
    config: TopicConfig,
    rules: LoadRules,
) -> Log:
    """Open the log in ``directory``. Raises CorruptLogError when a human has to decide."""
    return _Loader(context, directory, topic_partition, config, rules).load()


def create_log(
    context: StorageContext,
    directory: str,
    topic_partition: TopicPartition,
    config: TopicConfig,
    start_offset: int,
    now_ms: int,
) -> Log:
    """A new, empty log in a directory that exists and is empty."""
    segment = _new_segment(context, directory, config, start_offset, now_ms)
    return Log(
        context,
        directory,
        topic_partition,
        None,
        config,
        [segment],
        log_start_offset=start_offset,
        log_end_offset=start_offset,
        recovery_point=start_offset,
        leader_epochs=LeaderEpochs(),
        producers=ProducerState(),
        snapshots=SnapshotFiles(context.fs, directory, []),
        now_ms=now_ms,
        is_on_disk=False,
    )


def _new_segment(
    context: StorageContext, directory: str, config: TopicConfig, base_offset: int, now_ms: int
) -> Segment:
    segment = Segment(
        context.fs,
        context.cache,
        directory,
        base_offset,
        changed_ms=now_ms,
        max_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
    )
    segment.create_files()
    return segment


class _Resumption(NamedTuple):
    """From where on the last segment is read: behind an indexed batch, just before a snapshot."""

    place: BatchPlace
    leader_epoch: int
    #: Entries of both indexes up to that batch.
    offset_entries: int
    time_entries: int
    snapshot_offset: int


class _Loader:
    def __init__(
        self,
        context: StorageContext,
        directory: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        rules: LoadRules,
    ) -> None:
        self._context = context
        self._fs = context.fs
        self._directory = directory
        self._topic_partition = topic_partition
        self._config = config
        self._rules = rules
        self._files: dict[str, DirectoryEntry] = {}
        self._segments: list[Segment] = []
        self._epochs = LeaderEpochs()
        self._producers = ProducerState()
        self._snapshots = SnapshotFiles(context.fs, directory, [])
        self._is_on_disk = rules.was_clean
        self._has_changed_names = False

    def load(self) -> Log:
        rules = self._rules
        self._list_files()
        self._epochs = LeaderEpochs(self._read_epochs())
        topic_id = self._read_topic_id()
        bases = {segment.base_offset for segment in self._segments}
        self._snapshots.drop_stray(bases)
        log_end_offset = -1
        if self._segments:
            log_end_offset = self._clean_end() if rules.was_clean else self._recover()
        if log_end_offset < rules.log_start_offset:
            self._start_empty(rules.log_start_offset)
            log_end_offset = rules.log_start_offset
        log_start_offset = max(rules.log_start_offset, self._segments[0].base_offset)
        self._epochs.truncate_from_end(log_end_offset)
        self._epochs.truncate_from_start(log_start_offset)
        self._snapshots.drop_above(log_end_offset)
        if rules.was_clean and self._snapshots.newest >= 0:
            # Without any snapshot a clean stop says that there was no producer to remember.
            self._rebuild_producers(log_end_offset)
        if self._has_changed_names:
            # Or a power loss could bring old files back beside, or over, what is written now.
            self._fs.sync_directory(self._directory)
        active = self._segments[-1]
        active.become_active()
        with contextlib.suppress(DiskFullError):
            active.rest()
        return Log(
            self._context,
            self._directory,
            self._topic_partition,
            topic_id,
            self._config,
            self._segments,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=log_end_offset if rules.was_clean else rules.recovery_point,
            leader_epochs=self._epochs,
            producers=self._producers,
            snapshots=self._snapshots,
            now_ms=rules.now_ms,
            is_on_disk=self._is_on_disk,
        )

    # Files -----------------------------------------------------------------------------------

    def _list_files(self) -> None:
        entries = self._fs.list_directory(self._directory)
        if any(entry.name.endswith(SWAP_SUFFIX) for entry in entries):
            self._finish_swap(entries)
            entries = self._fs.list_directory(self._directory)
        for entry in entries:
            if entry.is_directory:
                continue
            if entry.name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX)):
                self._remove_name(entry.name)
                continue
            self._files[entry.name] = entry
        offsets: dict[str, list[int]] = {}
        for name in self._files:
            parsed = parse_segment_file_name(name)
            if parsed is not None:
                offsets.setdefault(parsed[1], []).append(parsed[0])
        logs = set(offsets.get(LOG_SUFFIX, ()))
        for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            for base_offset in set(offsets.get(suffix, ())) - logs:
                self._remove_name(segment_file_name(base_offset, suffix))
        self._segments = [self._segment(base_offset) for base_offset in sorted(logs)]
        self._snapshots = SnapshotFiles(self._fs, self._directory, offsets.get(SNAPSHOT_SUFFIX, []))

    def _finish_swap(self, entries: list[DirectoryEntry]) -> None:
        sizes = {entry.name: entry.size for entry in entries}

        def end_offset(name: str, base_offset: int) -> int:
            file = self._fs.open(f"{self._directory}/{name}", size=sizes[name])
            try:
                end = base_offset
                for place in FileRecords(file).walk_waiting(0, file.size):
                    end = place.last_offset + 1
            finally:
                file.close()
            return end

        finish, drop = finished_swap(sizes, end_offset)
        # A power loss may keep any subset of what no sync has parted: what is replaced goes first,
        # and while a ``.log.swap`` is there nothing under a final name in its range is new.
        for name in sorted(drop):
            self._remove_name(name)
        self._fs.sync_directory(self._directory)
        logs = [name for name in finish if name.endswith(LOG_SUFFIX)]
        for names in (logs, set(finish) - set(logs)):
            for name in sorted(names):
                self._fs.rename(f"{self._directory}/{finish[name]}", f"{self._directory}/{name}")
            self._fs.sync_directory(self._directory)
        self._has_changed_names = True

    def _remove_name(self, name: str) -> None:
        self._fs.remove(f"{self._directory}/{name}")
        self._has_changed_names = True

    def _segment(self, base_offset: int) -> Segment:
        log = self._files[segment_file_name(base_offset, LOG_SUFFIX)]
        return Segment(
            self._fs,
            self._context.cache,
            self._directory,
            base_offset,
            size=log.size,
            transaction_index_size=self._size(base_offset, TRANSACTION_INDEX_SUFFIX),
            changed_ms=log.modified_ms,
            max_index_bytes=self._config.segment_index_bytes,
            index_interval_bytes=self._config.index_interval_bytes,
        )

    def _size(self, base_offset: int, suffix: str) -> int:
        entry = self._files.get(segment_file_name(base_offset, suffix))
        return 0 if entry is None else entry.size

    def _read_epochs(self) -> list[tuple[int, int]]:
        if LEADER_EPOCH_CHECKPOINT not in self._files:
            return []
        data = self._fs.read_bytes(f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}")
        return parse_epochs(data) or []

    def _read_topic_id(self) -> TopicId | None:
        if PARTITION_METADATA not in self._files:
            return None
        return parse_partition_metadata(
            self._fs.read_bytes(f"{self._directory}/{PARTITION_METADATA}")
        )

    def _start_empty(self, start_offset: int) -> None:
        """Nothing readable is left at or above the log start: go on empty from there."""
        if self._segments:
            _log.warning("%s: all segments lie below the log start", self._topic_partition)
            self._remove(self._segments)
        self._epochs.clear()
        self._snapshots.drop_above(-1)
        self._has_changed_names = True
        now_ms = self._rules.now_ms
        self._segments = [
            _new_segment(self._context, self._directory, self._config, start_offset, now_ms)
        ]

    def _rebuild_producers(self, end_offset: int) -> None:
        rebuild_producers(
            self._producers,
            self._snapshots,
            Segments(self._segments),
            end_offset,
            self._rules.now_ms - self._context.producer_id_expiration_ms,
        )

    def _remove(self, segments: list[Segment]) -> None:
        for segment in segments:
            segment.close_files()
            segment.remove_files(self._fs)
        self._has_changed_names = True

    # After a clean stop ----------------------------------------------------------------------

    def _clean_end(self) -> int:
        """Log end offset, from the last segment's last index entry on."""
        for segment in self._segments:
            if not self._has_plausible_indexes(segment):
                self._rebuild_indexes(segment)
        self._check_newest(self._segments[:-1])
        last = self._segments[-1]
        try:
            end = self._end_of(last)
        except CorruptLogError:
            # A foreign hand, then: does the index lie, or is it the log?
            self._rebuild_indexes(last)
            end = self._end_of(last)
        waiting(last.load_max_timestamp)
        return end

    def _check_newest(self, sealed: list[Segment]) -> None:
        for segment in sealed[-CHECKED_SEGMENTS:]:
            waiting(segment.check_newest_entries)
            segment.drop_indexes()

    def _end_of(self, segment: Segment) -> int:
        """Offset behind a segment's last batch, going on from its last index entry."""
        end = segment.base_offset
        indexed, position = waiting(segment.offset_index.last) if segment.size else (-1, 0)
        for place in segment.records.walk_waiting(position, segment.size):
            if position and place.position == position and place.last_offset != indexed:
                raise self._offline(segment, indexed, "index and log do not agree")
            end = place.last_offset + 1
        return end

    def _has_plausible_indexes(self, segment: Segment) -> bool:
        """Judged by sizes alone, which costs no read.

        Kafka leaves indexes full of zeros when it is killed; a missing or empty index beside a
        segment with more than one entry's worth of bytes was lost.
        """
        if not segment.size:
            return True
        interval = max(self._config.index_interval_bytes, 1)
        most = segment.size // interval + 1
        for suffix, entry_size, least in (
            (OFFSET_INDEX_SUFFIX, OffsetIndex.ENTRY.size, segment.size > interval),
            (TIME_INDEX_SUFFIX, TimeIndex.ENTRY.size, True),
        ):
            entry = self._files.get(segment_file_name(segment.base_offset, suffix))
            if entry is None or entry.size % entry_size or entry.size // entry_size < least:
                return False
            if entry.size // entry_size > most and self._ends_in_zeros(segment, suffix, entry):
                return False
        return True

    def _ends_in_zeros(self, segment: Segment, suffix: str, entry: DirectoryEntry) -> bool:
        file = self._fs.open(segment.path(suffix), size=entry.size)
        try:
            return not any(file.pread(8, entry.size - 8))
        finally:
            file.close()

    def _rebuild_indexes(self, segment: Segment) -> None:
        """An index may be missing or wrong, the log is whole: index it anew."""
        if not segment.rebuild_indexes():
            return
        _log.warning("%s: built the indexes of %r anew", self._topic_partition, segment)
        self._is_on_disk = False
        # It lies below the recovery point, where nobody will doubt it again.
        for file in segment.open_files():
            file.datasync()
        self._fs.sync_directory(self._directory)

    # After anything else ---------------------------------------------------------------------

    def _recover(self) -> int:
        self._drop_below_log_start()
        segments = Segments(self._segments)
        first = segments.slot_for(self._rules.recovery_point)
        for segment in self._segments[:first]:
            if not self._has_plausible_indexes(segment):
                self._rebuild_indexes(segment)
        self._check_newest(self._segments[:first])
        base_offset = self._segments[first].base_offset
        self._rebuild_producers(base_offset)
        next_offset = base_offset
        leader_epoch = -1
        for slot in range(first, len(self._segments)):
            segment = self._segments[slot]
            if slot > first and not self._follows(segment, next_offset):
                self._drop_from(slot)
                break
            found_size = segment.size
            start = max(next_offset, segment.base_offset)
            scan, fault = self._scan(slot, start, leader_epoch)
            next_offset, leader_epoch = scan.next_offset, scan.last_epoch
            if fault:
                self._on_fault(slot, next_offset, fault)
                self._finish_indexes(segment)
                self._cut(segment, found_size, fault)
                self._drop_from(slot + 1)
                break
            self._finish_indexes(segment)
        return next_offset

    def _scan(self, slot: int, next_offset: int, leader_epoch: int) -> tuple[_SegmentScan, str]:
        """Go over one segment; gives the fault that ended it, or ''."""
        segment = self._segments[slot]
        resumption = self._resumption(segment) if slot == len(self._segments) - 1 else None
        if resumption is not None:
            before = self._producers
            self._producers = ProducerState()
            snapshot_offset = resumption.snapshot_offset
            self._rebuild_producers(snapshot_offset)
            scan = _SegmentScan(
                self._context,
                segment,
                self._epochs,
                self._producers,
                resumption.leader_epoch,
                snapshot_offset,
            )
            fault = scan.resume(self._rules.recovery_point, resumption)
            if scan.next_offset >= snapshot_offset:
                return scan, fault
            # A foreign hand: it ends before its snapshot.
            self._snapshots.drop_above(scan.next_offset)
            self._producers = before
        scan = _SegmentScan(
            self._context, segment, self._epochs, self._producers, leader_epoch, segment.base_offset
        )
        return scan, scan.run(self._rules.recovery_point, next_offset)

    def _resumption(self, segment: Segment) -> _Resumption | None:
        """Where to go on in the last segment, if what lies before it can be trusted.

        Only on the same boot: then every byte and every entry is there that was written before the
        snapshot was. The batch that is begun behind proves that index and log belong together.
        """
        snapshot_offset = self._snapshots.newest
        if (
            self._rules.power_was_lost
            or not segment.base_offset < snapshot_offset
            or snapshot_offset < self._rules.log_start_offset
        ):
            return None
        newest = self._snapshots.load_newest(snapshot_offset)
        if newest is None or newest[0] != snapshot_offset:
            return None
        keys, positions = segment.offset_index.sound_prefix()
        entries = bisect_left(keys, snapshot_offset - segment.base_offset)
        if not entries:
            return None
        header, size = self._checked_batch(segment, positions[entries - 1])
        last_offset = segment.base_offset + keys[entries - 1]
        if header is None or header.last_offset != last_offset:
            return None
        place = BatchPlace(
            positions[entries - 1], size, header.base_offset, last_offset, header.newest_timestamp
        )
        time_entries = self._time_entries_up_to(segment, place)
        if time_entries < 0:
            return None
        leader_epoch = header.partition_leader_epoch
        return _Resumption(place, leader_epoch, entries, time_entries, snapshot_offset)

    def _time_entries_up_to(self, segment: Segment, place: BatchPlace) -> int:
        """How many there are up to the end of an indexed batch; -1 if they cannot be right."""
        times, offsets = segment.time_index.sound_prefix()
        count = bisect_right(offsets, place.last_offset - segment.base_offset)
        if not count:
            return 0 if place.max_timestamp < 0 else -1
        timestamp, offset = times[count - 1], segment.base_offset + offsets[count - 1]
        if timestamp < place.max_timestamp:
            return -1  # that batch would have had an entry of its own
        try:
            found = waiting(lambda: segment.find_batch(offset))
        except CorruptLogError:
            return -1
        is_right = found is not None and (found.last_offset, found.max_timestamp) == (
            offset,
            timestamp,
        )
        return count if is_right else -1

    def _checked_batch(self, segment: Segment, position: int) -> tuple[BatchHeader | None, int]:
        """The header of a whole batch with a right sum, and its size; None if there is none."""
        file = segment.records.file
        start = file.pread(HEADER_SIZE, position)
        if len(start) < HEADER_SIZE:
            return None, 0
        header = peek_header(start)
        size = header.size_in_bytes
        if header.magic != MAGIC or not HEADER_SIZE <= size <= MAX_BATCH_BYTES:
            return None, 0
        batch = file.pread(size, position)
        if len(batch) < size or compute_crc(batch, 0, size) != header.crc:
            return None, 0
        return header, size

    def _finish_indexes(self, segment: Segment) -> None:
        segment.finish_rebuild()
        with contextlib.suppress(DiskFullError):
            segment.make_index_files()
        with contextlib.suppress(DiskFullError):
            segment.transaction_index.finish_rebuild()

    def _drop_below_log_start(self) -> None:
        """What DeleteRecords or retention took, but for files that a crash kept or brought back."""
        start_offset = self._rules.log_start_offset
        count = sum(segment.base_offset <= start_offset for segment in self._segments[1:])
        if count:
            self._remove(self._segments[:count])
            self._segments = self._segments[count:]

    def _follows(self, segment: Segment, next_offset: int) -> bool:
        """Whether ``segment`` goes on where the last one ended, or may begin later."""
        if segment.base_offset == next_offset:
            return True
        if segment.base_offset < next_offset:
            if self._rules.power_was_lost or self._rules.accepts_loss:
                return False
            raise self._offline(segment, next_offset, "offsets overlap with the segment before")
        return not self._rules.power_was_lost or (
            self._config.is_compacted and segment.base_offset > next_offset
        )

    def _on_fault(self, slot: int, next_offset: int, fault: str) -> None:
        if self._rules.accepts_loss:
            return
        segment = self._segments[slot]
        if next_offset < self._rules.recovery_point:
            raise self._offline(segment, next_offset, f"{fault}, below the recovery point")
        # An empty one was just being made; nothing is lost with it.
        followers = any(later.size for later in self._segments[slot + 1 :])
        if followers and not self._rules.power_was_lost:
            raise self._offline(segment, next_offset, f"{fault}, and segments follow")

    def _offline(self, segment: Segment, offset: int, message: str) -> CorruptLogError:
        return CorruptLogError(segment.path(LOG_SUFFIX), segment.size, offset, message)

    def _cut(self, segment: Segment, found_size: int, fault: str) -> None:
        _log.info(
            "%s: %d bytes behind the end of %r cut (%s)",
            self._topic_partition,
            found_size - segment.size,
            segment,
            fault,
        )
        file = segment.records.file
        file.truncate(segment.size)
        # Or the rest could come back beside bytes that are written over it now.
        file.datasync()

    def _drop_from(self, slot: int) -> None:
        doomed = self._segments[slot:]
        if doomed:
            _log.warning(
                "%s: dropping %d unsynced segments behind lost bytes, from %d on",
                self._topic_partition,
                len(doomed),
                doomed[0].base_offset,
            )
            self._remove(doomed)
            self._segments = self._segments[:slot]


class _SegmentScan:
    """One pass over a segment: counts what is valid, indexes it, learns epochs and producers."""

    def __init__(
        self,
        context: StorageContext,
        segment: Segment,
        epochs: LeaderEpochs,
        producers: ProducerState,
        last_epoch: int,
        producers_from: int,
    ) -> None:
        self._context = context
        self._segment = segment
        self._epochs = epochs
        self._producers = producers
        #: Of the last batch: leader epochs never fall along a log.
        self.last_epoch = last_epoch
        #: Batches that end below do not count for producers: they are in a snapshot. Those below the log
        #: start do count, as in Kafka's recovery: where DeleteRecords left no more than a producer's marker,
        #: its next sequence would otherwise be out of order (KAFKA-7298).
        self._producers_from = producers_from
        self._checked_from = 0
        self.next_offset = 0

    def run(self, checked_from: int, next_offset: int) -> str:
        """Go over all bytes; CRCs from ``checked_from`` on. Gives the fault that ended it, or ''.

        The segment's size is that of its valid part afterwards.
        """
        segment = self._segment
        self.next_offset = next_offset
        file = segment.records.file  # opened by the size that is forgotten now
        segment.begin_rebuild()
        segment.transaction_index.begin_rebuild()
        return self._run(file, checked_from)

    def resume(self, checked_from: int, resumption: _Resumption) -> str:
        """As ``run``, but behind a batch that is known, and whose indexes are."""
        place, _, offset_entries, time_entries, snapshot_offset = resumption
        segment = self._segment
        self.next_offset = place.last_offset + 1
        file = segment.records.file
        segment.resume_rebuild(place, offset_entries, time_entries)
        segment.transaction_index.begin_rebuild(snapshot_offset)
        return self._run(file, checked_from)

    def _run(self, file: File, checked_from: int) -> str:
        segment = self._segment
        self._checked_from = checked_from
        size = file.size
        while segment.size < size:
            self._context.check_interrupt()
            start = segment.size
            block = memoryview(file.pread(min(_SCAN_BYTES, size - start), start))
            fault, wanted = self._scan_block(block, size - start)
            if wanted > MAX_BATCH_BYTES:
                fault = "no batch"
            if fault:
                return fault
            if segment.size == start:
                block = memoryview(file.pread(wanted, start))
                fault, _ = self._scan_block(block, size - start)
                if fault:
                    return fault
        return ""

    def _scan_block(self, block: memoryview, left: int) -> tuple[str, int]:
        """Take whole batches off the block. Gives a fault, and the size of the unfinished one.

        Hot path of a start after a crash: 1 us a batch, as all of the tail goes through here.
        """
        at = 0
        end = len(block)
        unpack, note_batch = HEADER.unpack_from, self._segment.note_batch
        checked_from, next_offset = self._checked_from, self.next_offset
        last_possible = self._segment.base_offset + MAX_RELATIVE_OFFSET
        while end - at >= HEADER_SIZE:
            fields = unpack(block, at)
            base_offset, length, leader_epoch, magic, crc, _, delta, _, max_timestamp = fields[:9]
            size = length + LOG_OVERHEAD
            last_offset = base_offset + delta
            is_odd = magic != MAGIC or leader_epoch != self.last_epoch or base_offset != next_offset
            is_odd |= not base_offset <= last_offset <= last_possible
            if is_odd or not HEADER_SIZE <= size <= left - at:
                fault = self._fault_of(BatchHeader._make(fields), left - at, next_offset)
                if fault:
                    return fault, 0
            if at + size > end:
                return "", size
            if last_offset >= checked_from and crc32c(block[at + CRC_START : at + size]) != crc:
                return "a wrong sum", 0
            if leader_epoch > self.last_epoch:
                self._begin_epoch(leader_epoch, base_offset)
            # A batch that compaction has emptied is in no time index: its records are gone.
            note_batch(size, last_offset, max_timestamp if fields[12] else NO_TIMESTAMP)
            if fields[9] >= 0 and last_offset >= self._producers_from:
                self._note_producer(BatchHeader._make(fields), block[at : at + size])
            self.next_offset = next_offset = last_offset + 1
            at += size
        is_torn = at < end and left - at < HEADER_SIZE
        return ("a torn header" if is_torn else ""), HEADER_SIZE

    def _fault_of(self, header: BatchHeader, left: int, next_offset: int) -> str:
        size = header.size_in_bytes
        if size < HEADER_SIZE or header.magic != MAGIC:
            return "no batch"
        if size > left:
            return "a torn batch"
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            return f"offset {header.base_offset} where {next_offset} was due"
        if header.last_offset - self._segment.base_offset > MAX_RELATIVE_OFFSET:
            return f"offset {header.last_offset} too far from the segment's base"
        if 0 <= header.partition_leader_epoch < self.last_epoch:
            return f"leader epoch {header.partition_leader_epoch} behind {self.last_epoch}"
        return ""

    def _begin_epoch(self, leader_epoch: int, base_offset: int) -> None:
        self.last_epoch = leader_epoch
        if leader_epoch > self._epochs.latest:
            self._epochs.assign(leader_epoch, base_offset)

    def _note_producer(self, header: BatchHeader, batch: memoryview) -> None:
        if not header.attributes & CONTROL_FLAG:
            self._producers.update(header, header.base_offset)
            return
        marker = marker_in(batch)
        if marker is not None:
            aborted = self._producers.end_transaction(header, marker, header.base_offset)
            if aborted is not None:
                self._segment.transaction_index.append(aborted)
