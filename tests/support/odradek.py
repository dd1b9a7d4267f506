"""Our broker as the tests see it: a child process on a free loopback port, and its control socket."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support import judge, processes, wire

REPOSITORY = Path(__file__).resolve().parents[2]


class ControlError(Exception):
    """The control socket answered that a command failed."""


class OdradekBroker:
    """`python -m broker` with its data in `directory`/data; may be stopped, killed, started again.

    The port stays the same over restarts, so that clients find the broker again. A test that gives
    `listeners` of its own sets `port` to that of one of them.
    """

    name = "odradek"

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        data: Path | None = None,
        program: Sequence[str] = ("broker",),
    ) -> None:
        self.program = tuple(program)  # a module, and what it takes before the broker's options
        self.directory = directory
        self.data = data or directory / "data"
        self.logs = self.data / "logs"  # the log directory proper, laid out as Kafka's
        self.output = directory / "output.txt"
        self.properties = dict(properties or {})
        self.host = "127.0.0.1"
        self.prefix: tuple[str, ...] = ()  # of the command: what it is to run in
        self.port = 0
        #: Whose code runs.
        self.repository = REPOSITORY
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> tuple[str, int]:
        return (self.host, self.port)

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, *, seconds: float = 60) -> Self:
        """Start, and return once the broker answers a Metadata request with itself in it."""
        assert self.process is None, "already started"
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self.port:
            self.port = judge.free_port()
        command = [*self.prefix, sys.executable, "-m", *self.program, "--data", str(self.data)]
        if "listeners" not in self.properties:
            command += ["--listen", self.bootstrap]
        for key, value in self.properties.items():
            command += ["--property", f"{key}={value}"]
        with self.output.open("ab") as output:
            self.process = process = subprocess.Popen(
                command,
                cwd=self.repository,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        try:
            processes.wait_until(
                lambda: process.poll() is not None or wire.answers(self.address),
                seconds,
                "the broker's first answer",
            )
        except TimeoutError:
            self.kill9()
            raise
        assert process.poll() is None, f"the broker ended:\n{processes.tail(self.output)}"
        return self

    def stop(self) -> None:
        """A clean stop, as by a supervisor."""
        assert self.process is not None
        status = processes.end(self.process, signal.SIGTERM, 60)
        self.process = None
        assert status == 0, f"status {status}\n{processes.tail(self.output)}"

    def kill9(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """The end of a test: no clean stop is owed to a directory that goes away."""
        if self.process is not None:
            self.kill9()

    def control(self, command: str, **arguments: Any) -> dict[str, Any]:
        """One JSON line to the control socket, one back."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            # A socket path has room for 108 bytes, which a test's directory easily takes.
            descriptor = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY)
            try:
                connection.connect(f"/proc/self/fd/{descriptor}/control.sock")
            finally:
                os.close(descriptor)
            connection.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            line = connection.makefile("rb").readline()
        answer: dict[str, Any] = json.loads(line)
        if answer.get("error"):
            raise ControlError(answer["error"])
        return answer

    def trim(self) -> None:
        """Cut the active segments to their true end, so that other programs can read them."""
        self.control("trim")

    def rss_kib(self) -> int:
        return processes.status_kib(self.pid, "VmRSS")

    def anonymous_kib(self) -> int:
        """What no one else can give back for us: anonymous and shared memory."""
        return processes.status_kib(self.pid, "RssAnon") + processes.status_kib(
            self.pid, "RssShmem"
        )

    def descriptor_count(self) -> int:
        return processes.descriptor_count(self.pid)

    def cpu_seconds(self) -> float:
        return processes.cpu_seconds(self.pid)

    def log_text(self) -> str:
        return self.output.read_text(errors="replace")
