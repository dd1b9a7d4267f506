"""Children's log lines on one stream, each with its program's name, without ever waiting.

A reader that stands still (a stopped terminal, a full pipe) must not stop the supervisor, whose
children would then block on their own log lines: lines that find no room are dropped and counted.
"""

from __future__ import annotations

import os
import select

PIECE_BYTES = select.PIPE_BUF
"""A pipe that is writable takes this much without blocking."""


class LogStream:
    """Writes to a descriptor; a descriptor that is gone is silently done without."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # poll, not select: that one knows no descriptor above 1,023.
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._dropped = 0
        self._is_cut = False
        """The last line stopped half way: the next one starts with a line end."""

    def write_line(self, name: str, line: str) -> None:
        text = f"{name} | {line}\n"
        if self._dropped:
            text = f"serve | {self._dropped} log lines were dropped: nobody read them\n{text}"
        if self._is_cut:
            text = f"\n{text}"
        if self._write(text.encode(errors="replace")):
            self._dropped = 0
        else:
            self._dropped += 1

    def _write(self, data: bytes) -> bool:
        for start in range(0, len(data), PIECE_BYTES):
            try:
                if not self._poll.poll(0):
                    self._is_cut = self._is_cut or start > 0
                    return False
                os.write(self._descriptor, data[start : start + PIECE_BYTES])
            except (OSError, ValueError):
                return True
        self._is_cut = False
        return True
