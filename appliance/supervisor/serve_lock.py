"""The lock that lets one ``odradek serve`` own a data directory.

An exclusive flock on ``serve.lock``: the kernel lets go of it however the holder ends. What the
holder wrote into the file is for the message of the one who comes second.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any

FILE_NAME = "serve.lock"


class DataDirectoryTaken(Exception):
    """Somebody else holds the directory; ``holder`` is what they wrote about themselves."""

    def __init__(self, holder: dict[str, Any]) -> None:
        super().__init__("the data directory is taken")
        self.holder = holder


class ServeLock:
    """Held from ``take`` to ``release`` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, data_directory: Path, about: dict[str, Any]) -> ServeLock:
        """Raises DataDirectoryTaken, or OSError when the directory cannot be written."""
        path = data_directory / FILE_NAME
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise DataDirectoryTaken(read_holder(path)) from None
            raise
        lock = cls(descriptor)
        lock.describe(about)
        return lock

    def describe(self, about: dict[str, Any]) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(about).encode() + b"\n", 0)

    def release(self) -> None:
        """The file stays: removing it would race with the next holder."""
        os.close(self._descriptor)


def read_holder(path: Path) -> dict[str, Any]:
    """What the holder says of itself; empty when it cannot be read."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_locked(path: Path) -> bool:
    """Whether some process holds a lock on this file, flock or POSIX (as a JVM takes)."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
