"""The few file operations of the local store, as a port: tests inject failures and crashes.

One directory, flat names. ``write`` writes all or raises ``OSError``; nothing is durable before
``datasync`` (contents) and ``sync`` (names). Everything blocks: never called on the loop after
the start.
"""

from __future__ import annotations

import os
from typing import Protocol


class StoreFile(Protocol):
    def write(self, position: int, data: bytes) -> None: ...

    def truncate(self, size: int) -> None: ...

    def datasync(self) -> None: ...

    def close(self) -> None: ...


class StoreDirectory(Protocol):
    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...

    def open(self, name: str) -> StoreFile:
        """For writing; created empty when missing, otherwise as it is."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Replaces ``new``."""
        ...

    def remove(self, name: str) -> None: ...

    def sync(self) -> None:
        """Makes created, renamed and removed names durable."""
        ...


class DiskFile:
    """A descriptor with positioned writes."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, position: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, position)
            position += written
            view = view[written:]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def datasync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class DiskDirectory:
    """A directory of the machine, made when missing."""

    def __init__(self, path: str) -> None:
        self.path = path
        if not os.path.isdir(path):
            os.makedirs(path, exist_ok=True)
            _sync_directory(os.path.dirname(os.path.abspath(path)))

    def names(self) -> list[str]:
        return os.listdir(self.path)

    def read(self, name: str) -> bytes:
        with open(os.path.join(self.path, name), "rb") as file:
            return file.read()

    def open(self, name: str) -> DiskFile:
        return DiskFile(os.path.join(self.path, name))

    def rename(self, old: str, new: str) -> None:
        os.replace(os.path.join(self.path, old), os.path.join(self.path, new))

    def remove(self, name: str) -> None:
        os.unlink(os.path.join(self.path, name))

    def sync(self) -> None:
        _sync_directory(self.path)


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
