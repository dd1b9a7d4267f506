"""Log lines that clients can cause: one a second about each of them, the rest counted.

Whoever logs such a line says who caused it (``extra=caused_by(host)``); ``LogLimit`` is a filter of
the handler that writes lines. The first line of a cause is written at once. While more come, one
line a second tells how many they were and what the last of them said; after a second without any,
the next is a first one again. So a client that dials and is sent away ten thousand times a second costs
one line a second, and a fault that is seen once is told whole.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final

CAUSE: Final = "caused_by"
#: Marks our own lines, which are held back by nobody.
TOLD: Final = "told_by_limit"
#: Causes told apart at one time; what more there are is counted together.
MAX_CAUSES: Final = 64
OTHERS: Final = "others"

_Key = tuple[str, str, int]


def caused_by(cause: str) -> Mapping[str, object]:
    """For ``extra`` of a logging call."""
    return {CAUSE: cause}


class _Entry:
    """What was held back of one cause since the last tick."""

    __slots__ = ("count", "last")

    def __init__(self) -> None:
        self.count = 0
        self.last: logging.LogRecord | None = None


class LogLimit(logging.Filter):
    """See the module's docstring. Any thread may log; ``tick`` is called once a second."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[_Key, _Entry] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        cause = None if hasattr(record, TOLD) else self.cause_of(record)
        if cause is None:
            return True
        with self._lock:
            key = (cause, record.name, record.levelno)
            entry = self._entries.get(key)
            if entry is None and len(self._entries) >= MAX_CAUSES:
                key = (OTHERS, record.name, record.levelno)
                entry = self._entries.get(key)
            if entry is None:
                self._entries[key] = _Entry()
                return True
            entry.count += 1
            entry.last = record
            return False

    def cause_of(self, record: logging.LogRecord) -> str | None:
        """None: no client is the cause."""
        cause: str | None = getattr(record, CAUSE, None)
        return cause

    @property
    def is_counting(self) -> bool:
        """Whether a tick would change anything."""
        return bool(self._entries)

    def tick(self) -> None:
        """Tell what was held back."""
        told: list[tuple[str, int, logging.LogRecord]] = []
        with self._lock:
            for key, entry in list(self._entries.items()):
                if entry.last is None:
                    del self._entries[key]
                else:
                    told.append((key[0], entry.count, entry.last))
                    entry.count, entry.last = 0, None
        for cause, count, last in told:
            logging.getLogger(last.name).log(
                last.levelno, "%d more by %s, the last: %s", count, cause, last.getMessage(),
                extra={TOLD: True},
            )  # fmt: skip


#: Of this process.
LOG_LIMIT: Final = LogLimit()
