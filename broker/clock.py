"""The only reader of time in the broker.

``wall_ms`` stamps records and drives retention; ``monotonic_ms`` drives every timer, session
and lease, so a step of the wall clock expires nobody. Everything else takes ``now_ms`` as an
argument or a ``Clock``; tests use the manual clock in ``tests/support``.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Source of time. Both methods return whole milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may step backwards."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary point; never steps."""
        ...


class SystemClock:
    """The clock of the machine."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
