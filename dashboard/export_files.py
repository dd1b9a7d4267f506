"""The files that exports and raw downloads leave: kept for a day, and together under a bound.

``data/exports``. Shared by web process and worker, which both sweep; a file is complete once it has
its name (it is written aside and renamed), and whoever sends one holds it open.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from django.conf import settings

from broker.clock import SystemClock

MAX_TOTAL_BYTES: Final = 5 * 1024**3
MAX_FILE_BYTES: Final = 2 * 1024**3
KEPT_MS: Final = 24 * 3600 * 1000
PARTIAL: Final = ".partial"
"""Suffix of a file that is being written; abandoned if nobody wrote for an hour."""
ABANDONED_MS: Final = 3600 * 1000


def directory() -> Path:
    path = Path(settings.DATA_DIR) / "exports"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def sweep(reserve_bytes: int = 0) -> int:
    """Delete what is too old, then the oldest until ``reserve_bytes`` fit; what may be written.

    Returns at most MAX_FILE_BYTES, less when files that are being written hold the rest.
    """
    now_ms = SystemClock().wall_ms()
    held = []
    partial_bytes = 0
    for entry in os.scandir(directory()):
        with contextlib.suppress(FileNotFoundError):
            found = entry.stat(follow_symlinks=False)
            age_ms = now_ms - found.st_mtime_ns // 1_000_000
            is_partial = entry.name.endswith(PARTIAL)
            if age_ms > (ABANDONED_MS if is_partial else KEPT_MS):
                Path(entry.path).unlink(missing_ok=True)
            elif is_partial:
                partial_bytes += found.st_size
            else:
                held.append((found.st_mtime_ns, found.st_size, entry.path))
    total = partial_bytes + sum(size for _, size, _ in held)
    for _, size, path in sorted(held):
        if total + reserve_bytes <= MAX_TOTAL_BYTES:
            break
        Path(path).unlink(missing_ok=True)
        total -= size
    return max(0, min(MAX_FILE_BYTES, MAX_TOTAL_BYTES - total))


def total_bytes() -> int:
    total = 0
    for entry in os.scandir(directory()):
        with contextlib.suppress(FileNotFoundError):
            total += entry.stat(follow_symlinks=False).st_size
    return total
