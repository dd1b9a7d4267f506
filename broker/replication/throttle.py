"""How fast replicas that are moved may be copied (KIP-73): so many bytes a second, over all of them.

A bucket that holds one second's bytes: what is read at once may overdraw it, and then nothing more is until
it is out of debt, so the average is the rate. In-sync replicas are never held up.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

#: In a topic's list: all of its replicas.
EVERY: Final = "*"


class ReplicationThrottle:
    """``rate``: bytes a second, as the settings say now."""

    def __init__(self, rate: Callable[[], int], now_ms: int) -> None:
        self._rate = rate
        self._balance = 0.0
        self._at_ms = now_ms

    def record(self, size: int, now_ms: int) -> None:
        self._refill(now_ms)
        self._balance -= size

    def wait_ms(self, now_ms: int) -> int:
        """How long nothing may be copied from now on."""
        self._refill(now_ms)
        if self._balance >= 0:
            return 0
        return 1 + int(-self._balance * 1000 / max(self._rate(), 1))

    def _refill(self, now_ms: int) -> None:
        rate = self._rate()
        gained = rate * (now_ms - self._at_ms) / 1000
        self._at_ms = now_ms
        self._balance = min(self._balance + gained, float(rate))


def is_throttled(replicas: Container[str], index: int, broker_id: int) -> bool:
    """``replicas``: a topic's list, ``partition:broker`` or all."""
    return EVERY in replicas or f"{index}:{broker_id}" in replicas
