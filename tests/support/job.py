"""Programs that tests start, kill and start again."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support import processes
from tests.support.odradek import REPOSITORY


class Job:
    """A program that runs until it is killed; what it prints is kept over its lives."""

    def __init__(self, command: Sequence[object], output: Path) -> None:
        self._command = list(map(str, command))
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        #: How often it was started.
        self.lives = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self.lives += 1
        with (
            self._output.open("ab") as output,
            self._output.with_suffix(".errors").open("ab") as errors,
        ):
            self._process = subprocess.Popen(
                self._command,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def keep_alive(self) -> None:
        """A job that gave up (its transaction was fenced, say) has a successor."""
        if self._process is not None and self._process.poll() is not None:
            self.start()

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def line_count(self) -> int:
        """Lines that all lives together printed."""
        return self._output.read_bytes().count(b"\n") if self._output.exists() else 0

    @property
    def errors(self) -> str:
        return processes.tail(self._output.with_suffix(".errors"))
