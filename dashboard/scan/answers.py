"""Lines that a child writes: one JSON document each, none held back for long."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from broker.clock import Clock
from dashboard.scan.matching import Matcher
from dashboard.scan.walk import Walk

PROGRESS_MS: Final = 250

Write = Callable[[dict[str, Any]], None]


def encode(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


class Progress:
    """Says four times a second how far a walk is."""

    def __init__(self, write: Write, walk: Walk, matcher: Matcher, clock: Clock) -> None:
        self.matched_count = 0
        self._write = write
        self._walk = walk
        self._matcher = matcher
        self._clock = clock
        self._said_ms = 0

    def maybe_say(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._said_ms >= PROGRESS_MS:
            self._said_ms = now_ms
            self._write({"progress": self.figures()})

    def figures(self) -> dict[str, Any]:
        walk, matcher = self._walk, self._matcher
        return {
            "scanned": walk.scanned_count,
            "read_bytes": walk.read_bytes,
            "passed": walk.passed,
            "total": walk.total,
            "matched": self.matched_count,
            "outside": matcher.outside_count,
            "errors": matcher.error_count,
            "first_error": matcher.first_error,
            "positions": {str(key): at for key, at in walk.positions.items()},
        }
