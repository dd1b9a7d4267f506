"""One cleaning child process and the conversation with it (``broker/storage/cleaning/job.py``)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any, Final

#: A line of the child's: a group of so many segments has a longer one, and does not happen.
MAX_LINE_BYTES: Final = 4 * 1024 * 1024
STOP_SECONDS: Final = 5.0


class ChildFailed(Exception):
    """The child ended, or said what makes no sense."""


class CleaningChild:
    """Started with the first job, and kept until ``close``."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @staticmethod
    async def start() -> CleaningChild:
        """Raises ChildFailed when the system gives no process."""
        # A seed from outside would make the hashes of keys known, and collisions possible.
        environment = {**os.environ, "PYTHONHASHSEED": "random"}
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "broker.storage.cleaning",
                str(os.getpid()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=MAX_LINE_BYTES,
                env=environment,
            )
        except OSError as error:
            raise ChildFailed(f"the cleaning process cannot be started: {error}") from error
        return CleaningChild(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, value: dict[str, Any] | bytes) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n")
            await stdin.drain()
        except (ConnectionError, OSError) as error:
            raise ChildFailed(f"the cleaning process is gone: {error}") from error

    async def receive(self) -> dict[str, Any]:
        """The next thing that it says."""
        stdout = self._process.stdout
        assert stdout is not None
        try:
            line = await stdout.readline()
            if line:
                value: dict[str, Any] = json.loads(line)
                return value
        except ValueError as error:
            raise ChildFailed(f"the cleaning process speaks nonsense: {error}") from error
        code = await self._process.wait()
        raise ChildFailed(
            f"the cleaning process was ended by signal {-code}"
            if code < 0
            else f"the cleaning process ended with exit code {code}"
        )

    def kill(self) -> None:
        """What it was writing is left to whoever removes it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """It ends by itself when nobody speaks to it any more."""
        stdin = self._process.stdin
        if stdin is not None:
            stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            self.kill()
            await self._process.wait()
