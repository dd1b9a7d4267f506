"""A report's process, as the worker holds it: started in its own session, read from, ended whole.

Its standard input stays open: at its end, which also comes when this process dies, the report ends
itself and its Java (``spark_tasks.parenthood``). From here everything of its session is killed, also
what would not listen any more.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from dashboard.spark.home import SparkHome
from spark_tasks.job import MAX_LINE_BYTES, Job
from spark_tasks.parenthood import kill_session, members

READ_BYTES: Final = 64 * 1024
WAIT_S: Final = 10.0
MAX_LOG_LINE: Final = 10_000


class ReportProcess:
    """Started at once. ``log`` gets lines of what Spark says, from a thread of its own."""

    def __init__(self, home: SparkHome, job: Job, log: Callable[[str], None]) -> None:
        self._buffer = bytearray()
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "spark_tasks", "run"],
            cwd=job.directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=home.environment(),
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read_log, name="report log", daemon=True)
        self._reader.start()
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(job.to_line())
            self._process.stdin.flush()
        except OSError:
            pass  # it is gone already, which reading will tell

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(self, timeout_s: float) -> dict[str, Any] | None:
        """What it told next; None if nothing came in time. Raises EOFError when it has ended."""
        while (end := self._buffer.find(b"\n")) < 0:
            assert self._process.stdout is not None
            descriptor = self._process.stdout.fileno()
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            if not poll.poll(timeout_s * 1000):
                return None
            data = os.read(descriptor, READ_BYTES)
            if not data or len(self._buffer) > MAX_LINE_BYTES:
                raise EOFError
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        found: dict[str, Any] = json.loads(line)
        return found

    def has_java(self) -> bool:
        """Whether a Java process of this report lives."""
        return any(_name(pid) == "java" for pid in members(self.pid))

    def why_ended(self) -> str:
        """A sentence for a person; called when ``read`` found the end."""
        try:
            status = self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            return "the report's process closed its output and hangs"
        if status == -signal.SIGKILL:
            return (
                "the report's driver process was killed (SIGKILL): by somebody, or by the kernel "
                "because memory ran out"
            )
        if status < 0:
            return f"the report's driver process was ended by signal {-status}"
        return f"the report's driver process ended with status {status} and without a result"

    def end(self) -> None:
        """Kill everything of it. May be called again."""
        kill_session(self.pid)
        self._process.kill()
        self._process.wait()
        # A worker of Python's may have been born while the others were told.
        kill_session(self.pid)
        self._reader.join(WAIT_S)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _read_log(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        while line := stream.readline(MAX_LOG_LINE):
            self._log(line.decode(errors="replace").rstrip("\n"))


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""
