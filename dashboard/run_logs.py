"""What runs of jobs say while they run: a file a run, its middle cut out when it grows too long.

``data/run-logs``; the clean-up deletes files whose rows are gone, and the oldest when all together
are too large. A log that cannot be written (no room) is cut short, and never fails its run.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import threading
from pathlib import Path
from typing import Final

from django.conf import settings

from broker.clock import Clock
from dashboard import room

logger = logging.getLogger(__name__)

MAX_BYTES: Final = 1024 * 1024
"""Of one log; while it is written it may take twice as much."""
HEAD_BYTES: Final = 128 * 1024
MAX_TOTAL_BYTES: Final = 256 * 1024 * 1024
CUT: Final = b"\n[... cut: the middle of this log was too long ...]\n"


def directory() -> Path:
    return Path(settings.DATA_DIR) / "run-logs"


def path_of(run_id: int) -> Path:
    return directory() / f"{run_id}.log"


class RunLog:
    """Of one run. ``write`` from any thread."""

    def __init__(self, run_id: int, clock: Clock) -> None:
        self.path = path_of(run_id)
        self._clock = clock
        self._lock = threading.Lock()
        self._is_broken = False

    def write(self, text: str) -> None:
        """Add lines, each with its time."""
        at = dt.datetime.fromtimestamp(self._clock.wall_ms() / 1000, dt.UTC)
        stamp = at.strftime("%Y-%m-%dT%H:%M:%SZ ")
        lines = "".join(f"{stamp}{line}\n" for line in text.splitlines())
        with self._lock:
            if self._is_broken or room.is_short():
                return
            try:
                self._append(lines.encode(errors="replace"))
            except OSError as error:
                self._is_broken = True
                logger.warning("the log of a run cannot be written: %s", error)

    def _append(self, data: bytes) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(data)
            size = file.tell()
        if size > 2 * MAX_BYTES:
            self._cut(size)

    def _cut(self, size: int) -> None:
        with self.path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            file.seek(size - (MAX_BYTES - HEAD_BYTES))
            tail = file.read()
        aside = self.path.with_suffix(".aside")
        aside.write_bytes(head.partition(CUT)[0] + CUT + tail)
        aside.replace(self.path)


def read(run_id: int) -> str | None:
    """None when there is none here: it said nothing, or ran on another node."""
    try:
        return path_of(run_id).read_text(errors="replace")
    except OSError:
        return None


def sweep(kept: frozenset[int]) -> int:
    """Delete the logs of other runs than ``kept``, then the oldest beyond the bound; how many."""
    count, total = 0, 0
    held: list[tuple[int, int, Path]] = []
    for path in _files():
        with contextlib.suppress(OSError):
            found = path.stat()
            if path.stem.isdecimal() and int(path.stem) in kept and path.suffix == ".log":
                held.append((found.st_mtime_ns, found.st_size, path))
                total += found.st_size
            else:
                path.unlink()
                count += 1
    for _, size, path in sorted(held):
        if total <= MAX_TOTAL_BYTES:
            break
        with contextlib.suppress(OSError):
            path.unlink()
            count, total = count + 1, total - size
    return count


def _files() -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(directory())]
    except OSError:
        return []
