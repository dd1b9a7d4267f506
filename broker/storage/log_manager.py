"""All logs of this broker, in all its directories.

The server opens it once, in a thread, before it serves; from then on everything runs on the loop
and what waits for the disk is handed out as work (``run()`` in a thread). A directory whose file
system fails goes offline alone, with its partitions; a partition that recovery could not judge is
offline alone (``offline_partitions`` says why).

After ``open`` a log is a few small objects: files and indexes are opened when they are first used
and given back by ``tick`` when nobody appends, so thousands of idle partitions cost little.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from broker.clock import Clock
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
from broker.storage.cold import ColdRead
from broker.storage.context import (
    HotTails,
    OpeningInterrupted,
    StorageContext,
)
from broker.storage.filesystem import FileSystem
from broker.storage.flush import BlockingWork
from broker.storage.layout import (
    CLEANER_CHECKPOINT,
    DELETE_DIRECTORY_SUFFIX,
    LOG_START_CHECKPOINT,
    LOG_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    STRAY_DIRECTORY_SUFFIX,
    is_marked_for_deletion,
    marked_directory_name,
    parse_partition_directory_name,
    partition_directory_name,
)
from broker.storage.log import Log, RetentionOutcome
from broker.storage.log_directory import LogDirectory, Offsets, PartitionTwice
from broker.storage.recovery import LoadRules, create_log, load_log
from broker.storage.segment import SegmentCache

_log = logging.getLogger(__name__)

#: Appends are counted over this long to tell hot partitions, and idle ones.
WINDOW_MS: Final = 10_000
#: Logs that fell silent and are put to rest in one tick.
MAX_RESTS_A_TICK: Final = 32
#: Logs that note in one tick where recovery may begin; each writes two or three small files.
MAX_CHECKPOINTS_A_TICK: Final = 8
#: Free space is looked at again when this much was appended, besides at every tick.
MEASURE_EVERY_BYTES: Final = 8 * 1024 * 1024
#: Segments that retention takes at once: each is up to five renames, and others wait meanwhile.
MAX_TAKEN_AT_ONCE: Final = 32
#: A clean stop with more dirty logs than this syncs the file system instead of every file.
_MAX_SINGLE_SYNCS: Final = 32

ConfigFor = Callable[[TopicPartition], TopicConfig]
Progress = Callable[[int, int], None]


class DirectoryDescription(NamedTuple):
    """One directory, the room of its volume (-1: not known), and the logs in it."""

    path: str
    is_offline: bool
    total_bytes: int
    usable_bytes: int
    partitions: list[Log]


class OfflinePartition(NamedTuple):
    """Recovery refused to open it: why, and when (milliseconds since 1970) it found that out."""

    error: CorruptLogError
    since_ms: int


class RetentionStep(NamedTuple):
    """One log's share of a retention pass. ``wait``: call it in a thread, then go on."""

    log: Log
    outcome: RetentionOutcome | None
    wait: Callable[[], None] | None


