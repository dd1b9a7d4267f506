"""A speed limit for reading and writing: ``log.cleaner.io.max.bytes.per.second``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from broker.clock import SystemClock

#: Sleeps are no shorter, and no more than this is made up for after a slow stretch.
_STEP_MS: Final = 100
#: The clock is asked once for so many bytes.
_LEAST_BYTES: Final = 64 * 1024


class Throttle:
    """``take`` sleeps as long as the bytes taken so far are ahead of the limit."""

    def __init__(
        self,
        bytes_per_second: float,
        *,
        now_ms: Callable[[], int] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_ms = bytes_per_second / 1000
        self._now_ms = now_ms or SystemClock().monotonic_ms
        self._sleep = sleep
        #: When everything taken so far is paid for.
        self._paid_ms = float(self._now_ms())
        self._taken = 0

    def take(self, count: int) -> None:
        self._taken += count
        if self._taken < _LEAST_BYTES:
            return
        now_ms = self._now_ms()
        self._paid_ms = max(self._paid_ms, now_ms - _STEP_MS) + self._taken / self._bytes_per_ms
        self._taken = 0
        ahead_ms = self._paid_ms - now_ms
        if ahead_ms >= _STEP_MS:
            self._sleep(ahead_ms / 1000)
