"""A line on stderr that says how far long work has come; only where a person can see it."""

from __future__ import annotations

import sys

from appliance.output import format_size
from broker.clock import Clock

INTERVAL_MS = 200


class ProgressLine:
    """Rewrites one line of a terminal, a few times a second; silent elsewhere."""

    def __init__(self, clock: Clock, *, is_enabled: bool) -> None:
        self._clock = clock
        self._is_enabled = is_enabled
        self._started_ms = clock.monotonic_ms()
        self._shown_ms = self._started_ms
        self._is_shown = False

    @property
    def elapsed_ms(self) -> int:
        return self._clock.monotonic_ms() - self._started_ms

    def update(self, records: int, size: int, fraction: float | None) -> None:
        if not self._is_enabled:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._shown_ms < INTERVAL_MS:
            return
        self._shown_ms = now_ms
        self._is_shown = True
        percent = "" if fraction is None else f", {fraction:.0%}"
        sys.stderr.write(f"\r{progress_words(records, size, self.elapsed_ms)}{percent}\x1b[K")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._is_shown = False


def progress_words(records: int, size: int, elapsed_ms: int) -> str:
    noun = "record" if records == 1 else "records"
    return f"{records:,} {noun}, {format_size(size)}, {elapsed_ms / 1000:.1f} s"
