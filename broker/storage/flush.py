"""Making appended bytes durable: what must be synced, and the work object that does it.

The loop never waits for a disk. It asks a log for ``FlushNeeded`` (taken *before* the sync, so
its end offset covers only bytes that were written), has ``run()`` called in a thread, and hands
the result to ``log.on_flushed``: only then the flushed offset moves. A failed sync is final: the
kernel forgets the error with the dirty pages, so trying again would lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.storage.checkpoints import encode_epochs
from broker.storage.filesystem import File, FileSystem
from broker.storage.layout import LEADER_EPOCH_CHECKPOINT
from broker.storage.shared_files import SharedFiles

if TYPE_CHECKING:
    from broker.storage.log import Log
    from broker.storage.segment import Segment


class BlockingWork(Protocol):
    """Something that waits for the disk: call ``run`` in a thread, once."""

    def run(self) -> None: ...


class Unsynced:
    """What a log wrote and no sync has covered yet. Each flush takes all of it along.

    Nothing is struck off before its sync has come back, because flushes may fail or overtake each
    other; the stamps keep an older flush from striking off what changed since it was made.
    """

    __slots__ = ("_clock", "directories", "files", "sealed")

    def __init__(self, sealed: list[Segment]) -> None:
        self._clock = 0
        #: Sealed segments, all their files.
        self.sealed = sealed
        #: Small files and directories, with a stamp of their last change.
        self.files: dict[str, int] = {}
        self.directories: dict[str, int] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.sealed or self.files or self.directories)

    def note_file(self, path: str) -> None:
        """``path`` was written, and is new in its directory."""
        self._clock += 1
        self.files[path] = self._clock

    def note_directory(self, path: str) -> None:
        """A name in ``path`` has changed."""
        self._clock += 1
        self.directories[path] = self._clock

    def forget_segments(self, gone: set[Segment]) -> None:
        self.sealed = [segment for segment in self.sealed if segment not in gone]

    def strike_off(self, flush: FlushNeeded) -> None:
        self.forget_segments(set(flush.sealed))
        _strike_off(self.files, flush.small_files)
        _strike_off(self.directories, flush.directories)


def _strike_off(noted: dict[str, int], synced: dict[str, int]) -> None:
    for path, stamp in synced.items():
        if noted.get(path) == stamp:
            del noted[path]


class FlushNeeded:
    """Everything below ``end_offset`` is on disk once ``run`` has returned."""

    __slots__ = (
        "_descriptors",
        "_epochs",
        "_files",
        "_fs",
        "_shared",
        "cut_count",
        "directories",
        "end_offset",
        "epochs_version",
        "is_group_commit",
        "log",
        "sealed",
        "small_files",
    )

    def __init__(
        self,
        log: Log,
        fs: FileSystem,
        shared: SharedFiles,
        end_offset: int,
        active_files: list[File],
        unsynced: Unsynced,
        *,
        cut_count: int,
        is_group_commit: bool,
    ) -> None:
        self.log = log
        self.end_offset = end_offset
        self.sealed = list(unsynced.sealed)
        self.small_files = dict(unsynced.files)
        self.directories = dict(unsynced.directories)
        epochs = log.leader_epochs
        self.epochs_version = epochs.version
        self._epochs = epochs.entries() if epochs.is_dirty else None
        #: How often the log had been truncated: a flush from before a cut proves nothing.
        self.cut_count = cut_count
        self.is_group_commit = is_group_commit
        self._fs = fs
        self._shared = shared
        self._files = list(active_files)
        for segment in self.sealed:
            self._files += segment.open_files()
        self._files += [fs.open(path) for path in self.small_files if fs.exists(path)]
        self._descriptors = [file.pin() for file in self._files]

    def plain_descriptors(self) -> list[int] | None:
        """The descriptors whose fdatasync is all that ``run`` would do; None when there is more."""
        if self._epochs is not None or self.directories:
            return None
        return self._descriptors

    def run(self) -> None:
        """Waits for the disk. Raises OSError or DiskFullError; the flush failed then."""
        for file in self._files:
            file.datasync()
        self.write_epochs(sync=True)
        for directory in self.directories:
            self._fs.sync_directory(directory)

    def write_epochs(self, *, sync: bool) -> None:
        """The part that is not syncing; a clean stop of many logs syncs them in one go."""
        if self._epochs is None:
            return
        epochs = self.log.leader_epochs
        with epochs.writing:
            if epochs.written_version <= self.epochs_version:
                path = f"{self.log.directory}/{LEADER_EPOCH_CHECKPOINT}"
                self._shared.replace(path, encode_epochs(self._epochs), sync=sync)
                epochs.written_version = self.epochs_version

    def release(self) -> None:
        """Give the descriptors back; ``log.on_flushed`` does it."""
        for file in self._files:
            file.unpin()
        self._files = []
