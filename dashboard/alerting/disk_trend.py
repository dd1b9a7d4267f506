"""When a disk will be full at its pace: least squares over what was used, minute by minute.

Two windows have to agree, the last hour and the last six: one large file written an hour ago is no
trend, nor is an hour's growth in a disk that is emptied every few hours. Kept in memory; after a
restart nothing is told until half an hour has been seen again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

SAMPLE_MS = 60_000
LONG_WINDOW_MS = 6 * 3_600_000
SHORT_WINDOW_MS = 3_600_000
LEAST_SPAN_MS = 30 * 60_000
HOUR_MS = 3_600_000
NEVER = float("inf")
MAX_DISKS = 64


@dataclass(slots=True)
class DiskTrend:
    _samples: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)

    def add(self, disk: str, used_bytes: int, now_ms: int) -> None:
        """At most one sample a minute is kept. A clock that went back starts the disk anew."""
        if disk not in self._samples and len(self._samples) >= MAX_DISKS:
            return
        samples = self._samples.setdefault(disk, deque(maxlen=LONG_WINDOW_MS // SAMPLE_MS))
        if samples and now_ms < samples[-1][0]:
            samples.clear()
        if not samples or now_ms - samples[-1][0] >= SAMPLE_MS:
            samples.append((now_ms, used_bytes))

    def hours_to_full(self, disk: str, free_bytes: int) -> float | None:
        """None: not enough was seen. ``NEVER``: it does not grow."""
        samples = list(self._samples.get(disk, ()))
        if not samples or samples[-1][0] - samples[0][0] < LEAST_SPAN_MS:
            return None
        short = [sample for sample in samples if samples[-1][0] - sample[0] <= SHORT_WINDOW_MS]
        if len(short) < 2:
            return None
        pace = min(_slope(samples), _slope(short))
        return free_bytes / pace / HOUR_MS if pace > 0 else NEVER


def _slope(samples: Sequence[tuple[int, int]]) -> float:
    """Bytes a millisecond."""
    mean_ms = sum(at_ms for at_ms, _ in samples) / len(samples)
    mean_used = sum(used for _, used in samples) / len(samples)
    spread = sum((at_ms - mean_ms) ** 2 for at_ms, _ in samples)
    if spread == 0:
        return 0.0
    return sum((at_ms - mean_ms) * (used - mean_used) for at_ms, used in samples) / spread
