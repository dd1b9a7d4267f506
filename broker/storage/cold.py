"""Bytes that are not in memory: named instead of waited for.

The loop must not wait for a disk, so look-ups use ``File.peek``. Where that finds a page missing,
``PagesCold`` leaves the look-up, the public methods of ``Log`` give its ``ColdRead`` back, the
caller runs ``pull()`` in a thread and asks again. Code that may wait (recovery, truncation)
wraps its look-ups in ``waiting``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from broker.storage.filesystem import File

Result = TypeVar("Result")


class ColdRead:
    """``length`` bytes from ``position`` of ``file`` must be brought into memory first."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def pull(self) -> None:
        """Waits for the disk: call it in a thread."""
        self.file.pull(self.position, self.length)


class PagesCold(Exception):
    """Never leaves this package."""

    def __init__(self, read: ColdRead) -> None:
        super().__init__(read.file.path, read.position, read.length)
        self.read = read


def peek(file: File, length: int, position: int) -> bytes:
    data = file.peek(length, position)
    if data is None:
        raise PagesCold(ColdRead(file, position, length))
    return data


def waiting(look_up: Callable[[], Result]) -> Result:
    """``look_up()``, waiting for the disk where it must."""
    while True:
        try:
            return look_up()
        except PagesCold as cold:
            cold.read.pull()
