"""Making appended bytes durable: what must be synced, and the work object that does it.

The loop never waits for a disk. It asks a log for ``FlushNeeded`` (taken *before* the sync, so
its end offset covers only bytes that were written), has ``run()`` called in a thread, and hands
the result to ``log.on_flushed``: only then the flushed offset moves. A failed sync is final: the
kernel forgets the error with the dirty pages, so trying again would lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.storage.checkpoints import encode_epochs
from broker.storage.filesystem import File, FileSystem, replace_file
from broker.storage.layout import LEADER_EPOCH_CHECKPOINT

if TYPE_CHECKING:
    from broker.storage.log import Log
    from broker.storage.segment import Segment


class BlockingWork(Protocol):
    """Something that waits for the disk: call ``run`` in a thread, once."""

    def run(self) -> None: ...


class FlushNeeded:
    """Everything below ``end_offset`` is on disk once ``run`` has returned."""

    __slots__ = (
        "_directories",
        "_epochs",
        "_files",
        "_fs",
        "cut_count",
        "end_offset",
        "is_group_commit",
        "log",
        "sealed",
    )

    def __init__(
        self,
        log: Log,
        fs: FileSystem,
        end_offset: int,
        files: list[File],
        directories: list[str],
        sealed: list[Segment],
        epochs: list[tuple[int, int]] | None,
        cut_count: int,
        is_group_commit: bool,
    ) -> None:
        self.log = log
        self.end_offset = end_offset
        #: Sealed segments that are on disk with this flush.
        self.sealed = sealed
        #: How often the log had been truncated: a flush from before a cut proves nothing.
        self.cut_count = cut_count
        self.is_group_commit = is_group_commit
        self._fs = fs
        self._files = files
        self._directories = directories
        self._epochs = epochs
        for file in files:
            file.pin()

    def run(self) -> None:
        """Waits for the disk. Raises OSError or DiskFullError; the flush failed then."""
        for file in self._files:
            file.datasync()
        self.write_epochs(sync=True)
        for directory in self._directories:
            self._fs.sync_directory(directory)

    def write_epochs(self, *, sync: bool) -> None:
        """The part that is not syncing; a clean stop of many logs syncs them in one go."""
        if self._epochs is not None:
            path = f"{self.log.directory}/{LEADER_EPOCH_CHECKPOINT}"
            replace_file(self._fs, path, encode_epochs(self._epochs), sync=sync)

    def release(self) -> None:
        """Give the descriptors back; ``log.on_flushed`` does it."""
        for file in self._files:
            file.unpin()
        self._files = []
