"""One partition's log: appends, reads, rolls, cuts.

Everything here runs on the loop and touches only the page cache; whatever must reach the disk is
given out as ``FlushNeeded``. After ``kill -9`` nothing that was appended is lost (the page cache
survives); after a power loss nothing below ``flushed_offset``. A full disk (``DiskFullError``)
leaves the log as it was; any other failure of the file system is ``StorageError`` and takes the
directory offline.

Hot path: ``append_as_leader`` runs per produced batch: 3.2 us for a tiny one with its pwrite,
1.9 us into a mapped tail, 1.3 us more with a producer id or an index entry (Python 3.11, 2-core
Xeon). No work per record, no search, one index entry every 4 KiB.
"""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, Final, NamedTuple, ParamSpec, TypeVar

from broker.config.topic_config import TopicConfig
from broker.model.error_code import ErrorCode
from broker.model.errors import (
    CorruptLogError,
    DiskFullError,
    KafkaError,
    NoDescriptorError,
    StorageError,
)
from broker.model.ids import TopicId, TopicPartition
from broker.records.header import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    BatchHeader,
    MalformedBatch,
    compute_crc,
    stamp,
    walk_headers,
)
from broker.storage.append_info import AppendInfo
from broker.storage.checkpoints import encode_epochs, encode_partition_metadata
from broker.storage.cold import ColdRead, PagesCold
from broker.storage.context import DoomedSegments, StorageContext
from broker.storage.filesystem import File, FileSystem
from broker.storage.flush import FlushNeeded, Unsynced
from broker.storage.layout import DELETED_SUFFIX, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA
from broker.storage.leader_epochs import LeaderEpochs
from broker.storage.log_reader import LogRead, LogReader, TimestampOffset
from broker.storage.markers import marker_in
from broker.storage.producer_state import ProducerEntry, ProducerState
from broker.storage.replay import rebuild_producers
from broker.storage.retention import (
    Doomed,
    RetentionRules,
    SegmentFacts,
    roll_age_ms,
    segments_to_delete,
)
from broker.storage.segment import Segment
from broker.storage.segments import Segments
from broker.storage.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from broker.storage.segment_swap import SegmentSwap

#: So much of an active segment, at most and roughly, is read by a start after ``kill -9``. With many
#: producers it is more: their snapshot must cost little beside what it spares.
CHECKPOINT_BYTES: Final = 64 * 1024 * 1024
PRODUCERS_A_CHECKPOINT: Final = 1000
#: A partition that appended this much within a tick window is hot: its tail gets mapped.
HOT_BYTES: Final = 1024 * 1024


P = ParamSpec("P")
R = TypeVar("R")


def _fails_with_directory(
    method: Callable[Concatenate[Log, P], R],
) -> Callable[Concatenate[Log, P], R]:
    """What the file system refuses, but for want of room, is the end of the log directory."""

    @functools.wraps(method)
    def guarded(self: Log, /, *arguments: P.args, **options: P.kwargs) -> R:
        try:
            return method(self, *arguments, **options)
        except OSError as error:
            raise StorageError(self._context.log_dir, str(error)) from error

    return guarded


class RetentionOutcome(NamedTuple):
    """What retention takes, and the sync that it asks for if it rolled."""

    doomed: list[Doomed]
    flush: FlushNeeded | None


