"""Messages as files in a directory: nothing is lost to a reader that comes too early, or dies.

A message is written aside and renamed into ``ready``, so that nobody reads half of it. Who takes it
renames it into a directory of its own below ``taken``, and removes it once it is acknowledged; a
lock in that directory tells, however the taker ended, that it is gone, and its messages are given
back. Nothing is synced: after a power failure the rows of the runs are what counts.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
import uuid
from pathlib import Path

logger = logging.getLogger(__name__)

LOCK_NAME = "owner.lock"
MAX_MESSAGES = 10_000
"""Messages that wait in one mailbox; more are refused. Nobody reads while no worker runs."""
ASIDE_KEPT_S = 3600.0
"""A file left aside this long ago has no writer any more."""


class MailboxFull(Exception):
    """More messages wait than anybody will read soon."""


class Mailbox:
    """One process's view of the directory. Not for several threads at a time, except ``put``."""

    def __init__(self, directory: Path) -> None:
        self._aside = directory / "aside"
        self._ready = directory / "ready"
        self._taken = directory / "taken"
        for each in (self._aside, self._ready, self._taken):
            each.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._own: Path | None = None
        self._lock_descriptor: int | None = None

    def put(self, queue: str, data: bytes) -> None:
        """Raises MailboxFull, or OSError."""
        if len(os.listdir(self._ready)) >= MAX_MESSAGES:
            raise MailboxFull(f"{MAX_MESSAGES} messages wait already")
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex}.{queue}"
        aside = self._aside / name
        try:
            aside.write_bytes(data)
            aside.rename(self._ready / name)
        except OSError:
            with contextlib.suppress(OSError):
                aside.unlink()
            raise

    def take(self, queue: str) -> tuple[Path, bytes] | None:
        """The oldest message, which is this process's until ``discard``; None when there is none."""
        for name in sorted(self._names(queue)):
            target = self._own_directory() / name
            try:
                (self._ready / name).rename(target)
            except FileNotFoundError:
                continue  # somebody else was faster
            return target, target.read_bytes()
        return None

    def discard(self, taken: Path) -> None:
        """It was acknowledged."""
        taken.unlink(missing_ok=True)

    def give_back(self) -> int:
        """Put what dead processes had taken back in line; how many messages that were."""
        count = 0
        for directory in self._taken.iterdir():
            if directory != self._own:
                count += self._give_back(directory)
        self._clear_aside()
        return count

    def size(self, queue: str) -> int:
        return len(self._names(queue))

    def purge(self, queue: str) -> int:
        names = self._names(queue)
        for name in names:
            (self._ready / name).unlink(missing_ok=True)
        return len(names)

    def close(self) -> None:
        """Give back what was not acknowledged."""
        if self._own is None or self._lock_descriptor is None:
            return
        own, self._own = self._own, None
        os.close(self._lock_descriptor)
        self._lock_descriptor = None
        self._give_back(own)

    def _names(self, queue: str) -> list[str]:
        return [name for name in os.listdir(self._ready) if name.partition(".")[2] == queue]

    def _own_directory(self) -> Path:
        """Made aside and locked before it appears: one without a lock's holder is a dead one's."""
        if self._own is None:
            name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
            aside = self._aside / name
            aside.mkdir()
            descriptor = os.open(aside / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            aside.rename(self._taken / name)
            self._own, self._lock_descriptor = self._taken / name, descriptor
        return self._own

    def _give_back(self, directory: Path) -> int:
        count = 0
        try:
            descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return 0  # somebody else clears it away
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in directory.iterdir():
                if path.name != LOCK_NAME:
                    path.rename(self._ready / path.name)
                    count += 1
            (directory / LOCK_NAME).unlink()
            directory.rmdir()
        except BlockingIOError:
            return 0  # its process lives
        except OSError:
            logger.warning("messages in %s could not be given back", directory, exc_info=True)
        finally:
            os.close(descriptor)
        return count

    def _clear_aside(self) -> None:
        before = time.time() - ASIDE_KEPT_S
        for path in self._aside.iterdir():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < before:
                    if path.is_dir():
                        (path / LOCK_NAME).unlink(missing_ok=True)
                        path.rmdir()
                    else:
                        path.unlink()
