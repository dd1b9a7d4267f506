"""What all logs of one directory share, so that each of thousands holds one reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.storage.filesystem import FileSystem
from broker.storage.segment import SegmentCache

if TYPE_CHECKING:
    from broker.storage.log import Log


class DoomedFiles:
    """Files renamed to ``.deleted``: readers may still send them, so they are unlinked later."""

    __slots__ = ("_delay_ms", "_due_ms", "paths")

    def __init__(self, delay_ms: int, paths: list[str]) -> None:
        self._delay_ms = delay_ms
        self._due_ms = -1
        self.paths = paths

    def is_due(self, now_ms: int) -> bool:
        """Whether the delay has passed since this was first asked (with monotonic time)."""
        if self._due_ms < 0:
            self._due_ms = now_ms + self._delay_ms
        return now_ms >= self._due_ms


class StorageContext:
    __slots__ = (
        "cache",
        "checkpoint_cut",
        "doomed",
        "fs",
        "log_dir",
        "may_map",
        "producer_id_expiration_ms",
        "touched",
    )

    def __init__(
        self,
        fs: FileSystem,
        log_dir: str,
        *,
        cache: SegmentCache | None = None,
        producer_id_expiration_ms: int = 86_400_000,
        may_map: bool = False,
    ) -> None:
        self.fs = fs
        self.log_dir = log_dir
        self.cache = cache or SegmentCache()
        self.producer_id_expiration_ms = producer_id_expiration_ms
        #: Whether hot tails may be mapped on this file system.
        self.may_map = may_map
        #: Logs with appends since the last tick.
        self.touched: list[Log] = []
        self.doomed: list[DoomedFiles] = []
        #: Puts recovery point and log start on disk, before bytes below the old point change.
        self.checkpoint_cut: Callable[[Log], None] = lambda log: None
