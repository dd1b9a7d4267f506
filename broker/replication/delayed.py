"""Operations that wait: a produce for its acknowledgement, a fetch for more bytes.

An operation is registered with the partitions that can complete it and with one timer. It ends
exactly once: completed, timed out or cancelled (its connection closed), and whichever comes first
removes it from all partitions, so that nothing stays behind for a client that has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from broker.model.error_code import ErrorCode

if TYPE_CHECKING:
    from broker.replication.partition import Partition


class TimerHandle(Protocol):
    """What the loop returns for a scheduled call."""

    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """The part of an event loop that waiting needs."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle: ...

    def call_soon(self, callback: Callable[[], None]) -> object: ...


class DelayedProduce:
    """A produce request of which some partitions are not yet acknowledged.

    ``required`` maps each waiting partition to the offset that its acknowledged offset must
    reach. ``finish(failed)`` gets the partitions that did not: too late, or lost meanwhile (deleted,
    or their disk failed).
    """

    __slots__ = ("_failed", "_finish", "_required", "_timer")

    def __init__(
        self,
        required: dict[Partition, int],
        timeout_ms: float,
        scheduler: Scheduler,
        finish: Callable[[Mapping[Partition, ErrorCode]], None],
    ) -> None:
        self._required = required
        self._failed: dict[Partition, ErrorCode] = {}
        self._finish: Callable[[Mapping[Partition, ErrorCode]], None] | None = finish
        for partition, offset in required.items():
            partition.await_acknowledgement(offset, self)
        self._timer = scheduler.call_later(timeout_ms, self._on_timeout)

    def on_acknowledged(self, partition: Partition) -> None:
        """``partition`` has reached its required offset (called once for each)."""
        self._required.pop(partition, None)
        if not self._required:
            self._end()

    def on_lost(self, partition: Partition, code: ErrorCode) -> None:
        """``partition`` will never reach it: what was appended is gone, or may be."""
        if self._required.pop(partition, None) is not None:
            self._failed[partition] = code
            if not self._required:
                self._end()

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        self._finish = None
        self._end()

    @property
    def is_ended(self) -> bool:
        return not self._required

    def _on_timeout(self) -> None:
        self._failed.update(dict.fromkeys(self._required, ErrorCode.REQUEST_TIMED_OUT))
        self._end()

    def _end(self) -> None:
        self._timer.cancel()
        left, self._required = self._required, {}
        for partition in left:
            partition.forget_produce()
        finish, self._finish = self._finish, None
        if finish is not None:
            finish(self._failed)


class DelayedFetch:
    """A fetch that found too few bytes.

    It waits in each of ``places`` (``Partition.fetch_waiters``), whose owners wake it; wakes within
    one turn of the loop are answered by a single ``try_complete``, which returns True once it has sent
    its answer. After ``max_wait_ms`` ``force_complete`` answers with whatever there is.
    """

    __slots__ = ("_force", "_is_woken", "_places", "_scheduler", "_timer", "_try_complete")

    def __init__(
        self,
        places: Iterable[set[DelayedFetch]],
        max_wait_ms: float,
        scheduler: Scheduler,
        try_complete: Callable[[], bool],
        force_complete: Callable[[], None],
    ) -> None:
        self._places = tuple(places)
        self._scheduler = scheduler
        self._try_complete: Callable[[], bool] | None = try_complete
        self._force = force_complete
        self._is_woken = False
        for place in self._places:
            place.add(self)
        self._timer = scheduler.call_later(max_wait_ms, self._on_timeout)

    def wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._scheduler.call_soon(self._on_wake)

    def cancel(self) -> None:
        """Ends the operation without an answer."""
        self._try_complete = None
        self._timer.cancel()
        for place in self._places:
            place.discard(self)
        self._places = ()

    def _on_wake(self) -> None:
        self._is_woken = False
        if self._try_complete is not None and self._try_complete():
            self.cancel()

    def _on_timeout(self) -> None:
        if self._try_complete is not None:
            self.cancel()
            self._force()
