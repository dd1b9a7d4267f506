"""Timers by key, for machines that cannot wait.

Whoever owns the clock asks for ``next_deadline_ms`` and calls ``fire(now_ms)``. Setting a timer anew
replaces it. Heartbeats do that all the time, so moving a deadline back costs one dictionary store:
the heap keeps its old entry, which finds out when it comes up.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Final

Callback = Callable[[int], None]

#: One that failed is called again after this long.
RETRY_MS: Final = 1000


class Timers:
    """``callback`` gets the time at which it is called."""

    __slots__ = ("_entries", "_heap", "_numbers")

    def __init__(self) -> None:
        #: Key to (deadline, callback).
        self._entries: dict[Hashable, tuple[int, Callback]] = {}
        #: (deadline at that time, tie breaker, key); at least one per key at or before its deadline.
        self._heap: list[tuple[int, int, Hashable]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def set(self, key: Hashable, deadline_ms: int, callback: Callback) -> None:
        known = self._entries.get(key)
        self._entries[key] = (deadline_ms, callback)
        if known is None or deadline_ms < known[0]:
            heapq.heappush(self._heap, (deadline_ms, next(self._numbers), key))
            if len(self._heap) > 64 and len(self._heap) > 4 * len(self._entries):
                self._rebuild()

    def cancel(self, key: Hashable) -> None:
        self._entries.pop(key, None)

    def cancel_where(self, is_meant: Callable[[Hashable], bool]) -> None:
        for key in [key for key in self._entries if is_meant(key)]:
            del self._entries[key]
        self._rebuild()

    def deadline_ms(self, key: Hashable) -> int | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    @property
    def next_deadline_ms(self) -> int | None:
        """When ``fire`` should be called next; never later than the first deadline."""
        return self._heap[0][0] if self._heap else None

    def fire(self, now_ms: int, limit: int = 1 << 30) -> int:
        """Call what is due, one by one, so that each may cancel the next. How many were called.

        One that raises is called again a little later: a group whose rebalance nobody ends, or a transaction
        that never times out, would stand still for ever.
        """
        count = 0
        while count < limit:
            found = self._pop_one(now_ms)
            if found is None:
                break
            key, callback = found
            try:
                callback(now_ms)
            except BaseException:
                if key not in self._entries:
                    self.set(key, now_ms + RETRY_MS, callback)
                raise
            count += 1
        return count

    def _pop_one(self, now_ms: int) -> tuple[Hashable, Callback] | None:
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            _, _, key = heapq.heappop(heap)
            entry = self._entries.get(key)
            if entry is None:
                continue
            deadline_ms, callback = entry
            if deadline_ms > now_ms:
                heapq.heappush(heap, (deadline_ms, next(self._numbers), key))
                continue
            del self._entries[key]
            return key, callback
        return None

    def _rebuild(self) -> None:
        numbers = self._numbers
        self._heap = [(entry[0], next(numbers), key) for key, entry in self._entries.items()]
        heapq.heapify(self._heap)
