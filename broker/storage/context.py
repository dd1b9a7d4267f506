"""What all logs of one directory share, so that each of thousands holds one reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.storage.filesystem import FileSystem
from broker.storage.layout import SEGMENT_SUFFIXES
from broker.storage.segment import Segment, SegmentCache
from broker.storage.shared_files import SharedFiles

if TYPE_CHECKING:
    from broker.storage.log import Log


class HotTails:
    """The logs whose tails are mapped: no more than ``limit``, each map is address space and a
    place in the kernel's list."""

    __slots__ = ("_limit", "_logs")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._logs: set[Log] = set()

    def admit(self, log: Log) -> bool:
        """Whether ``log`` may map its tail, and from now on has."""
        if len(self._logs) >= self._limit and log not in self._logs:
            return False
        self._logs.add(log)
        return True

    def dismiss(self, log: Log) -> None:
        self._logs.discard(log)


class DoomedSegments:
    """Segments that left ``log`` and are ``.deleted``. They are unlinked a while later, because
    somebody may still be sending them."""

    __slots__ = ("_delay_ms", "_due_ms", "log", "segments")

    def __init__(self, log: Log, segments: list[Segment], delay_ms: int) -> None:
        self.log = log
        self.segments = segments
        self._delay_ms = delay_ms
        self._due_ms = -1

    def is_due(self, now_ms: int) -> bool:
        """Whether the delay has passed since this was first asked (with monotonic time)."""
        if self._due_ms < 0:
            self._due_ms = now_ms + self._delay_ms
        return now_ms >= self._due_ms

    def paths(self) -> list[str]:
        return [segment.path(kind) for segment in self.segments for kind in SEGMENT_SUFFIXES]


class OpeningInterrupted(Exception):
    """Logs were being opened, or recovered, when the broker was told to stop."""


class StorageContext:
    __slots__ = (
        "appended_bytes",
        "cache",
        "checkpoint_cut",
        "doomed",
        "fs",
        "hot_tails",
        "is_interrupted",
        "log_dir",
        "producer_id_expiration_ms",
        "shared",
        "touched",
    )

    def __init__(
        self,
        fs: FileSystem,
        log_dir: str,
        *,
        cache: SegmentCache | None = None,
        producer_id_expiration_ms: int = 86_400_000,
        hot_tails: HotTails | None = None,
    ) -> None:
        self.fs = fs
        self.log_dir = log_dir
        self.shared = SharedFiles(fs)
        self.cache = cache or SegmentCache()
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self.hot_tails = hot_tails or HotTails(0)
        #: Since somebody last looked at the free space.
        self.appended_bytes = 0
        #: Logs with appends since the last tick.
        self.touched: list[Log] = []
        self.doomed: list[DoomedSegments] = []
        #: Recovery shall end as soon as it can, undone; set by another thread.
        self.is_interrupted = False
        #: Puts recovery point and log start on disk, before bytes below the old point change.
        self.checkpoint_cut: Callable[[Log], None] = lambda log: None

    def check_interrupt(self) -> None:
        if self.is_interrupted:
            raise OpeningInterrupted
