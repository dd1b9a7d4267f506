"""How late the loop runs: a timer that notes by how much it missed its time.

The histogram has fixed buckets in microseconds, so percentiles are upper bounds of a bucket.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

#: While requests come in, and while none do: an idle broker shall cost nothing that shows.
TICK_SECONDS: Final = 0.01
IDLE_TICK_SECONDS: Final = 0.5
BUCKETS_US: Final = (
    100, 200, 300, 500, 750, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000, 7_500, 10_000, 15_000,
    20_000, 30_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 5_000_000,
)  # fmt: skip


class Watchdog:
    """Loop-lag histogram since the last ``reset``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, request_count: Callable[[], int]) -> None:
        self._loop = loop
        self._request_count = request_count
        self._last_count = 0
        self._counts = [0] * (len(BUCKETS_US) + 1)
        self._sum_us = 0
        self._due_ns = 0
        self._timer: asyncio.TimerHandle | None = None
        self.slow_handlers = 0

    def start(self) -> None:
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def reset(self) -> None:
        self._counts = [0] * len(self._counts)
        self._sum_us = 0

    def percentile_us(self, fraction: float) -> int:
        """Upper bound of the lag of ``fraction`` of all ticks; 0 when there were none."""
        total = sum(self._counts)
        needed = total * fraction
        seen = 0
        for index, count in enumerate(self._counts):
            seen += count
            if count and seen >= needed:
                return BUCKETS_US[min(index, len(BUCKETS_US) - 1)]
        return 0

    def histogram(self) -> tuple[list[int], int]:
        """Ticks by bucket (one more than bounds), and the sum of all lags in microseconds."""
        return list(self._counts), self._sum_us

    def stats(self) -> dict[str, int]:
        return {
            "ticks": sum(self._counts),
            "lag_p50_us": self.percentile_us(0.5),
            "lag_p99_us": self.percentile_us(0.99),
            "lag_p999_us": self.percentile_us(0.999),
            "slow_handlers": self.slow_handlers,
        }

    def _schedule(self) -> None:
        count = self._request_count()
        delay = IDLE_TICK_SECONDS if count == self._last_count else TICK_SECONDS
        self._last_count = count
        self._due_ns = time.perf_counter_ns() + int(delay * 1e9)
        self._timer = self._loop.call_later(delay, self._on_tick)

    def _on_tick(self) -> None:
        late_us = max(0, time.perf_counter_ns() - self._due_ns) // 1000
        self._counts[bisect_left(BUCKETS_US, late_us)] += 1
        self._sum_us += late_us
        self._schedule()