class Log:
    """See the module. Offsets: ``log_start_offset`` <= ``flushed_offset`` <= ``log_end_offset``,
    but for DeleteRecords, which may move the start beyond what is on disk."""

    __slots__ = (
        "_asked_offset",
        "_checkpoint_offset",
        "_checkpoint_size",
        "_condemned",
        "_context",
        "_cut_count",
        "_indexed_offset",
        "_is_flushing",
        "_reader",
        "_roll_ms",
        "_segment_bytes",
        "_segments",
        "_snapshots",
        "_unflushed_since_ms",
        "_unsynced",
        "cleaned_offset",
        "condemned_offset",
        "config",
        "directory",
        "flushed_offset",
        "high_watermark",
        "is_deleted",
        "is_hot",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "swap",
        "topic_id",
        "topic_partition",
        "window_bytes",
    )

    def __init__(
        self,
        context: StorageContext,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        config: TopicConfig,
        segments: list[Segment],
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        leader_epochs: LeaderEpochs,
        producers: ProducerState,
        snapshots: SnapshotFiles,
        now_ms: int,
        is_on_disk: bool,
    ) -> None:
        self._context = context
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._segments = Segments(segments)
        self._reader = LogReader(self._segments)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        #: Everything below is on disk. It is also the recovery point: recovery begins here.
        self.flushed_offset = min(recovery_point, log_end_offset)
        self.high_watermark = log_start_offset
        self.leader_epochs = leader_epochs
        self.producers = producers
        #: Up to here a flush was asked for, and when the first append behind it came.
        self._asked_offset = self.flushed_offset
        self._unflushed_since_ms = now_ms
        #: Bytes appended since the last tick, and whether the active segment's tail is mapped.
        self.window_bytes = 0
        self.is_hot = False
        #: The directory was given up under a flush that may still run.
        self.is_deleted = False
        self._snapshots = snapshots
        self._unsynced = Unsynced(
            [
                segment
                for slot, segment in enumerate(segments[:-1])
                if segments[slot + 1].base_offset > self.flushed_offset
            ]
        )
        if not is_on_disk:
            self._note_everything()
        #: Compaction has been over everything below; -1: it never ran.
        self.cleaned_offset = -1
        #: What retention has chosen and not taken yet, and where the log will start behind it.
        self._condemned: list[Doomed] = []
        self.condemned_offset = -1
        #: Cleaned segments are being put in place: no other may come or go meanwhile.
        self.swap: SegmentSwap | None = None
        self._is_flushing = False
        self._cut_count = 0
        #: Of the active segment, when its producers were last written down, and at which offset.
        self._checkpoint_size = 0
        self._checkpoint_offset = -1
        #: The log end when the active segment's indexes were last synced; a flush leaves them out.
        self._indexed_offset = log_end_offset if is_on_disk else -1
        self.set_config(config)

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, [{self.log_start_offset}, {self.log_end_offset}))"

    def _note_everything(self) -> None:
        """New, or left by a process that died: nobody knows which small files were synced."""
        self._unsynced.note_directory(self.directory)
        self._unsynced.note_directory(self._context.log_dir)
        if self.topic_id is not None:
            self._unsynced.note_file(f"{self.directory}/{PARTITION_METADATA}")
        for path in self._snapshots.paths():
            self._unsynced.note_file(path)
        self.leader_epochs.version += 1

    # State -----------------------------------------------------------------------------------

    def set_config(self, config: TopicConfig) -> None:
        """Takes effect with the next append, read or retention pass."""
        self.config = config
        self._segment_bytes = config.segment_bytes
        active = self._segments.active
        active.set_max_index_bytes(config.segment_index_bytes)
        active.index_interval_bytes = config.index_interval_bytes
        self._set_roll_ms()

    def _set_roll_ms(self) -> None:
        """``segment.ms`` (or ``max.compaction.lag.ms``) less this segment's share of the jitter, so that logs do not roll at once."""
        config = self.config
        segment_ms = config.segment_ms
        if config.is_compacted:
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)  # the active one waits else
        jitter = min(config.segment_jitter_ms, segment_ms)
        if jitter > 0:
            name = f"{self.topic_partition}:{self._segments.active.base_offset}"
            jitter = zlib.crc32(name.encode()) % jitter
        self._roll_ms = segment_ms - jitter

    @property
    def recovery_point(self) -> int:
        """Recovery begins in the segment that holds this offset, and trusts what lies before.

        A group commit leaves indexes out, so the point stays inside a segment whose indexes are
        not on disk, though every record of it may be. Checkpoints read it in a thread.
        """
        flushed = self.flushed_offset
        sealed = self._unsynced.sealed
        if sealed:
            return min(flushed, self._segments.end_behind(sealed[0], flushed) - 1)
        if flushed > self._segments.active.base_offset and flushed != self._indexed_offset:
            return flushed - 1
        return flushed

    @property
    def size_in_bytes(self) -> int:
        return self._segments.size_in_bytes

    @property
    def segments(self) -> Segments:
        return self._segments

    def set_high_watermark(self, high_watermark: int) -> None:
        """Bounds what retention deletes and which ended transactions are stable."""
        self.high_watermark = high_watermark
        self.producers.on_high_watermark(high_watermark)

    @property
    def first_unstable_offset(self) -> int:
        """-1 when no transaction holds readers back."""
        offset = self.producers.first_unstable_offset
        return offset if offset < 0 else max(offset, self.log_start_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where read_committed readers stop."""
        unstable = self.producers.first_unstable_offset
        if unstable < 0 or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.log_start_offset)

    @_fails_with_directory
    def set_topic_id(self, topic_id: TopicId) -> None:
        """Note whose partition this is; it reaches the disk with the next flush."""
        self.topic_id = topic_id
        path = f"{self.directory}/{PARTITION_METADATA}"
        self._context.shared.replace(path, encode_partition_metadata(topic_id), sync=False)
        self._unsynced.note_file(path)
        self._unsynced.note_directory(self.directory)

    def active_producers(self) -> list[ProducerEntry]:
        """What DescribeProducers tells."""
        return list(self.producers.entries.values())

    # Leader epochs ---------------------------------------------------------------------------

    @property
    def latest_leader_epoch(self) -> int:
        return self.leader_epochs.latest

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """This replica leads from the log end offset on."""
        self.leader_epochs.assign(leader_epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        return self.leader_epochs.epoch_at(offset)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) for OffsetForLeaderEpoch; (-1, -1) when unknown."""
        return self.leader_epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # Appending -------------------------------------------------------------------------------

    def append_as_leader(
        self, batch: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        """Store one validated batch behind the log end, stamping offset and epoch into it."""
        has_producer = header.producer_id >= 0
        if has_producer:
            if header.attributes & CONTROL_FLAG:
                self._check_marker(batch, header)
            else:
                duplicate = self.producers.check(header)
                if duplicate is not None:
                    return AppendInfo(
                        duplicate.base_offset,
                        duplicate.last_offset,
                        duplicate.timestamp,
                        self.log_start_offset,
                        duplicate.offset_delta + 1,
                        None,
                        True,
                    )
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        if base_offset == self._asked_offset:
            self._unflushed_since_ms = now_ms
        rolled = self._roll_if_due(len(batch), last_offset, header.max_timestamp, now_ms)
        stamp(batch, 0, base_offset, leader_epoch)
        if leader_epoch > self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, base_offset)
        self._store(batch, last_offset, header.max_timestamp)
        if has_producer:
            self._note_producer(batch, header, base_offset)
        return AppendInfo(
            base_offset,
            last_offset,
            header.max_timestamp if header.attributes & LOG_APPEND_TIME_FLAG else -1,
            self.log_start_offset,
            header.record_count,
            rolled,
        )

    def append_as_follower(self, data: memoryview | bytearray | bytes, now_ms: int) -> AppendInfo:
        """Store batches with the leader's offsets and epochs, after checking each of them.

        Raises ``CorruptLogError`` for a bad sum, a torn batch or offsets that do not go on from
        the log end; the batches before it have been stored then, and it is to be fetched again.

        An empty log may be told to begin amid a batch, where records were deleted up to there: it
        goes on from that batch's first offset then, and its start stays (as in Kafka).
        """
        first_offset = self.log_end_offset
        if first_offset == self._asked_offset:
            self._unflushed_since_ms = now_ms
        records = 0
        rolled: FlushNeeded | None = None
        view = memoryview(data)
        position = 0
        try:
            for position, header in walk_headers(view):
                batch = view[position : position + header.size_in_bytes]
                start_offset = self.log_start_offset
                is_amid = self._is_start_amid(header)
                self._check_replicated(batch, header, position, is_amid)
                if is_amid:
                    self.truncate_fully_and_start_at(header.base_offset)
                last_offset = header.last_offset
                rolled = (
                    self._roll_if_due(len(batch), last_offset, header.max_timestamp, now_ms)
                    or rolled
                )
                leader_epoch = header.partition_leader_epoch
                if leader_epoch > self.leader_epochs.latest:
                    self.leader_epochs.assign(leader_epoch, header.base_offset)
                self._store(batch, last_offset, header.max_timestamp)
                if header.producer_id >= 0:
                    self._note_producer(batch, header, header.base_offset)
                records += header.record_count
                if is_amid:
                    self.log_start_offset = start_offset
                    self.leader_epochs.truncate_from_start(start_offset)
        except MalformedBatch as error:
            raise CorruptLogError(
                "data from the leader", position, self.log_end_offset, str(error)
            ) from error
        return AppendInfo(
            first_offset, self.log_end_offset - 1, -1, self.log_start_offset, records, rolled
        )

    def _is_start_amid(self, header: BatchHeader) -> bool:
        """Whether this log holds nothing, and would begin between two records of this batch."""
        end_offset = self.log_end_offset
        is_empty = end_offset == self.log_start_offset
        return is_empty and header.base_offset < end_offset <= header.last_offset

    def _check_replicated(
        self, batch: memoryview, header: BatchHeader, position: int, is_amid: bool
    ) -> None:
        if header.base_offset < self.log_end_offset and not is_amid:
            problem = f"base offset {header.base_offset} lies below the log end"
        elif header.last_offset_delta < 0 or compute_crc(batch, 0, len(batch)) != header.crc:
            problem = "its sum is wrong"
        else:
            return
        raise CorruptLogError("data from the leader", position, self.log_end_offset, problem)

    def _store(self, batch: memoryview | bytearray, last_offset: int, max_timestamp: int) -> None:
        try:
            self._segments.active.append(batch, last_offset, max_timestamp)
        except OSError as error:
            raise StorageError(self._context.log_dir, str(error)) from error
        self.log_end_offset = last_offset + 1
        if not self.window_bytes:
            self._context.touched.append(self)
        length = len(batch)
        self.window_bytes += length
        self._context.appended_bytes += length
        if self.window_bytes >= HOT_BYTES and not self.is_hot:
            self._heat()

    def _check_marker(self, batch: memoryview | bytearray, header: BatchHeader) -> None:
        marker = marker_in(batch)
        if marker is not None:
            self.producers.check_marker(header, marker)

    def _note_producer(
        self, batch: memoryview | bytearray, header: BatchHeader, base_offset: int
    ) -> None:
        if not header.attributes & CONTROL_FLAG:
            self.producers.update(header, base_offset)
            return
        marker = marker_in(batch)
        if marker is None:
            return
        aborted = self.producers.end_transaction(header, marker, base_offset)
        if aborted is not None:
            self._segments.active.transaction_index.append(aborted)

    # Rolling ---------------------------------------------------------------------------------

    def _roll_if_due(
        self, length: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> FlushNeeded | None:
        segment = self._segments.active
        size = segment.size
        if (
            size + length <= self._segment_bytes
            and not segment.is_index_full
            and segment.has_room_for(last_offset, length)
            and (not size or self._age_ms(segment, max_timestamp, now_ms) <= self._roll_ms)
        ):
            return None
        if length > self._segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"A batch of {length} bytes does not fit into a segment of {self._segment_bytes}",
            )
        return self.roll(now_ms)

    @staticmethod
    def _age_ms(segment: Segment, max_timestamp: int, now_ms: int) -> int:
        first_timestamp = segment.first_timestamp
        if first_timestamp < 0:
            first_timestamp = segment.load_first_timestamp()
        if first_timestamp >= 0:
            return max_timestamp - first_timestamp
        return now_ms - segment.created_ms

    @_fails_with_directory
    def roll(self, now_ms: int) -> FlushNeeded | None:
        """Seal the active segment and begin a new one at the log end.

        Gives the sync that lets the recovery point pass the sealed one, None if the active
        segment is empty. DiskFullError leaves the log as it was.
        """
        old = self._segments.active
        base_offset = self.log_end_offset
        if not old.size:
            return None
        context = self._context
        new = Segment(
            context.fs,
            context.cache,
            self.directory,
            base_offset,
            changed_ms=now_ms,
            max_index_bytes=self.config.segment_index_bytes,
            index_interval_bytes=self.config.index_interval_bytes,
        )
        # Sealed first: a kill must not leave a tail of zeros before another segment, and a snapshot
        # says that the index entries of what lies before it are in their files.
        old.seal()
        self._write_snapshot(base_offset)
        new.create_files()
        old.changed_ms = now_ms
        old.become_sealed()
        self._segments.append(new)
        self._unsynced.sealed.append(old)
        self._unsynced.note_directory(self.directory)
        self.is_hot = False
        self._checkpoint_size = 0
        self._set_roll_ms()
        return self._flush(base_offset)

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether ``checkpoint`` would spare the next start a good deal of reading."""
        factor = 1 + len(self.producers.entries) // PRODUCERS_A_CHECKPOINT
        return self._segments.active.size - self._checkpoint_size >= CHECKPOINT_BYTES * factor

    @_fails_with_directory
    def checkpoint(self) -> None:
        """Leave what a start after ``kill -9`` needs to begin at the present end: leader epochs,
        index entries and, last, the producers. Nothing is synced: the page cache outlives us.

        On a full disk it is left to the next one.
        """
        active = self._segments.active
        offset = self.log_end_offset
        self._checkpoint_size = active.size
        with contextlib.suppress(DiskFullError):
            self._write_lagging_epochs()
            active.write_entries()
            if self._snapshots.write(offset, self.producers.snapshot()):
                self._drop_checkpoint()
                self._checkpoint_offset = offset

    def _write_lagging_epochs(self) -> None:
        epochs = self.leader_epochs
        with epochs.writing:
            if epochs.written_version != epochs.version:
                path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
                self._context.shared.replace(path, encode_epochs(epochs.entries()), sync=False)
                epochs.written_version = epochs.version

    def _drop_checkpoint(self) -> None:
        """A newer snapshot is there."""
        if self._checkpoint_offset >= 0:
            self._snapshots.drop(self._checkpoint_offset)
            self._checkpoint_offset = -1

    def _write_snapshot(self, offset: int) -> None:
        """Producer state as of ``offset``, so that recovery need not read what lies before."""
        path = self._snapshots.write(offset, self.producers.snapshot())
        if path:
            self._drop_checkpoint()
            self._unsynced.note_file(path)
            self._unsynced.note_directory(self.directory)

    # Reading ---------------------------------------------------------------------------------

    def read(
        self, start_offset: int, max_bytes: int, end_offset: int, min_one_batch: bool
    ) -> LogRead | ColdRead:
        """Whole batches from the one that holds ``start_offset``, none past ``end_offset``.

        At most ``max_bytes``, but for a first batch that is larger when ``min_one_batch``.
        """
        log_end_offset = self.log_end_offset
        if start_offset < self.log_start_offset or start_offset > log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} holds [{self.log_start_offset}, {log_end_offset}), "
                f"not {start_offset}",
            )
        if end_offset > log_end_offset:
            end_offset = log_end_offset
        if start_offset >= end_offset:
            return LogRead(None, start_offset, start_offset)
        return self._reader.read(start_offset, max_bytes, end_offset, log_end_offset, min_one_batch)

    def aborted_transactions(
        self, start_offset: int, end_offset: int
    ) -> list[tuple[int, int]] | ColdRead:
        return self._reader.aborted_transactions(start_offset, end_offset)

    def offset_for_timestamp(
        self, timestamp_ms: int, end_offset: int
    ) -> TimestampOffset | ColdRead | None:
        """First record as young as ``timestamp_ms`` below ``end_offset`` (G45)."""
        return self._reader.offset_for_timestamp(timestamp_ms, self.log_start_offset, end_offset)

    def max_timestamp_offset(self) -> TimestampOffset | ColdRead | None:
        """ListOffsets -3."""
        return self._reader.max_timestamp_offset()

    # Flushing --------------------------------------------------------------------------------

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether ``flush.messages`` or ``flush.ms`` ask for a flush now."""
        log_end_offset = self.log_end_offset
        if log_end_offset <= self._asked_offset:
            return False
        config = self.config
        return (
            log_end_offset - self.flushed_offset >= config.flush_messages
            or now_ms - self._unflushed_since_ms >= config.flush_ms
        )

    @_fails_with_directory
    def flush_target(self) -> FlushNeeded | None:
        """The sync of everything appended so far; None while one is under way or nothing waits.

        Group commit: ask again when it has come back, and one sync answers all who waited.
        """
        if self._is_flushing or self.flushed_offset >= self.log_end_offset:
            return None
        return self._flush(self.log_end_offset, [self._segments.active.records.file])

    def _flush(self, end_offset: int, active_files: list[File] | None = None) -> FlushNeeded:
        """Sync the sealed segments, and of the active one ``active_files`` (group commit)."""
        files: list[File] = []
        self._asked_offset = max(self._asked_offset, end_offset)
        if active_files is not None:
            active = self._segments.active
            files += active_files
            if active.has_aborted_transactions:
                files.append(active.transaction_index.file)
            self._is_flushing = True
            self._reader.remember_end(end_offset, active, active.size)
        return FlushNeeded(
            self,
            self._context.fs,
            self._context.shared,
            end_offset,
            files,
            self._unsynced,
            cut_count=self._cut_count,
            is_group_commit=active_files is not None,
        )

    def on_flushed(self, flush: FlushNeeded, error: BaseException | None) -> None:
        """``flush.run()`` came back. Raises StorageError for a failed sync: it is final."""
        flush.release()
        if flush.is_group_commit:
            self._is_flushing = False
        if self.is_deleted:
            return
        if isinstance(error, DiskFullError):
            # A small file found no room; the bytes themselves have theirs. Nothing moves.
            self._asked_offset = self.flushed_offset
            return
        if error is not None:
            raise StorageError(self._context.log_dir, f"sync failed: {error}") from error
        if flush.cut_count != self._cut_count:
            return
        self._unsynced.strike_off(flush)
        epochs = self.leader_epochs
        epochs.synced_version = max(epochs.synced_version, flush.epochs_version)
        self.flushed_offset = max(self.flushed_offset, flush.end_offset)

    # Hot tail --------------------------------------------------------------------------------

    def _heat(self) -> None:
        """Map the active segment's tail: appends become memory copies."""
        self.is_hot = True
        if self._context.hot_tails.admit(self):
            with contextlib.suppress(NoDescriptorError):  # it goes on without a map
                self._segments.active.records.file.heat(self._segment_bytes)

    @_fails_with_directory
    def cool(self) -> None:
        """The partition came to rest: the file gets its true size again."""
        self.is_hot = False
        self._context.hot_tails.dismiss(self)
        self._segments.active.records.file.cool()

    @_fails_with_directory
    def rest(self) -> None:
        """Nobody appended for a while: hold no descriptor and no index in memory."""
        self.cool()
        with contextlib.suppress(DiskFullError):
            self._segments.active.rest()

    @_fails_with_directory
    def trim(self) -> None:
        """Make every file readable for other programs: index entries written, zeros cut."""
        self._segments.active.write_pending()

    # Cutting ---------------------------------------------------------------------------------

    @_fails_with_directory
    def truncate_to(self, offset: int) -> bool:
        """Remove everything from ``offset`` on; gives whether that was anything.

        Waits for the disk: bytes written anew below an old recovery point would escape recovery,
        so the lowered point reaches the disk before the first byte changes, the cut right after.
        """
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset <= self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self._begin_cut(offset)
        self._abandon([segment for segment in self._segments if segment.base_offset >= offset])
        active = self._segments.active
        active.truncate_to(offset)
        active.become_active()
        self._unsynced.forget_segments({active})
        self._segments.recount()
        self._finish_cut(offset)
        return True

    @_fails_with_directory
    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the log goes on, empty, at ``offset``. Waits for the disk."""
        # With the new start on disk first, a crash amid the removal cannot set offsets back.
        self.log_start_offset = offset
        self._begin_cut(min(offset, self._segments.first.base_offset))
        self._abandon(list(self._segments))
        context = self._context
        active = Segment(
            context.fs,
            context.cache,
            self.directory,
            offset,
            max_index_bytes=self.config.segment_index_bytes,
            index_interval_bytes=self.config.index_interval_bytes,
        )
        active.create_files()
        self._segments.replace_all([active])
        self.leader_epochs.clear()
        self._finish_cut(offset)
        self.flushed_offset = offset

    def _abandon(self, doomed: list[Segment]) -> None:
        """Segments leave the log at its end, the last one first: no crash leaves a gap."""
        self._doom(doomed[::-1], 0)
        for segment in doomed:
            segment.abandon()

    def _begin_cut(self, offset: int) -> None:
        if self.swap is not None:
            self.swap.settle()
        self.cleaned_offset = min(self.cleaned_offset, offset)
        self._cut_count += 1
        self._spare_condemned()
        self._indexed_offset = -1
        self._reader.forget()
        self.is_hot = False
        flushed = min(self.flushed_offset, offset)
        # Inside the segment that becomes the last one: its indexes will not be synced for long.
        self.flushed_offset = max(flushed - 1, 0)
        self._context.checkpoint_cut(self)
        self.flushed_offset = flushed

    def _finish_cut(self, offset: int) -> None:
        context = self._context
        self.log_end_offset = offset
        self._asked_offset = min(self._asked_offset, offset)
        self._checkpoint_size = 0
        self._checkpoint_offset = -1
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.leader_epochs.truncate_from_end(offset)
        self._snapshots.drop_above(offset)
        for file in self._segments.active.open_files():
            file.datasync()
        context.fs.sync_directory(self.directory)
        rebuild_producers(self.producers, self._snapshots, self._segments, offset, -1)
        # Or all that has ever ended there would hold readers back until the high watermark moves.
        self.producers.on_high_watermark(self.high_watermark)

    def set_log_start_offset(self, offset: int) -> bool:
        """Nothing below ``offset`` is readable any more; gives whether that changed anything.

        The caller checkpoints it before it answers. Segments go with the next retention pass.
        """
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} lies beyond the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        return True

    # Deleting --------------------------------------------------------------------------------

    def old_segments(self, now_ms: int) -> list[Doomed] | ColdRead:
        """What ``condemn`` would choose now."""
        try:
            facts = self._facts(now_ms)
        except PagesCold as cold:
            return cold.read
        config = self.config
        rules = RetentionRules(config.retention_ms, config.retention_bytes, config.is_deleted)
        return segments_to_delete(facts, rules, self.log_start_offset, self.high_watermark, now_ms)

    @_fails_with_directory
    def condemn(self, now_ms: int) -> RetentionOutcome | ColdRead:
        """Choose what is to go by start offset, size and time. Nobody notices yet.

        Once a checkpoint holds ``condemned_offset``, ``delete_condemned`` takes the segments: a
        power loss may undo some renames and not others, and whatever comes back must then be known
        for what it is; nor may a start that somebody was told of fall back.
        """
        self._spare_condemned()
        doomed = self.old_segments(now_ms)
        if isinstance(doomed, ColdRead):
            return doomed
        flush = None
        if doomed and doomed[-1].segment.is_active:
            try:
                flush = self.roll(now_ms)
            except DiskFullError:
                doomed.pop()  # No room for its successor; the others make some.
        if doomed:
            self._condemned = doomed
            self.condemned_offset = doomed[-1].segment.end_offset
        return RetentionOutcome(doomed, flush)

    @_fails_with_directory
    def delete_condemned(self, most: int) -> list[Doomed]:
        """Take up to ``most`` of what was condemned; gives them, none when that is over.

        They are renamed, so that a start finds them gone, before anybody is told of the new start.
        """
        chosen, self._condemned = self._condemned[:most], self._condemned[most:]
        if not self._is_at_front(chosen):
            self._spare_condemned()  # swapped meanwhile: the next pass looks again
            return []
        if chosen:
            self._delete_first(len(chosen))
        return chosen

    def _is_at_front(self, chosen: list[Doomed]) -> bool:
        segments = self._segments
        return len(chosen) < len(segments) and all(
            segments[slot].base_offset == gone.segment.base_offset
            and segments[slot + 1].base_offset == gone.segment.end_offset
            for slot, gone in enumerate(chosen)
        )

    def _spare_condemned(self) -> None:
        self._condemned = []
        self.condemned_offset = -1

    def roll_if_old(self, now_ms: int) -> FlushNeeded | ColdRead | None:
        """Roll an active segment whose records are old, so that retention can take them."""
        config = self.config
        rules = RetentionRules(config.retention_ms, config.retention_bytes, config.is_deleted)
        active = self._segments.active
        if not active.size:
            return None
        try:
            first_timestamp = active.load_first_timestamp()
        except PagesCold as cold:
            return cold.read
        # A first record from the future would make the segment young for ever.
        is_credible = 0 <= first_timestamp <= now_ms
        born_ms = first_timestamp if is_credible else active.created_ms
        if now_ms - born_ms <= roll_age_ms(self._roll_ms, rules):
            return None
        return self.roll(now_ms)

    def expire_producers(self, now_ms: int) -> int:
        return self.producers.expire(now_ms, self._context.producer_id_expiration_ms)

    def _facts(self, now_ms: int) -> list[SegmentFacts]:
        segments = self._segments
        return [
            SegmentFacts(
                segment.base_offset,
                segments.end_of(slot, self.log_end_offset),
                segment.size,
                segment.load_max_timestamp(),
                now_ms if segment.is_active else segment.changed_ms,
                segment.is_active,
            )
            for slot, segment in enumerate(segments)
        ]

    def _delete_first(self, count: int) -> None:
        doomed = [self._segments[slot] for slot in range(count)]
        first_kept = self._segments[count].base_offset
        self._doom(doomed, self.config.file_delete_delay_ms)
        if first_kept > self.log_start_offset:
            self.log_start_offset = first_kept
            self.leader_epochs.truncate_from_start(first_kept)
        self._reader.forget()
        self._snapshots.drop_below(first_kept)

    def _doom(self, doomed: list[Segment], delay_ms: int) -> None:
        """Take segments out of the log, in this order; the manager's ticks see to their files."""
        for segment in doomed:
            segment.close_files()
        self._unsynced.forget_segments(set(doomed))
        self._segments.remove(doomed)
        self._unsynced.note_directory(self.directory)
        for segment in doomed:
            segment.rename_files(self._context.fs, DELETED_SUFFIX)
        self._context.doomed.append(DoomedSegments(self, doomed, delay_ms))

    # Compaction ------------------------------------------------------------------------------

    @property
    def cut_count(self) -> int:
        """How often it was truncated: what was learnt of it before a cut may not hold behind it."""
        return self._cut_count

    @property
    def fs(self) -> FileSystem:
        return self._context.fs

    @property
    def log_dir(self) -> str:
        return self._context.log_dir

    def sealed_segment(
        self, base_offset: int, size: int, transaction_index_size: int, changed_ms: int
    ) -> Segment:
        """A segment that was written elsewhere; it is not part of the log yet."""
        context, config = self._context, self.config
        return Segment(
            context.fs,
            context.cache,
            self.directory,
            base_offset,
            size=size,
            transaction_index_size=transaction_index_size,
            changed_ms=changed_ms,
            max_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
        )

    def install_cleaned(self, old: list[Segment], new: list[Segment]) -> None:
        """``new``, which are on disk, take the place of ``old`` (``segment_swap``)."""
        self._segments.replace(old, new)
        self._reader.forget()
        self._unsynced.forget_segments(set(old))
        kept = {segment.base_offset for segment in new}
        for segment in old:
            segment.close_files()
            if segment.base_offset not in kept:
                self._snapshots.drop(segment.base_offset)

    def doom_replaced(self, old: list[Segment]) -> None:
        """They are renamed; whoever reads them still has a while."""
        self._context.doomed.append(DoomedSegments(self, old, self.config.file_delete_delay_ms))

    def note_renamed(self) -> None:
        """Names have changed; the next flush syncs them."""
        self._unsynced.note_directory(self.directory)

    # Stopping --------------------------------------------------------------------------------

    def finish_files(self) -> bool:
        """Leave the files as a clean stop leaves them; gives whether they still need a sync."""
        self._segments.active.seal()
        if self.producers.entries or self._snapshots.offsets:
            self._write_snapshot(self.log_end_offset)
        is_on_disk = (
            self.flushed_offset == self._indexed_offset == self.log_end_offset
            and self._unsynced.is_empty
            and not self.leader_epochs.is_dirty
        )
        return not is_on_disk

    def final_flush(self) -> FlushNeeded:
        """The sync of everything, indexes included, behind ``finish_files``."""
        self._indexed_offset = self.log_end_offset
        return self._flush(self.log_end_offset, self._segments.active.open_files())

    def write_epochs(self) -> None:
        """The one file that a flush would write, for a stop that syncs many logs in one go."""
        epochs = self.leader_epochs
        if epochs.is_dirty:
            path = f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
            self._context.shared.replace(path, encode_epochs(epochs.entries()), sync=False)

    def on_all_synced(self) -> None:
        """Everything that was written, whoever wrote it, is on disk."""
        self.flushed_offset = self._indexed_offset = self.log_end_offset
        self._unsynced = Unsynced([])
        self.leader_epochs.synced_version = self.leader_epochs.version

    def close(self, *, clean: bool = True) -> None:
        """Give everything back; a clean close waits for the disk."""
        if clean and self.finish_files():
            flush = self.final_flush()
            flush.run()
            self.on_flushed(flush, None)
        self._context.hot_tails.dismiss(self)
        for segment in self._segments:
            # On a full disk index entries may find no room; recovery makes them anew.
            with contextlib.suppress(DiskFullError):
                segment.close_files()

    def move_to(self, directory: str) -> None:
        """The directory was renamed; open files stay open."""
        self.directory = directory
        self._snapshots.directory = directory
        for segment in self._segments:
            segment.move_to(directory)
