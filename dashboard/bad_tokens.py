"""Counts tokens that are not in force, by address: guessing one is hopeless, trying is worth a word.

A token has 256 random bits, so nothing that is valid is ever shut out for what others try from its
address (which may be a proxy's). After so many failures of an address its further ones are answered
429, and one audit entry tells of it. In memory, of this process, bounded.
"""

from __future__ import annotations

import threading
from typing import Final

from broker.clock import Clock, SystemClock

LIMIT: Final = 20
WINDOW_MS: Final = 15 * 60_000
MAX_ADDRESSES: Final = 10_000


class BadTokens:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: dict[str, tuple[int, int]] = {}
        """By address: when its window began, and failures since; in the order of their beginning."""

    def note(self, address: str) -> int:
        """One more; how many there are of this address in the window that is going on."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            since_ms, count = self._counts.get(address, (now_ms, 0))
            if now_ms - since_ms >= WINDOW_MS:
                self._counts.pop(address)
                since_ms, count = now_ms, 0
            if count == 0 and len(self._counts) >= MAX_ADDRESSES:
                self._counts.pop(next(iter(self._counts)))
            self._counts[address] = since_ms, count + 1
            return count + 1


bad_tokens = BadTokens(SystemClock())
