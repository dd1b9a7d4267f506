"""One child process of ``dashboard.scan``, as its parent holds it: asked, read from, killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from typing import Any, Final

from django.conf import settings

from dashboard.scan.requests import Request, to_line

MAX_LINE_BYTES: Final = 24 * 1024 * 1024
"""A record shown as a whole has a million characters, each of which JSON may write as twelve."""
READ_BYTES: Final = 256 * 1024
_SECRETS: Final = ("ODRADEK_", "DATABASE_URL", "CELERY_")


class ChildGone(Exception):
    """The child ended without an answer; the text says why, for a person."""


class ScanChild:
    """Started at once; ``kill`` when it is no longer wanted."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dashboard.scan"],
            cwd=settings.BASE_DIR,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Records are hostile: what reads them need not know any secret.
            env={k: v for k, v in os.environ.items() if not k.startswith(_SECRETS)},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: Request) -> None:
        """Raises ChildGone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(to_line(request))
            self._process.stdin.flush()
        except OSError:
            raise ChildGone(self._why()) from None

    def read(self, timeout_s: float) -> dict[str, Any] | None:
        """The next answer; None if none came in time. Raises ChildGone."""
        while (end := self._buffer.find(b"\n")) < 0:
            assert self._process.stdout is not None
            descriptor = self._process.stdout.fileno()
            poll = select.poll()  # select knows no descriptor above 1,023
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                return None
            data = os.read(descriptor, READ_BYTES)
            if not data:
                raise ChildGone(self._why())
            self._buffer += data
            if len(self._buffer) > MAX_LINE_BYTES:
                self.kill()
                raise ChildGone("it told more than can be shown")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _why(self) -> str:
        status = self._process.wait()
        if status == -signal.SIGALRM:
            return "a record took too long to be looked at"
        return "it needed too much memory, or failed; choose one partition, or a smaller range"
