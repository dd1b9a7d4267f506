"""Putting cleaned segments in the place of those they were made from, safe at every instant.

As Kafka does it, with a sync between the steps because a power loss may keep any subset of renames:

1. the new files become ``.swap``, the last segment first: until all are, a start drops them;
2. they stand in the log; the old ones become ``.deleted`` (a start finishes this from here on);
3. each new ``.log`` gets its name, then its indexes theirs: while a ``.log.swap`` is there, whatever
   lies under a final name in its range is old.

Whoever reads an old segment goes on doing so: its files are unlinked after ``file.delete.delay.ms``.
``steps`` runs on the loop and gives out what waits for the disk. A truncation meanwhile calls
``settle``, which takes the swap back or brings it to its end at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from broker.model.errors import DiskFullError
from broker.storage.cleaning.job import CleanedGroup, CleanedSegment
from broker.storage.flush import BlockingWork
from broker.storage.layout import CLEANED_SUFFIX, DELETED_SUFFIX, INDEX_SUFFIXES, SWAP_SUFFIX
from broker.storage.segment import Segment

if TYPE_CHECKING:
    from broker.storage.log import Log


class SwapRefused(Exception):
    """The log has changed since the cleaning began: nothing was put in place."""


class _Work:
    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run


class SegmentSwap:
    """``old``: the segments that were read, as they were in the log then."""

    def __init__(self, log: Log, old: Sequence[Segment], group: CleanedGroup) -> None:
        self._log = log
        self._fs = log.fs
        self._old = list(old)
        self._new = [self._segment(each) for each in group.new]
        self._lock = threading.Lock()
        #: From then on it can only go on; a failure is the directory's.
        self.is_installed = False
        self._is_over = False
        self._was_settled = False

    def _segment(self, cleaned: CleanedSegment) -> Segment:
        segment = self._log.sealed_segment(
            cleaned.base_offset,
            cleaned.size,
            cleaned.transaction_index_size,
            cleaned.changed_ms,
        )
        segment.set_suffix(CLEANED_SUFFIX)
        return segment

    def steps(self) -> Generator[BlockingWork | None, None, None]:
        """Work to be run in a thread, or None: others may have a turn. Raises SwapRefused, OSError;
        the caller goes on to the end, or closes the iterator when the broker stops."""
        log = self._log
        self._check()
        log.swap = self
        try:
            for segment in reversed(self._new):
                yield _Work(lambda segment=segment: self._become_swap(segment))  # type: ignore[misc]
                self._check()
            yield from self._finish()
        except (SwapRefused, OSError, DiskFullError):
            if not self.is_installed:
                yield _Work(self._take_back)
            raise
        finally:
            self._is_over = True
            log.swap = None

    def _check(self) -> None:
        """The old segments must be the log's, none the active one, none of them gone."""
        segments = self._log.segments
        if self._log.is_deleted or self._was_settled:
            raise SwapRefused("the log was deleted or truncated meanwhile")
        slot = segments.slot_for(self._old[0].base_offset)
        there = [segments[at] for at in range(slot, min(slot + len(self._old), len(segments) - 1))]
        if there != self._old:
            raise SwapRefused("segments were deleted meanwhile")

    def _become_swap(self, segment: Segment) -> None:
        with self._lock:
            if self._was_settled or self._log.is_deleted:
                return
            segment.rename_files(self._fs, SWAP_SUFFIX)
            self._fs.sync_directory(self._log.directory)

    def _finish(self) -> Iterator[BlockingWork | None]:
        """From here on a start brings it to its end, too."""
        log, fs = self._log, self._fs
        log.install_cleaned(self._old, self._new)
        self.is_installed = True
        for segment in self._old:
            segment.rename_files(fs, DELETED_SUFFIX)
            yield None
        log.doom_replaced(self._old)
        yield _Work(self._sync)
        for segment in self._still_mine():
            segment.rename_log(fs, "")
        yield _Work(self._sync)
        for segment in self._still_mine():
            segment.rename_indexes(fs, "")
        log.note_renamed()

    def _still_mine(self) -> list[Segment]:
        """A topic that is deleted takes its files along; a truncated segment has another ending."""
        if self._log.is_deleted:
            return []
        return [segment for segment in self._new if segment.suffix == SWAP_SUFFIX]

    def _sync(self) -> None:
        if not self._log.is_deleted:
            self._fs.sync_directory(self._log.directory)

    def _take_back(self) -> None:
        """Refused or failed: before it is installed, nothing of it may stay behind.

        The log is ``.cleaned`` again before anything goes: a start drops all of it then. Waits for
        the disk. A broker that stops or dies instead leaves a swap that its next start finishes.
        """
        log, fs = self._log, self._fs
        with self._lock:
            if self._was_settled or log.is_deleted:
                return
            self._was_settled = True
            for segment in self._new:
                segment.rename_log(fs, CLEANED_SUFFIX)
            fs.sync_directory(log.directory)
            for segment in self._new:
                for kind in INDEX_SUFFIXES:
                    fs.remove(segment.path(kind))
            fs.sync_directory(log.directory)
            for segment in self._new:
                segment.remove_files(fs)

    def settle(self) -> None:
        """The log is about to be cut: be gone, or be done. Waits for the disk."""
        if self._is_over:
            return
        if not self.is_installed:
            self._take_back()
            return
        log, fs = self._log, self._fs
        for segment in self._old:
            if segment.suffix != DELETED_SUFFIX:
                segment.rename_files(fs, DELETED_SUFFIX)
        self._sync()
        for segment in self._still_mine():
            segment.rename_log(fs, "")
        self._sync()
        for segment in self._still_mine():
            segment.rename_indexes(fs, "")
        fs.sync_directory(log.directory)
