"""One log directory: its lock, its identity, its checkpoints, how its last run ended.

On the disk: ``meta.properties`` says whose it is; four offset checkpoints hold recovery points,
log starts, high watermarks and how far compaction came, of all partitions; ``.kafka_cleanshutdown`` is written last of all
at a clean stop and removed, synced, before anything changes after a start. Checkpoints are
replaced whole, by one writer at a time, and never by older contents than are there.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable

from broker.model.errors import DiskFullError, StorageError
from broker.model.ids import TopicPartition
from broker.storage.checkpoints import (
    MetaProperties,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_offsets,
    parse_meta_properties,
    parse_offsets,
)
from broker.storage.context import StorageContext
from broker.storage.filesystem import FileSystem, replace_file
from broker.storage.layout import (
    BOOT_ID_FILE,
    CLEAN_SHUTDOWN_FILE,
    CLEANER_CHECKPOINT,
    LOCK_FILE,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
)

_log = logging.getLogger(__name__)

OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    CLEANER_CHECKPOINT,
)

Offsets = list[tuple[TopicPartition, int]]


class DirectoryInUse(Exception):
    """Another process holds the lock of a log directory."""


class ForeignDirectory(Exception):
    """``meta.properties`` names another cluster or node."""


class PartitionTwice(Exception):
    """Two log directories have the same partition, and nobody knows which is to be served."""


class CheckpointWork:
    """Writes what changed in checkpoint files; call ``run`` in a thread.

    The offsets are read there, too: thousands of them take longer than the loop should wait. Each
    is one number, so it is right whenever it is read.
    """

    __slots__ = ("_directory", "_read", "_sequence")

    def __init__(
        self, directory: LogDirectory, read: Callable[[], dict[str, Offsets]], sequence: int
    ) -> None:
        self._directory = directory
        self._read = read
        self._sequence = sequence

    def run(self) -> None:
        for name, offsets in self._read().items():
            self._directory.write_checkpoint(name, offsets, self._sequence)


class LogDirectory:
    def __init__(self, context: StorageContext) -> None:
        self.path = context.log_dir
        self.context = context
        self.meta = MetaProperties("", -1, uuid.UUID(int=0))
        #: Set once the file system failed: nothing here is served or written any more.
        self.offline_reason = ""
        self.was_clean = False
        self.power_was_lost = True
        self.recovery_points: dict[TopicPartition, int] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        #: The log starts that a checkpoint on disk holds by now.
        self.durable_log_starts: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        #: How far compaction had come.
        self.cleaned_offsets: dict[TopicPartition, int] = {}
        #: The recovery points that a checkpoint on disk holds by now.
        self.durable_recovery_points: dict[TopicPartition, int] = {}
        self._fs: FileSystem = context.fs
        self._unlock: Callable[[], None] | None = None
        self._writing = threading.Lock()
        self._sequence = 0
        self._written: dict[str, tuple[int, Offsets]] = {}
        #: Partitions that some checkpoint on disk may name.
        self._named: set[TopicPartition] = set()

    @property
    def is_offline(self) -> bool:
        return bool(self.offline_reason)

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def open(self, cluster_id: str, node_id: int) -> None:
        """Lock and identify the directory, and take the last run's mark away."""
        fs = self._fs
        if not fs.exists(self.path):
            fs.make_directory(self.path)
            fs.sync_directory(os.path.dirname(self.path) or ".")
        unlock = fs.lock(self._file(LOCK_FILE))
        if unlock is None:
            raise DirectoryInUse(f"{self.path} is in use by another process")
        self._unlock = unlock
        self._identify(cluster_id, node_id)
        self._read_end_of_last_run()
        self.recovery_points = self._read_offsets(RECOVERY_POINT_CHECKPOINT)
        self.log_starts = self._read_offsets(LOG_START_CHECKPOINT)
        self.high_watermarks = self._read_offsets(REPLICATION_CHECKPOINT)
        self.cleaned_offsets = self._read_offsets(CLEANER_CHECKPOINT)
        self.durable_log_starts = dict(self.log_starts)
        self.durable_recovery_points = dict(self.recovery_points)
        for offsets in (
            self.recovery_points,
            self.log_starts,
            self.high_watermarks,
            self.cleaned_offsets,
        ):
            self._named.update(offsets)

    def _identify(self, cluster_id: str, node_id: int) -> None:
        path = self._file(META_PROPERTIES)
        if self._fs.exists(path):
            meta = parse_meta_properties(self._fs.read_bytes(path))
            if meta is None:
                raise ForeignDirectory(f"{path} makes no sense")
            if (meta.cluster_id, meta.node_id) != (cluster_id, node_id):
                raise ForeignDirectory(
                    f"{path} belongs to node {meta.node_id} of cluster {meta.cluster_id}, "
                    f"this is node {node_id} of {cluster_id}"
                )
            self.meta = meta
            return
        self.meta = MetaProperties(cluster_id, node_id, uuid.uuid4())
        replace_file(self._fs, path, encode_meta_properties(self.meta), sync=True)

    def _read_end_of_last_run(self) -> None:
        fs = self._fs
        boot_id = fs.boot_id().encode()
        path = self._file(BOOT_ID_FILE)
        self.power_was_lost = not fs.exists(path) or fs.read_bytes(path) != boot_id
        mark = self._file(CLEAN_SHUTDOWN_FILE)
        self.was_clean = fs.exists(mark)
        fs.remove(mark)
        fs.sync_directory(self.path)

    def note_boot(self) -> None:
        """All logs are recovered: from here on a bad batch is damage, until the next boot."""
        if not self.power_was_lost:
            return
        path = self._file(BOOT_ID_FILE)
        try:
            replace_file(self._fs, path, self._fs.boot_id().encode(), sync=True)
        except DiskFullError:
            _log.warning("%s: no room to note the boot id", self.path)

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        path = self._file(name)
        if not self._fs.exists(path):
            return {}
        offsets = parse_offsets(self._fs.read_bytes(path))
        if offsets is None:
            _log.warning("%s makes no sense and is passed over", path)
            return {}
        return offsets

    # Checkpoints -----------------------------------------------------------------------------

    def checkpoint(self, read: Callable[[], dict[str, Offsets]]) -> CheckpointWork:
        """Work that writes what ``read`` gives, as far as it is not on disk already.

        Works that overtake each other never bring older offsets back: the later made one wins.
        """
        self._sequence += 1
        return CheckpointWork(self, read, self._sequence)

    def write_checkpoint(self, name: str, offsets: Offsets, sequence: int) -> None:
        with self._writing:
            written_sequence, written = self._written.get(name, (0, None))
            if written_sequence > sequence or written == offsets or self.is_offline:
                return
            try:
                replace_file(self._fs, self._file(name), encode_offsets(offsets), sync=True)
            except DiskFullError:
                # The older checkpoint stays: recovery only takes longer with it.
                _log.warning("%s: no room for %s", self.path, name)
                return
            except OSError as error:
                raise StorageError(self.path, f"{name}: {error}") from error
            self._note_written(name, offsets, sequence)
            self._named.update(topic_partition for topic_partition, _ in offsets)

    def _note_written(self, name: str, offsets: Offsets, sequence: int) -> None:
        self._written[name] = (sequence, offsets)
        if name == LOG_START_CHECKPOINT:
            self.durable_log_starts = dict(offsets)
        elif name == RECOVERY_POINT_CHECKPOINT:
            self.durable_recovery_points = dict(offsets)

    def may_name(self, topic_partition: TopicPartition) -> bool:
        """Whether a checkpoint on disk holds offsets of a partition of that name."""
        return topic_partition in self._named

    def write_at_once(self, files: dict[str, Offsets]) -> None:
        """For offsets that must not stay on disk a moment longer. Raises when that fails."""
        self._sequence += 1
        with self._writing:
            for name, offsets in files.items():
                replace_file(self._fs, self._file(name), encode_offsets(offsets), sync=True)
                self._note_written(name, offsets, self._sequence)
            if len(files) == len(OFFSET_CHECKPOINTS):
                self._named.clear()
            for offsets in files.values():
                self._named.update(topic_partition for topic_partition, _ in offsets)

    def write_clean_mark(self, broker_epoch: int) -> None:
        """The last write of a clean stop."""
        mark = self._file(CLEAN_SHUTDOWN_FILE)
        replace_file(self._fs, mark, encode_clean_shutdown(broker_epoch), sync=True)

    def close(self) -> None:
        if self._unlock is not None:
            self._unlock()
            self._unlock = None
