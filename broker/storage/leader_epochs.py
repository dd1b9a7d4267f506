"""Which leader epoch wrote which offsets: the truth by which replicas agree (KIP-101, KIP-279).

Entries (epoch, start offset) rise in both. They change at once in memory; the file
``leader-epoch-checkpoint`` may lag, because recovery reads epochs from the batches behind the
recovery point, and that point moves only after the file was written and synced (``synced_version``).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from threading import Lock
from typing import Final

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class LeaderEpochs:
    __slots__ = (
        "_epochs",
        "_start_offsets",
        "synced_version",
        "version",
        "writing",
        "written_version",
    )

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: array[int] = array("i")
        self._start_offsets: array[int] = array("q")
        #: Counts changes; the file on disk has those up to ``synced_version``.
        self.version = 0
        for leader_epoch, start_offset in entries:
            self.assign(leader_epoch, start_offset)
        self.synced_version = self.written_version = self.version
        #: Held by the flush that writes the file: an older one must not follow a newer one.
        self.writing = Lock()

    @property
    def is_dirty(self) -> bool:
        return self.version != self.synced_version

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._start_offsets, strict=True))

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def assign(self, leader_epoch: int, start_offset: int) -> None:
        """``leader_epoch`` begins at ``start_offset``; entries that contradict it go."""
        epochs, starts = self._epochs, self._start_offsets
        if epochs and epochs[-1] == leader_epoch and starts[-1] <= start_offset:
            return
        while epochs and (epochs[-1] >= leader_epoch or starts[-1] >= start_offset):
            epochs.pop()
            starts.pop()
        epochs.append(leader_epoch)
        starts.append(start_offset)
        self.version += 1

    def epoch_at(self, offset: int) -> int:
        """Epoch that wrote ``offset``; -1 below the first entry."""
        slot = bisect_right(self._start_offsets, offset) - 1
        return self._epochs[slot] if slot >= 0 else UNDEFINED_EPOCH

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Largest known epoch up to ``leader_epoch``, and where the next one begins."""
        if leader_epoch == UNDEFINED_EPOCH or leader_epoch > self.latest:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if leader_epoch == self.latest:
            return leader_epoch, log_end_offset
        higher = bisect_right(self._epochs, leader_epoch)
        known = self._epochs[higher - 1] if higher else leader_epoch
        return known, self._start_offsets[higher]

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that begin at ``end_offset`` or later."""
        while self._start_offsets and self._start_offsets[-1] >= end_offset:
            self._epochs.pop()
            self._start_offsets.pop()
            self.version += 1

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget what ended before ``start_offset``; the epoch that covers it begins there now."""
        slot = bisect_right(self._start_offsets, start_offset) - 1
        if slot < 0 or (slot == 0 and self._start_offsets[0] == start_offset):
            return
        del self._epochs[:slot]
        del self._start_offsets[:slot]
        self._start_offsets[0] = start_offset
        self.version += 1

    def clear(self) -> None:
        if self._epochs:
            del self._epochs[:]
            del self._start_offsets[:]
            self.version += 1
