"""Work that would block the loop: run in threads, results come back as events.

``Background`` is the port that the server fills in. ``FlushScheduler`` is group commit: one
fdatasync at a time for each log, at most ``MAX_FLUSHES`` at once, and everything that was
appended while one ran is covered by the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from broker.model.errors import DiskFullError, StorageError
from broker.storage.flush import FlushNeeded
from broker.storage.log import Log

T = TypeVar("T")

#: Files synced at the same time: more only queue up in the device.
MAX_FLUSHES: Final = 8
#: The same where the kernel syncs by itself: nobody waits in a thread.
MAX_KERNEL_FLUSHES: Final = 64
#: Logs that one thread syncs in a row before their acknowledgements go out.
MAX_LOGS_A_JOB: Final = 16


class Background(Protocol):
    """Threads of the server. ``then(result, error)`` runs on the loop; one of both is None."""

    def compute(
        self, work: Callable[[], T], then: Callable[[T | None, Exception | None], None]
    ) -> None:
        """CPU work (codecs, record walks)."""
        ...

    def disk(
        self, work: Callable[[], T], then: Callable[[T | None, Exception | None], None]
    ) -> None:
        """Blocking file work that nobody waits for in order (sync of rolled files, deletion)."""
        ...

    def flush(
        self, work: Callable[[], T], then: Callable[[T | None, Exception | None], None]
    ) -> None:
        """fdatasync on behalf of ``FlushScheduler``."""
        ...

    @property
    def can_datasync(self) -> bool:
        """Whether ``datasync`` works here."""
        ...

    def datasync(
        self, descriptors: Sequence[int], then: Callable[[Exception | None], None]
    ) -> bool:
        """fdatasync without a thread; False when it was not begun."""
        ...


class Flushed(Protocol):
    """A partition, led or followed."""

    log: Log

    @property
    def is_closed(self) -> bool: ...

    def advance_high_watermark(self) -> None:
        """A sync has come back."""
        ...


class FlushScheduler:
    """Decides which log is synced next."""

    def __init__(
        self,
        background: Background,
        on_failed: Callable[[StorageError], None],
        on_closed: Callable[[Log], None] = lambda log: None,
    ) -> None:
        self._background = background
        self._on_failed = on_failed
        #: A sync came back for a partition that has closed; another may have its log now.
        self._on_closed = on_closed
        self._waiting: deque[Flushed] = deque()
        #: Partitions queued or running; True when another flush is wanted after the running one.
        self._state: dict[Flushed, bool] = {}
        self._running = 0
        self.finished_count = 0
        #: Their last sync was given up for want of room: tried again by ``retry``.
        self._without_room: set[Flushed] = set()

    def retry(self) -> None:
        """Once a second: there may be room again."""
        waiting, self._without_room = self._without_room, set()
        for partition in waiting:
            self.request(partition)

    def is_under_way(self, partition: Flushed) -> bool:
        """Whether a sync that was asked for has no outcome yet."""
        return partition in self._state

    def request(self, partition: Flushed) -> None:
        """Sync what ``partition`` has appended so far, soon."""
        if partition in self._state:
            self._state[partition] = True
            return
        self._state[partition] = False
        self._waiting.append(partition)
        self._pump()

    def _pump(self) -> None:
        if self._background.can_datasync:
            self._pump_to_kernel()
        else:
            self._pump_to_threads()

    def _pump_to_kernel(self) -> None:
        while self._waiting and self._running < MAX_KERNEL_FLUSHES:
            for partition, flush in self._take(1):
                self._running += 1
                descriptors = flush.plain_descriptors()
                done = partial(self._on_synced, partition, flush)
                if descriptors is None or not self._background.datasync(descriptors, done):
                    jobs = [(partition, flush)]
                    self._background.flush(partial(_run_all, [flush]), partial(self._on_done, jobs))

    def _on_synced(self, partition: Flushed, flush: FlushNeeded, error: Exception | None) -> None:
        self._running -= 1
        self._finish(partition, flush, error)
        self._pump()

    def _pump_to_threads(self) -> None:
        while self._waiting and self._running < MAX_FLUSHES:
            jobs = self._take(-(-len(self._waiting) // (MAX_FLUSHES - self._running)))
            if not jobs:
                continue
            self._running += 1
            needed = [flush for _, flush in jobs]
            self._background.flush(partial(_run_all, needed), partial(self._on_done, jobs))

    def _take(self, count: int) -> list[tuple[Flushed, FlushNeeded]]:
        """The next ``count`` logs that have something to sync: one trip to a thread for all."""
        jobs = []
        for _ in range(min(count, MAX_LOGS_A_JOB)):
            partition = self._waiting.popleft()
            flush = self._flush_of(partition)
            if flush is None:
                del self._state[partition]
                continue
            self._state[partition] = False
            jobs.append((partition, flush))
        return jobs

    def _flush_of(self, partition: Flushed) -> FlushNeeded | None:
        if partition.is_closed:
            return None
        try:
            return partition.log.flush_target()
        except StorageError as failure:
            self._on_failed(failure)
        except DiskFullError:
            self._without_room.add(partition)
        return None

    def _on_done(
        self,
        jobs: list[tuple[Flushed, FlushNeeded]],
        errors: list[Exception | None] | None,
        _: Exception | None,
    ) -> None:
        self._running -= 1
        assert errors is not None
        for (partition, flush), error in zip(jobs, errors, strict=True):
            self._finish(partition, flush, error)
        self._pump()

    def _finish(self, partition: Flushed, flush: FlushNeeded, error: Exception | None) -> None:
        self.finished_count += 1
        is_wanted_again = self._state.pop(partition)
        try:
            partition.log.on_flushed(flush, error)
        except StorageError as failure:
            # A failed fdatasync is final: the kernel has dropped the error with the dirty pages.
            self._on_failed(failure)
            return
        if isinstance(error, DiskFullError):
            self._without_room.add(partition)
        partition.advance_high_watermark()
        if partition.is_closed:
            self._on_closed(partition.log)
        elif is_wanted_again:
            self.request(partition)


def _run_all(flushes: list[FlushNeeded]) -> list[Exception | None]:
    """In a thread: each sync by itself, so that one failure says nothing of the others."""
    errors: list[Exception | None] = []
    for flush in flushes:
        try:
            flush.run()
        except Exception as error:  # noqa: BLE001 - handed to the loop, which decides
            errors.append(error)
        else:
            errors.append(None)
    return errors
