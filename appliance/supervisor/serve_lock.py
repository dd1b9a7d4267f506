"""The lock that lets one ``odradek serve`` own a data directory.

An exclusive flock on ``serve.lock``: the kernel lets go of it however the holder ends. What the
holder wrote into the file is for the message of the one who comes second.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import time
from pathlib import Path
from typing import Any

FILE_NAME = "serve.lock"
BROKER_FILE_NAME = "broker.lock"
TAKE_ATTEMPTS = 3
ATTEMPT_PAUSE_S = 0.05
"""A look at the lock (``is_locked``) holds it for an instant; that must not stop a start."""
_FLOCK = struct.Struct("@hhqqi")
"""``struct flock`` of Linux on 64-bit machines."""


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
            _lock_or_raise(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            raise DataDirectoryTaken(read_holder(path)) from None
        except OSError:
            os.close(descriptor)
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


def _lock_or_raise(descriptor: int) -> None:
    for attempt in range(TAKE_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if attempt == TAKE_ATTEMPTS - 1:
                raise
            time.sleep(ATTEMPT_PAUSE_S)
        else:
            return


def read_holder(path: Path) -> dict[str, Any]:
    """What the holder says of itself; empty when it cannot be read."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def holder_on(data_directory: Path) -> dict[str, Any] | None:
    """What the `odradek serve` on this directory says of itself; None where none runs."""
    path = data_directory / FILE_NAME
    return read_holder(path) if is_locked(path) else None


def is_locked(path: Path) -> bool:
    """Whether somebody holds an flock on this file. Asks by a shared lock, held for no time."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def find_broker(data_directory: Path) -> str | None:
    """The process of a broker that holds this data directory, as text; None when nobody does.

    A broker holds an flock on the data directory and a POSIX lock (as a JVM takes) on each
    directory of logs; Kafka itself, on the same logs, only the latter.
    """
    lock = data_directory / BROKER_FILE_NAME
    if is_locked(lock):
        with contextlib.suppress(OSError):
            return lock.read_text(errors="replace").strip() or "unknown"
        return "unknown"
    pid = posix_lock_holder(data_directory / "logs" / ".lock")
    return None if pid is None else str(pid)


def posix_lock_holder(path: Path) -> int | None:
    """Process that holds a POSIX lock on this file; only asks, never takes it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    kind, _, _, _, pid = _FLOCK.unpack(answer)
    return None if kind == fcntl.F_UNLCK else int(pid)
