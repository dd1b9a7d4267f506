"""A child process: started in a group of its own, its output read line by line.

The child inherits the read end of a pipe whose write end only the supervisor holds; end of file
there tells the child that its parent is gone (``ODRADEK_PARENT_FD``). Its own process group keeps
a Ctrl-C in the terminal from reaching it: stopping is the supervisor's business, in its order.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

PARENT_FD_VARIABLE = "ODRADEK_PARENT_FD"
MAX_LINE_BYTES = 64 * 1024
"""A longer line is passed on in pieces."""
READ_BYTES = 64 * 1024


class LineBuffer:
    """Cuts a stream of bytes into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        return [line.decode(errors="replace").rstrip("\r") for line in lines]

    def end(self) -> list[str]:
        """What is left when the stream ends."""
        rest, self._rest = self._rest, b""
        return [rest.decode(errors="replace")] if rest else []


class ChildProcess:
    """One run of one program."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        parent_fd: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._lines = LineBuffer()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "PYTHONUNBUFFERED": "1",
                **(environment or {}),
                PARENT_FD_VARIABLE: str(parent_fd),
            },
            pass_fds=[parent_fd],
            process_group=0,
        )
        assert self._process.stdout is not None
        self.output = self._process.stdout
        os.set_blocking(self.output.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def read_lines(self) -> list[str] | None:
        """Lines that are there; None at the end of the output."""
        try:
            data = os.read(self.output.fileno(), READ_BYTES)
        except BlockingIOError:
            return []
        return self._lines.feed(data) if data else None

    def last_lines(self) -> list[str]:
        """Everything still to be read after the process has ended."""
        found: list[str] = []
        while lines := self.read_lines():
            found += lines
        return found + self._lines.end()

    def poll(self) -> int | None:
        """Its exit status once it has ended; a negative one is a signal."""
        return self._process.poll()

    def stop(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def close(self) -> None:
        self.output.close()

    def _signal(self, number: signal.Signals) -> None:
        # Popen polls first, so a process that has been waited for is never signalled.
        self._process.send_signal(number)
