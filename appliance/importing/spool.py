"""Files in the data directory in which batches are handed to the broker, and the lock of the one import.

The control socket is for words, not for megabytes. What is left after a ``kill -9`` the next import takes away.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from appliance.control import SOCKET_NAME
from appliance.failure import CommandError

DIRECTORY: Final = "import"
LOCK: Final = "lock"


class Spool:
    """Holds the directory for one import at a time."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._directory = data.absolute() / DIRECTORY
        self._lock = -1

    def __enter__(self) -> Spool:
        owner = self._owner()
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._give(self._directory, owner)
        self._lock = os.open(self._directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise CommandError(
                f"another import into {self._data} runs", code="IMPORT_RUNS"
            ) from None
        self._clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()
        os.close(self._lock)

    def _clear(self) -> None:
        for left in self._directory.iterdir():
            if left.name != LOCK:
                left.unlink(missing_ok=True)

    def write(self, name: str, pieces: Sequence[bytearray]) -> Path:
        """The pieces one behind the other, in a file that the broker may read."""
        path = self._directory / name
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb", buffering=0) as file:
            for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[file.write(view) or 0 :]
        self._give(path, self._owner())
        return path

    def _owner(self) -> tuple[int, int]:
        try:
            found = os.stat(self._data / SOCKET_NAME)
        except OSError as error:
            raise CommandError(
                f"no broker runs on the data directory {self._data}: {error.strerror}",
                hint="--data DIR names it; `odradek serve` starts a broker.",
                code="NOT_CONNECTED",
            ) from None
        return found.st_uid, found.st_gid

    @staticmethod
    def _give(path: Path, owner: tuple[int, int]) -> None:
        """To the broker's user, where root imports."""
        if os.geteuid() == 0 and owner[0] != 0:
            with contextlib.suppress(PermissionError):
                os.chown(path, *owner)