class _SyncDirectory:
    """A name has changed in ``path``."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self._fs = fs
        self._path = path

    def run(self) -> None:
        self._fs.sync_directory(self._path)


class _RemoveFiles:
    """Files and directories that nobody uses any more; unlinking large ones takes its time."""

    def __init__(self, fs: FileSystem, files: list[str], directories: list[str]) -> None:
        self._fs = fs
        self._files = files
        self._directories = directories

    def run(self) -> None:
        for path in self._files:
            self._fs.remove(path)
        for path in self._directories:
            self._fs.remove_tree(path)


class Repair:
    """Opens an offline partition's log up to its first damage; what lies behind that goes.

    Every byte of the log is checked. ``run`` waits for the disk, in a thread.
    """

    def __init__(
        self,
        context: StorageContext,
        path: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        rules: LoadRules,
    ) -> None:
        self.topic_partition = topic_partition
        self.log: Log | None = None
        self.bytes_before = 0
        self._context = context
        self._path = path
        self._config = config
        self._rules = rules

    def run(self) -> None:
        self.bytes_before = sum(
            entry.size
            for entry in self._context.fs.list_directory(self._path)
            if entry.name.endswith(LOG_SUFFIX)
        )
        self.log = load_log(
            self._context, self._path, self.topic_partition, self._config, self._rules
        )


class LogManager:
    def __init__(
        self,
        dirs: Sequence[str],
        fs: FileSystem,
        clock: Clock,
        *,
        cluster_id: str,
        node_id: int,
        producer_id_expiration_ms: int = 86_400_000,
        max_mapped_tails: int = 0,
    ) -> None:
        self._fs = fs
        self._clock = clock
        self._cluster_id = cluster_id
        self._node_id = node_id
        #: Free bytes of a directory's volume below which clients' appends are refused, and those of followers.
        self.floor_bytes = 0
        self.replication_floor_bytes = 0
        self._cache = SegmentCache()
        hot_tails = HotTails(max_mapped_tails)
        self.logs: dict[TopicPartition, Log] = {}
        self.offline_partitions: dict[TopicPartition, OfflinePartition] = {}
        self.directories: dict[str, LogDirectory] = {}
        for path in dirs:
            context = StorageContext(
                fs,
                path,
                cache=self._cache,
                producer_id_expiration_ms=producer_id_expiration_ms,
                hot_tails=hot_tails,
            )
            context.checkpoint_cut = self._checkpoint_cut
            self.directories[path] = LogDirectory(context)
        self._where: dict[TopicPartition, LogDirectory] = {}
        #: What ``_logs_in`` gives, until a log comes or goes.
        self._lists: dict[LogDirectory, list[Log]] = {}
        self._window_ends_ms = 0
        self._awake: set[Log] = set()
        #: Fell silent, and hold memory and descriptors still.
        self._resting: dict[Log, None] = {}
        self._doomed_directories: list[tuple[int, str]] = []
        self._below_floor: set[str] = set()
        self._below_replication_floor: set[str] = set()

    # Opening ---------------------------------------------------------------------------------

    def open(
        self, config_for: ConfigFor, *, threads: int = 2, progress: Progress | None = None
    ) -> None:
        """Lock the directories and open every log in them. Waits for the disk: run in a thread.

        Raises DirectoryInUse, ForeignDirectory, PartitionTwice, and OpeningInterrupted after
        ``interrupt``: nothing is open then. What was recovered so far is recovered again by the next start.
        """
        self._cache.limit = 1 << 62  # threads must not drop each other's segments
        for directory in self.directories.values():
            try:
                directory.open(self._cluster_id, self._node_id)
            except OSError as error:
                self._take_offline(directory, str(error))
        jobs = [
            (directory, name, topic_partition)
            for directory in self._online()
            for name, topic_partition in self._partitions_in(directory)
        ]
        _refuse_twice(jobs)
        remaining, counter = iter(jobs), itertools.count(1)

        def load_remaining() -> None:
            for job in remaining:  # the iterator gives each job to one thread
                self._load(job, config_for)
                done = next(counter)
                if progress is not None:
                    progress(done, len(jobs))

        threads = min(max(threads, 1), len(jobs) or 1)
        try:
            with ThreadPoolExecutor(threads, "load-logs") as pool:
                for loading in [pool.submit(load_remaining) for _ in range(threads)]:
                    loading.result()
        except OpeningInterrupted:
            self.close(clean=False)
            raise
        self._cache.limit = SegmentCache.DEFAULT_LIMIT
        for directory in self._online():
            directory.note_boot()
        self._window_ends_ms = self._clock.monotonic_ms() + WINDOW_MS
        self._measure_space()

    def interrupt(self) -> None:
        """``open``, which runs in a thread, shall end soon."""
        for directory in self.directories.values():
            directory.context.is_interrupted = True

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories.values() if not directory.is_offline]

    def _partitions_in(self, directory: LogDirectory) -> list[tuple[str, TopicPartition]]:
        found = []
        for entry in self._fs.list_directory(directory.path):
            if not entry.is_directory:
                continue
            if is_marked_for_deletion(entry.name):
                self._doomed_directories.append((0, f"{directory.path}/{entry.name}"))
                continue
            topic_partition = parse_partition_directory_name(entry.name)
            if topic_partition is not None:
                found.append((entry.name, topic_partition))
        return found

    def _load(self, job: tuple[LogDirectory, str, TopicPartition], config_for: ConfigFor) -> None:
        directory, name, topic_partition = job
        directory.context.check_interrupt()
        path = f"{directory.path}/{name}"
        rules = LoadRules(
            directory.recovery_points.get(topic_partition, 0),
            directory.log_starts.get(topic_partition, 0),
            directory.was_clean,
            directory.power_was_lost,
            self._clock.wall_ms(),
        )
        self._where[topic_partition] = directory
        try:
            config = config_for(topic_partition)
            log = load_log(directory.context, path, topic_partition, config, rules)
        except CorruptLogError as error:
            _log.error(
                "%s is offline: %s; `odradek topic repair %s` shows what can be done",
                topic_partition,
                error,
                topic_partition.topic,
            )
            self.offline_partitions[topic_partition] = OfflinePartition(
                error, self._clock.wall_ms()
            )
            return
        except (OSError, StorageError) as error:
            self._take_offline(directory, str(error))
            return
        log.set_high_watermark(
            min(
                max(directory.high_watermarks.get(topic_partition, 0), log.log_start_offset),
                log.log_end_offset,
            )
        )
        log.cleaned_offset = directory.cleaned_offsets.get(topic_partition, -1)
        self._enlist(log)

    def _take_offline(self, directory: LogDirectory, reason: str) -> None:
        _log.error("log directory %s is offline: %s", directory.path, reason)
        directory.offline_reason = reason

    @property
    def is_offline(self) -> bool:
        """Whether no directory is left that works."""
        return not self._online()

    def withhold(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """They exist: those that no directory has lie in one that is offline, and are not made anew, empty."""
        offline = [each for each in self.directories.values() if each.is_offline]
        if not offline:
            return
        missing = [each for each in topic_partitions if each not in self._where]
        for topic_partition in missing:
            self._where[topic_partition] = offline[0]
        if missing:
            _log.error("%d partitions wait for a log directory that is offline", len(missing))

    def on_storage_error(self, error: StorageError) -> list[TopicPartition]:
        """A directory failed: serve nothing of it any more. Gives the partitions that are lost."""
        directory = self.directories[error.log_dir]
        self._take_offline(directory, str(error))
        lost = [tp for tp, where in self._where.items() if where is directory]
        for topic_partition in lost:
            log = self._strike(topic_partition)
            if log is not None:
                self._awake.discard(log)
                self._resting.pop(log, None)
        return lost

    # Logs ------------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """None for a partition that is not here; KAFKA_STORAGE_ERROR for one that is offline."""
        log = self.logs.get(topic_partition)
        if log is None and topic_partition in self._where:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is offline")
        return log

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: TopicId | None, config: TopicConfig
    ) -> Log:
        """The log of this topic id. What a topic of the same name left behind is put aside."""
        log = self.get(topic_partition)
        if log is not None:
            if log.topic_id is None and topic_id is not None:
                log.set_topic_id(topic_id)
            if topic_id is None or log.topic_id == topic_id:
                return log
            self.set_aside(topic_partition)
        directory = self._roomiest()
        path = f"{directory.path}/{partition_directory_name(topic_partition)}"
        try:
            if directory.may_name(topic_partition):
                # Or recovery would trust offsets of the topic that had this name before.
                directory.write_at_once(self._reader_of_checkpoints(directory)())
            self._fs.make_directory(path)
            now_ms = self._clock.wall_ms()
            log = create_log(directory.context, path, topic_partition, config, 0, now_ms)
            if topic_id is not None:
                log.set_topic_id(topic_id)
        except DiskFullError:
            self._fs.remove_tree(path)
            raise
        except OSError as error:
            raise StorageError(directory.path, str(error)) from error
        self._where[topic_partition] = directory
        self._enlist(log)
        self._rest(log)  # until the first record it is as silent as any
        return log

    def _roomiest(self) -> LogDirectory:
        """The directory with the fewest logs, as Kafka chooses."""
        online = self._online()
        if not online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory is online")
        if len(online) == 1:
            return online[0]
        counts = {directory.path: 0 for directory in online}
        for directory in self._where.values():
            if directory.path in counts:
                counts[directory.path] += 1
        return min(online, key=lambda directory: counts[directory.path])

    def delete(self, topic_partition: TopicPartition) -> BlockingWork | None:
        """Give a partition up: renamed at once, unlinked later. Answer when the work has run."""
        log = self.logs.get(topic_partition)
        delay_ms = log.config.file_delete_delay_ms if log else 0
        marked = self._rename_away(topic_partition, DELETE_DIRECTORY_SUFFIX)
        if marked is None:
            return None
        path, directory = marked
        self._doomed_directories.append((self._clock.monotonic_ms() + delay_ms, path))
        return _SyncDirectory(self._fs, directory.path)

    def set_aside(self, topic_partition: TopicPartition) -> BlockingWork | None:
        """Keep the files, under a ``-stray`` name, of a partition that the cluster does not know."""
        marked = self._rename_away(topic_partition, STRAY_DIRECTORY_SUFFIX)
        return None if marked is None else _SyncDirectory(self._fs, marked[1].path)

    def _rename_away(
        self, topic_partition: TopicPartition, suffix: str
    ) -> tuple[str, LogDirectory] | None:
        directory = self._where.get(topic_partition)
        if directory is None or directory.is_offline:
            return None
        name = marked_directory_name(topic_partition, uuid.uuid4(), suffix)
        target = f"{directory.path}/{name}"
        log = self.logs.get(topic_partition)
        if log is not None:
            log.is_deleted = True
            log.close(clean=False)
        source = f"{directory.path}/{partition_directory_name(topic_partition)}"
        try:
            self._fs.rename(source, target)
        except OSError as error:
            raise StorageError(directory.path, str(error)) from error
        if log is not None:
            log.move_to(target)
            self._awake.discard(log)
            self._resting.pop(log, None)
        self._strike(topic_partition)
        self.offline_partitions.pop(topic_partition, None)
        del self._where[topic_partition]
        return target, directory

    def repair(self, topic_partition: TopicPartition, config: TopicConfig) -> Repair | None:
        """Work that makes an offline partition's log whole; None if it is not offline.

        ``finish_repair`` takes it over; until then the partition stays offline.
        """
        directory = self._where.get(topic_partition)
        if directory is None or topic_partition not in self.offline_partitions:
            return None
        rules = LoadRules(
            0,
            directory.log_starts.get(topic_partition, 0),
            was_clean=False,
            power_was_lost=True,  # nothing is believed that was not looked at
            now_ms=self._clock.wall_ms(),
            accepts_loss=True,
        )
        path = f"{directory.path}/{partition_directory_name(topic_partition)}"
        return Repair(directory.context, path, topic_partition, config, rules)

    def finish_repair(self, repair: Repair) -> Log | None:
        """The log, online; None if the partition was given up meanwhile."""
        log, topic_partition = repair.log, repair.topic_partition
        assert log is not None
        if self.offline_partitions.pop(topic_partition, None) is None:
            log.close(clean=False)
            return None
        self._enlist(log)
        return log

    # Checkpoints -----------------------------------------------------------------------------

    def checkpoint_work(self) -> list[BlockingWork]:
        """Recovery points, log starts and high watermarks, as far as they changed."""
        return [
            directory.checkpoint(self._reader_of_checkpoints(directory))
            for directory in self._online()
        ]

    def log_start_work(self) -> list[BlockingWork]:
        """After DeleteRecords: answer when these have run."""
        return [self._log_start_work(directory) for directory in self._online()]

    def _log_start_work(self, directory: LogDirectory) -> BlockingWork:
        logs = self._logs_in(directory)
        return directory.checkpoint(
            lambda: {LOG_START_CHECKPOINT: self._log_starts(directory, logs)}
        )

    def _reader_of_checkpoints(self, directory: LogDirectory) -> Callable[[], dict[str, Offsets]]:
        logs = self._logs_in(directory)
        return lambda: {
            RECOVERY_POINT_CHECKPOINT: self._recovery_points(directory, logs),
            LOG_START_CHECKPOINT: self._log_starts(directory, logs),
            REPLICATION_CHECKPOINT: self._high_watermarks(directory, logs),
            CLEANER_CHECKPOINT: self._cleaned_offsets(directory, logs),
        }

    def _enlist(self, log: Log) -> None:
        self.logs[log.topic_partition] = log
        self._lists.clear()

    def _strike(self, topic_partition: TopicPartition) -> Log | None:
        self._lists.clear()
        return self.logs.pop(topic_partition, None)

    def _logs_in(self, directory: LogDirectory) -> list[Log]:
        """Nobody changes this list. It is kept because counting a reference to each of thousands of
        logs writes to as many pages, which stops the loop for 100 ms where the host traps that."""
        logs = self._lists.get(directory)
        if logs is None:
            where = self._where
            logs = [log for tp, log in self.logs.items() if where[tp] is directory]
            self._lists[directory] = logs
        return logs

    def _recovery_points(self, directory: LogDirectory, logs: list[Log]) -> Offsets:
        return self._kept(directory.recovery_points) + [
            (log.topic_partition, log.recovery_point) for log in logs if not log.is_deleted
        ]

    def _log_starts(self, directory: LogDirectory, logs: list[Log]) -> Offsets:
        return self._kept(directory.log_starts) + [
            (log.topic_partition, start_offset)
            for log in logs
            if (start_offset := max(log.log_start_offset, log.condemned_offset)) > 0
            and not log.is_deleted
        ]

    def _high_watermarks(self, directory: LogDirectory, logs: list[Log]) -> Offsets:
        return self._kept(directory.high_watermarks) + [
            (log.topic_partition, log.high_watermark) for log in logs if not log.is_deleted
        ]

    def _cleaned_offsets(self, directory: LogDirectory, logs: list[Log]) -> Offsets:
        return self._kept(directory.cleaned_offsets) + [
            (log.topic_partition, log.cleaned_offset)
            for log in logs
            if log.cleaned_offset >= 0 and not log.is_deleted
        ]

    def cleaner_work(self, log: Log) -> BlockingWork:
        """Writes down how far compaction has come, after it has been over ``log``."""
        directory = self.directories[log.log_dir]
        logs = self._logs_in(directory)
        return directory.checkpoint(
            lambda: {CLEANER_CHECKPOINT: self._cleaned_offsets(directory, logs)}
        )

    def durable_recovery_point(self, log: Log) -> int:
        """What a start after a power loss would recover ``log`` from."""
        directory = self.directories[log.log_dir]
        return directory.durable_recovery_points.get(log.topic_partition, 0)

    def _kept(self, known: dict[TopicPartition, int]) -> Offsets:
        """What the last run knew of partitions that are offline now stays."""
        return [(tp, known[tp]) for tp in self.offline_partitions if tp in known]

    def _checkpoint_cut(self, log: Log) -> None:
        directory = self._where[log.topic_partition]
        logs = self._logs_in(directory)
        directory.write_at_once(
            {
                RECOVERY_POINT_CHECKPOINT: self._recovery_points(directory, logs),
                LOG_START_CHECKPOINT: self._log_starts(directory, logs),
                CLEANER_CHECKPOINT: self._cleaned_offsets(directory, logs),
            }
        )

    # Time ------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[BlockingWork]:
        """Once a second or so, with monotonic time: hot and idle tails, doomed files, free space."""
        if now_ms >= self._window_ends_ms:
            self._window_ends_ms = now_ms + WINDOW_MS
            self._end_window()
        self._rest_some()
        self._checkpoint_some()
        self._measure_space()
        return self._due_removals(now_ms)

    def _end_window(self) -> None:
        appended: set[Log] = set()
        for directory in self.directories.values():
            context = directory.context
            appended.update(context.touched)
            context.touched = []
        for log in self._awake - appended:
            self._resting[log] = None
        for log in appended:
            self._resting.pop(log, None)
            log.window_bytes = 0
        self._awake = appended

    def _rest_some(self) -> None:
        """Each may cost a file or two: thousands that fall silent together must not stop the loop."""
        for log in list(itertools.islice(self._resting, MAX_RESTS_A_TICK)):
            del self._resting[log]
            if log.window_bytes:
                self._awake.add(log)
            elif not log.is_deleted:
                self._rest(log)
                if log in self._resting:
                    return

    def _rest(self, log: Log) -> None:
        """Now, or with a later tick where there is no descriptor for it."""
        try:
            log.rest()
        except NoDescriptorError:
            self._resting[log] = None

    def _checkpoint_some(self) -> None:
        """Logs that grew much since they last left what a start after a kill can begin from."""
        left = MAX_CHECKPOINTS_A_TICK
        for directory in self._online():
            for log in directory.context.touched:
                if log.is_checkpoint_due and not log.is_deleted:
                    log.checkpoint()
                    left -= 1
                    if not left:
                        return

    def _due_removals(self, now_ms: int) -> list[BlockingWork]:
        works: list[BlockingWork] = []
        files: list[str] = []
        for directory in self._online():
            doomed, directory.context.doomed = directory.context.doomed, []
            for entry in doomed:
                if entry.log.is_deleted:
                    continue
                if entry.is_due(now_ms):
                    files += entry.paths()
                else:
                    directory.context.doomed.append(entry)
        directories = [path for due_ms, path in self._doomed_directories if due_ms <= now_ms]
        if files or directories:
            works.append(_RemoveFiles(self._fs, files, directories))
            self._doomed_directories = [
                entry for entry in self._doomed_directories if entry[0] > now_ms
            ]
        return works

    # Retention -------------------------------------------------------------------------------
    #
    # ``condemn`` some logs, run ``log_start_work`` once for all of them, then ``delete_condemned``
    # of each. The topic may be deleted between two steps; that ends them.

    def condemn(self, log: Log) -> Iterator[RetentionStep]:
        """Choose what of a log is to go; an outcome tells what."""
        if log.is_deleted or log.swap is not None:
            return
        now_ms = self._clock.wall_ms()
        log.expire_producers(now_ms)
        try:
            while isinstance(rolled := log.roll_if_old(now_ms), ColdRead):
                yield RetentionStep(log, None, rolled.pull)
                if _is_given_up(log):
                    return
            if rolled is not None:
                yield RetentionStep(log, RetentionOutcome([], rolled), None)
        except DiskFullError:
            pass  # No room for a new segment: those that are sealed may go all the more.
        while not _is_given_up(log):
            outcome = log.condemn(now_ms)
            if not isinstance(outcome, ColdRead):
                yield RetentionStep(log, outcome, None)
                return
            yield RetentionStep(log, None, outcome.pull)

    def delete_condemned(self, log: Log) -> Iterator[RetentionStep]:
        """Take what was condemned; an outcome tells what went."""
        while not _is_given_up(log):
            starts = self.directories[log.log_dir].durable_log_starts
            is_durable = starts.get(log.topic_partition, 0) >= log.condemned_offset
            # A checkpoint that found no room must not keep a full disk full. Without it each
            # segment's going is on disk before the next one goes, so that no loss of power leaves
            # a gap.
            doomed = log.delete_condemned(MAX_TAKEN_AT_ONCE if is_durable else 1)
            if not doomed:
                return
            yield RetentionStep(log, RetentionOutcome(doomed, None), None)
            if not is_durable:
                yield RetentionStep(log, None, _SyncDirectory(self._fs, log.directory).run)

    # Space -----------------------------------------------------------------------------------

    def _measure_space(self) -> None:
        self._below_floor.clear()
        self._below_replication_floor.clear()
        has_floor = self.floor_bytes > 0 or self.replication_floor_bytes > 0
        for directory in self._online():
            directory.context.appended_bytes = 0
            if not has_floor:
                continue
            try:
                free_bytes = self._fs.free_bytes(directory.path)
            except OSError as error:  # removed, or its disk is gone
                raise StorageError(directory.path, str(error)) from error
            if free_bytes < self.floor_bytes:
                self._below_floor.add(directory.path)
            if free_bytes < self.replication_floor_bytes:
                self._below_replication_floor.add(directory.path)

    @property
    def is_short_of_room(self) -> bool:
        """Whether any directory is below its floor."""
        return bool(self._below_floor)

    def is_below_floor(self, topic_partition: TopicPartition) -> bool:
        """Whether clients' appends are to be refused for want of room.

        Raises StorageError when the directory cannot even be asked.
        """
        return self._measured(topic_partition) in self._below_floor

    def is_below_replication_floor(self, topic_partition: TopicPartition) -> bool:
        """Whether a follower is to wait for want of room, which it needs to cut and to be led anew.

        Raises StorageError when the directory cannot even be asked.
        """
        return self._measured(topic_partition) in self._below_replication_floor

    def _measured(self, topic_partition: TopicPartition) -> str | None:
        """The path of the partition's directory, whose room is known well enough."""
        directory = self._where.get(topic_partition)
        if directory is None:
            return None
        if directory.context.appended_bytes >= MEASURE_EVERY_BYTES:
            self._measure_space()
        return directory.path

    def describe_directories(self) -> list[DirectoryDescription]:
        described = []
        for directory in self.directories.values():
            total = usable = -1
            if not directory.is_offline:
                with contextlib.suppress(OSError):  # the next tick takes it offline
                    total = self._fs.total_bytes(directory.path)
                    usable = self._fs.free_bytes(directory.path)
            logs = self._logs_in(directory)
            described.append(
                DirectoryDescription(directory.path, directory.is_offline, total, usable, logs)
            )
        return described

    # Stopping --------------------------------------------------------------------------------

    def close(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """Nobody appends any more. Waits for the disk: run in a thread."""
        for directory in self._online():
            logs = self._logs_in(directory)
            try:
                if clean:
                    self._close_cleanly(directory, logs, broker_epoch)
            except (OSError, DiskFullError, StorageError) as error:
                # No clean mark: the next start recovers.
                _log.error("%s was not closed cleanly: %s", directory.path, error)
            for log in logs:
                log.close(clean=False)
            directory.close()

    def _close_cleanly(self, directory: LogDirectory, logs: list[Log], broker_epoch: int) -> None:
        unsynced = [log for log in logs if log.finish_files()]
        if len(unsynced) <= _MAX_SINGLE_SYNCS:
            for log in unsynced:
                log.close(clean=True)
        else:
            # Syncing thousands of files one by one takes a journal commit each.
            for log in unsynced:
                log.write_epochs()
                log.close(clean=False)
            self._fs.sync_all(directory.path)
            for log in unsynced:
                log.on_all_synced()
        for work in self.checkpoint_work():
            work.run()
        if not self.offline_partitions:
            directory.write_clean_mark(broker_epoch)


def _refuse_twice(jobs: Iterable[tuple[LogDirectory, str, TopicPartition]]) -> None:
    found: dict[TopicPartition, LogDirectory] = {}
    for directory, _, topic_partition in jobs:
        other = found.setdefault(topic_partition, directory)
        if other is not directory:
            raise PartitionTwice(
                f"{topic_partition} lies in {other.path} and in {directory.path}: keep the one that is to be served, move the"
                " other away"
            )


def _is_given_up(log: Log) -> bool:
    """Asked anew after others had their turn; a swap that has begun meanwhile comes first, too."""
    return log.is_deleted or log.swap is not None
