"""The metadata store's directory in memory, with a disk that fails and a machine that crashes.

What was written is in the page cache until ``datasync``, names until ``sync``. ``crash`` keeps any
subset of the dirty 4 KiB pages and of the name changes, tears the last write at any byte, and gives
the directory that the next start finds. ``crash_at`` and ``fail_at`` name the operation (counted
from 1) before which the machine stops or that fails with an errno; a write that fails with ENOSPC
may have written a part.
"""

from __future__ import annotations

import errno
import os
import random
from dataclasses import dataclass, field

PAGE = 4096


class Crashed(BaseException):
    """The machine stopped: no code of the broker may catch this."""


@dataclass(eq=False)
class _Inode:
    cached: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    dirty_pages: set[int] = field(default_factory=set)
    last_write: tuple[int, bytes] | None = None

    def after_crash(self, dice: random.Random) -> bytes:
        before, after = self.durable, bytes(self.cached)
        if self.last_write is not None and dice.random() < 0.5:
            # Torn: of the last write only a beginning reached the cache that is written back.
            position, data = self.last_write
            cut = dice.randrange(len(data) + 1)
            old = before[position + cut : position + len(data)]
            torn = bytearray(after)
            torn[position + cut : position + len(data)] = old.ljust(len(data) - cut, b"\0")
            after = bytes(torn)
        size = dice.choice([len(before), len(after)]) if len(before) != len(after) else len(after)
        pages = []
        for page in range((max(len(before), len(after)) + PAGE - 1) // PAGE):
            is_kept = page not in self.dirty_pages or dice.random() < 0.5
            pages.append(
                (after if is_kept else before)[page * PAGE : (page + 1) * PAGE].ljust(PAGE, b"\0")
            )
        return b"".join(pages)[:size].ljust(size, b"\0")


class MemoryDirectory:
    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        self._names = {name: _Inode(bytearray(d), d) for name, d in (contents or {}).items()}
        self._durable_names = dict(self._names)
        self._name_changes: list[tuple[str, str | None, _Inode | None]] = []
        self.operations = 0
        self.crash_at: int | None = None
        self.fail_at: dict[int, int] = {}
        #: Bytes that all files together may have; None for a disk without end.
        self.capacity: int | None = None

    # The port

    def names(self) -> list[str]:
        return list(self._names)

    def read(self, name: str) -> bytes:
        return bytes(self._inode(name).cached)

    def open(self, name: str) -> MemoryFile:
        self._operation()
        if name not in self._names:
            self._names[name] = _Inode()
            self._name_changes.append((name, None, self._names[name]))
        return MemoryFile(self, self._names[name])

    def rename(self, old: str, new: str) -> None:
        self._operation()
        inode = self._inode(old)
        del self._names[old]
        self._names[new] = inode
        self._name_changes.append((new, old, inode))

    def remove(self, name: str) -> None:
        self._operation()
        self._inode(name)
        del self._names[name]
        self._name_changes.append((name, None, None))

    def sync(self) -> None:
        self._operation()
        self._durable_names = dict(self._names)
        self._name_changes.clear()

    # The world

    def contents(self) -> dict[str, bytes]:
        """As a process sees it: what ``kill -9`` leaves."""
        return {name: bytes(inode.cached) for name, inode in self._names.items()}

    def after_crash(self, dice: random.Random) -> MemoryDirectory:
        """What a power loss leaves."""
        names = dict(self._durable_names)
        for name, old, inode in self._name_changes:
            if dice.random() < 0.5:
                continue
            if inode is None:
                names.pop(name, None)
            elif old is None:
                names[name] = inode
            elif names.get(old) is inode:
                # A rename is one change: both names or neither.
                del names[old]
                names[name] = inode
        return MemoryDirectory({name: inode.after_crash(dice) for name, inode in names.items()})

    def used(self) -> int:
        return sum(len(inode.cached) for inode in self._names.values())

    def datasynced(self) -> None:
        """For tests that count."""

    def _inode(self, name: str) -> _Inode:
        try:
            return self._names[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from None

    def _operation(self) -> None:
        self.operations += 1
        if self.operations == self.crash_at:
            raise Crashed
        number = self.fail_at.get(self.operations)
        if number is not None:
            raise OSError(number, os.strerror(number))


class MemoryFile:
    def __init__(self, directory: MemoryDirectory, inode: _Inode) -> None:
        self._directory = directory
        self._inode = inode
        self._is_open = True

    def write(self, position: int, data: bytes) -> None:
        assert self._is_open
        try:
            self._directory._operation()
        except Crashed:
            self._put(position, data)
            raise
        except OSError:
            self._put(position, data[: len(data) // 2])
            raise
        capacity = self._directory.capacity
        growth = position + len(data) - len(self._inode.cached)
        if capacity is not None and growth > 0:
            room = capacity - self._directory.used()
            if growth > room:
                self._put(position, data[: max(0, len(data) - growth + room)])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._put(position, data)

    def _put(self, position: int, data: bytes) -> None:
        if not data:
            return
        cached = self._inode.cached
        if position > len(cached):
            cached.extend(bytes(position - len(cached)))
        cached[position : position + len(data)] = data
        self._inode.dirty_pages |= set(
            range(position // PAGE, (position + len(data) - 1) // PAGE + 1)
        )
        self._inode.last_write = (position, bytes(data))

    def truncate(self, size: int) -> None:
        assert self._is_open
        self._directory._operation()
        cached = self._inode.cached
        first = min(size, len(cached)) // PAGE
        last = max(size, len(cached)) // PAGE
        del cached[size:]
        cached.extend(bytes(size - len(cached)))
        self._inode.dirty_pages |= set(range(first, last + 1))
        self._inode.last_write = None

    def datasync(self) -> None:
        assert self._is_open
        self._directory._operation()
        self._directory.datasynced()
        self._inode.durable = bytes(self._inode.cached)
        self._inode.dirty_pages.clear()
        self._inode.last_write = None

    def close(self) -> None:
        assert self._is_open
        self._is_open = False
