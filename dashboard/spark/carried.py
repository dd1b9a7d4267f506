"""The Spark that the single executable may carry: where it lies once it is unpacked, and by whom it is.

The executable tells both in the environment (``packaging/binary/stub.c``, ``docs/binary.md``). What lies
there goes when an executable of another version is unpacked and nobody holds it: a report does
while it runs. Free of Django.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

DIRECTORY_VARIABLE: Final = "ODRADEK_CARRIED_SPARK"
EXECUTABLE_VARIABLE: Final = "ODRADEK_EXECUTABLE"
UNPACK: Final = "--unpack-spark"
WAIT_S: Final = 0.5
_ATTEMPTS: Final = 3
_LOCK: Final = ".lock"


class NotUnpacked(Exception):
    """Said to a person, with what to do."""


def directory() -> Path | None:
    """Where it lies, or will; None where this is no executable that carries Spark."""
    told = os.environ.get(DIRECTORY_VARIABLE, "")
    return Path(told) if told else None


@contextmanager
def held(place: Path, wait: Callable[[], None]) -> Iterator[None]:
    """Unpacked, if it is not yet, and there until the end. ``wait`` is called while it is being unpacked; what that
    raises ends the unpacking. Raises NotUnpacked."""
    for _ in range(_ATTEMPTS):
        if (lock := _hold(place)) is not None:
            break
        _unpack(wait)
    else:
        raise NotUnpacked(
            f"{os.environ.get(EXECUTABLE_VARIABLE, '')} carries another Spark than when it was"
            " started: start `odradek serve` again"
        )
    try:
        yield
    finally:
        os.close(lock)


def _hold(place: Path) -> int | None:
    """A shared lock; None if the directory is not there, or was removed while this waited."""
    path = place / _LOCK
    try:
        lock = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    fcntl.flock(lock, fcntl.LOCK_SH)
    try:
        if os.fstat(lock).st_ino == path.stat().st_ino:
            return lock
    except FileNotFoundError:
        pass
    os.close(lock)
    return None


def _unpack(wait: Callable[[], None]) -> None:
    executable = os.environ.get(EXECUTABLE_VARIABLE, "")
    try:
        process = subprocess.Popen(  # noqa: S603 - the file that this was started from
            [executable, UNPACK],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    except OSError as error:
        raise NotUnpacked(
            f"{executable}, which carries Spark, cannot be run: {error.strerror}. Put it back, or"
            " start `odradek serve` from where it is now"
        ) from None
    with process:
        try:
            while True:
                try:
                    said = process.communicate(timeout=WAIT_S)[1]
                    break
                except subprocess.TimeoutExpired:
                    wait()
        finally:
            process.kill()
    if process.returncode:
        raise NotUnpacked(said.strip().removeprefix("odradek: ") or "Spark cannot be unpacked")
