"""Is there room for what the appliance writes about itself? It stops before the broker has to.

The broker refuses producers below its own floor (``odradek.disk.floor.bytes``). Below twice that, samples, runs of jobs, their logs, exports and the files of reports pause, so
that what is left is the broker's; retention goes on there by itself. Changes made by people are
audited as long as there is any room at all: they may be what makes some.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from django.conf import settings

from broker.clock import SystemClock

FACTOR: Final = 2
KEPT_MS: Final = 2_000


class NoRoom(Exception):
    """Said on pages and in rows."""


class Room(NamedTuple):
    free_bytes: int | None
    """None: the file system does not say."""
    floor_bytes: int

    @property
    def is_short(self) -> bool:
        return self.free_bytes is not None and self.free_bytes < self.floor_bytes


_lock = Lock()
_last: tuple[int, Room] | None = None


def look() -> Room:
    """Of the data directory's file system; asked of it at most every two seconds."""
    global _last
    now_ms = SystemClock().monotonic_ms()
    with _lock:
        if _last is None or now_ms - _last[0] >= KEPT_MS:
            _last = (now_ms, _look(Path(settings.DATA_DIR)))
        return _last[1]


def is_short() -> bool:
    return look().is_short


def check() -> None:
    """Raises NoRoom."""
    from dashboard.templatetags.show import size

    found = look()
    if found.is_short:
        raise NoRoom(
            f"{size(found.free_bytes)} are free, less than the {size(found.floor_bytes)} below which"
            " the appliance writes nothing of its own, so that the rest is the broker's"
        )


def _look(directory: Path) -> Room:
    floor = FACTOR * settings.ODRADEK_DISK_FLOOR
    try:
        found = os.statvfs(directory)
    except OSError:
        return Room(None, floor)
    return Room(found.f_bavail * found.f_frsize, floor)
