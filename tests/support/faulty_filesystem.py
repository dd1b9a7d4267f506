"""A file system in memory that fails and forgets like a real one.

It keeps two states: what the process sees, and what is *durable*. A file's bytes become durable
by ``datasync``, a directory's names by ``sync_directory``. ``after_power_loss`` gives the file
system as a restart finds it: of the 4 KiB pages written since the last sync any subset is there
(the others hold what was durable at their place, or zeros), of the name changes any subset, the
file's size is somewhere between; the very last write may be torn anywhere. ``after_kill`` gives it
as after ``kill -9``: the page cache is whole, but for the torn last write.

``fail_at`` makes the n-th call from now fail: with ``Crash`` (the process ends in the middle of
the call, which may have happened wholly, partly or not at all) or with an ``OSError``. ``peek``
finds pages cold now and then.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

from broker.model.errors import DiskFullError
from broker.storage.filesystem import Buffer, DirectoryEntry

PAGE = 4096
GROW_BYTES = 1024


class Crash(BaseException):
    """The process is gone."""


class Inode:
    """Bytes of one file, as seen and as durable."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.dirty: set[int] = set()
        #: (position, bytes that were there before) of the last write, while it may be torn.
        self.last_write: tuple[int, bytes, int] | None = None

    def write(self, data: Buffer, position: int) -> None:
        end = position + len(data)
        self.last_write = (position, bytes(self.data[position:end]), len(data))
        if len(self.data) < position:
            self.data.extend(bytes(position - len(self.data)))
        self.data[position:end] = data
        self.dirty.update(range(position // PAGE, (end - 1) // PAGE + 1) if len(data) else ())

    def resize(self, size: int) -> None:
        self.last_write = None
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.dirty.add(size // PAGE)

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.dirty.clear()
        self.last_write = None

    def tear(self, rng: random.Random) -> None:
        """The last write got only so far."""
        if self.last_write is None:
            return
        position, before, length = self.last_write
        done = rng.randrange(length + 1)
        end = position + length
        if len(self.data) > end:
            rest = before[done:].ljust(length - done, b"\0")
            self.data[position + done : end] = rest
        else:
            self.data[position + done :] = before[done:]
        self.last_write = None

    def lose_pages(self, rng: random.Random) -> None:
        """Any subset of the unsynced pages, and any size in between."""
        kept = {page for page in self.dirty if rng.random() < 0.5}
        size = rng.choice((len(self.durable), len(self.data), len(self.data)))
        if kept and rng.random() < 0.5:
            size = max(size, min(len(self.data), (max(kept) + 1) * PAGE))
        if not self.dirty:
            size = len(self.durable)
        result = bytearray(size)
        for page in range((size + PAGE - 1) // PAGE):
            low, high = page * PAGE, min((page + 1) * PAGE, size)
            source = self.data if page in kept else self.durable
            piece = source[low:high]
            result[low : low + len(piece)] = piece
        self.data = result
        self.durable = bytes(result)
        self.dirty.clear()


class Directory:
    """Names in one directory, as seen and as durable, and the changes between."""

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.pending: list[tuple[str, str, str, Inode | Directory | None]] = []

    def add(self, name: str, node: Inode | Directory) -> None:
        self.entries[name] = node
        self.pending.append(("add", name, "", node))

    def remove(self, name: str) -> None:
        del self.entries[name]
        self.pending.append(("remove", name, "", None))

    def rename(self, source: str, target: str) -> None:
        node = self.entries.pop(source)
        self.entries[target] = node
        self.pending.append(("rename", source, target, node))

    def sync(self, keep: Callable[[], bool] = lambda: True) -> None:
        for kind, name, target, node in self.pending:
            if not keep():
                continue
            if kind == "remove":
                self.durable.pop(name, None)
            elif kind == "add":
                assert node is not None
                self.durable[name] = node
            else:
                assert node is not None
                if self.durable.get(name) is node:
                    del self.durable[name]
                self.durable[target] = node
        self.pending.clear()

    def forget_names(self, rng: random.Random) -> None:
        self.sync(lambda: rng.random() < 0.5)
        self.entries = dict(self.durable)
        for node in self.entries.values():
            if isinstance(node, Directory):
                node.forget_names(rng)
            else:
                node.lose_pages(rng)


class FaultyFile:
    """An open file; see ``broker.storage.filesystem.File``."""

    def __init__(self, fs: FaultyFileSystem, path: str, inode: Inode, size: int) -> None:
        self._fs = fs
        self._inode = inode
        self.path = path
        self.size = size
        self.generation = 0
        self.pins = 0
        self._is_hot = False
        self._warm_peeks = 0

    def append(self, data: Buffer) -> None:
        fs = self._fs
        end = self.size + len(data)

        def write() -> None:
            if self._is_hot and end > len(self._inode.data):
                self._inode.write(
                    bytes(end + GROW_BYTES - len(self._inode.data)), len(self._inode.data)
                )
            self._inode.write(data, self.size)
            fs.last_written = self._inode

        fs.call("append", write)
        self.size = end

    def pread(self, length: int, position: int) -> bytes:
        self._fs.call("pread")
        return bytes(self._inode.data[position : position + length])

    def peek(self, length: int, position: int) -> bytes | None:
        if self._warm_peeks:
            self._warm_peeks -= 1
        elif self._fs.rng.random() < self._fs.cold_probability:
            return None
        return bytes(self._inode.data[position : position + length])

    def is_resident(self, position: int, length: int) -> bool:
        return self._fs.rng.random() >= self._fs.cold_probability

    def pull(self, position: int, length: int) -> None:
        self._warm_peeks = 8

    def truncate(self, size: int) -> None:
        self._fs.call("truncate", lambda: self._inode.resize(size))
        if size < self.size:
            self.generation += 1
        self.size = size

    def datasync(self) -> None:
        self._fs.call("datasync", self._inode.sync)

    def pin(self) -> int:
        self.pins += 1
        return -1

    def unpin(self) -> None:
        assert self.pins > 0
        self.pins -= 1

    def heat(self, capacity: int) -> bool:
        self._is_hot = True
        return True

    def trim(self) -> None:
        if len(self._inode.data) > self.size:
            self._fs.call("truncate", lambda: self._inode.resize(self.size))

    def cool(self) -> None:
        self.trim()
        self._is_hot = False

    def close(self) -> None:
        self.cool()


class FaultyFileSystem:
    """See the module; ``broker.storage.filesystem.FileSystem``."""

    def __init__(self, rng: random.Random, root: Directory | None = None, boots: int = 0) -> None:
        self.rng = rng
        self.root = root or Directory()
        self.cold_probability = 0.0
        self.calls = 0
        self.last_written: Inode | None = None
        self.free = 1 << 40
        #: No byte and no new name finds room while it is set.
        self.full = False
        self._boots = boots
        self._was_writing = False
        self._fail_at = -1
        self._error: Callable[[], BaseException] = Crash
        self._locked: set[str] = set()

    # Faults ----------------------------------------------------------------------------------

    def fail_at(self, calls_from_now: int, error: Callable[[], BaseException] = Crash) -> None:
        self._fail_at = self.calls + calls_from_now
        self._error = error

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Times are not kept."""

    def call(self, name: str, action: Callable[[], None] = lambda: None) -> None:
        self.calls += 1
        if self.full and name in ("append", "open", "mkdir"):
            raise disk_full()
        if self.calls != self._fail_at:
            action()
            return
        error = self._error()
        # A crash may come before or after the change; what fails with an error changes nothing.
        if isinstance(error, Crash) and self.rng.random() < 0.5:
            action()
            self._was_writing = name == "append"
        raise error

    def after_power_loss(self) -> FaultyFileSystem:
        if self.last_written is not None:
            self.last_written.tear(self.rng)
        self.root.forget_names(self.rng)
        return FaultyFileSystem(self.rng, self.root, self._boots + 1)

    def after_kill(self) -> FaultyFileSystem:
        if self.last_written is not None and self._was_writing:
            self.last_written.tear(self.rng)
        return FaultyFileSystem(self.rng, self.root, self._boots)

    # Names -----------------------------------------------------------------------------------

    def _parent(self, path: str) -> tuple[Directory, str]:
        *parents, name = path.strip("/").split("/")
        node = self.root
        for part in parents:
            child = node.entries.get(part)
            if not isinstance(child, Directory):
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            node = child
        return node, name

    def _find(self, path: str) -> Inode | Directory:
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def _inode(self, path: str) -> Inode:
        node = self._find(path)
        assert isinstance(node, Inode)
        return node

    def open(self, path: str, *, create: bool = False, size: int | None = None) -> FaultyFile:
        if create:
            parent, name = self._parent(path)
            node = parent.entries.get(name)
            if isinstance(node, Inode):
                self.call("open", lambda: node.resize(0))
                return FaultyFile(self, path, node, 0)
            inode = Inode()
            self.call("open", lambda: parent.add(name, inode))
            return FaultyFile(self, path, inode, 0)
        inode = self._inode(path)
        return FaultyFile(self, path, inode, len(inode.data) if size is None else size)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        node = self._find(path)
        assert isinstance(node, Directory)
        self.call("list")
        return [
            DirectoryEntry(
                name,
                isinstance(child, Directory),
                0 if isinstance(child, Directory) else len(child.data),
                0,
            )
            for name, child in node.entries.items()
        ]

    def exists(self, path: str) -> bool:
        try:
            self._find(path)
        except FileNotFoundError:
            return False
        return True

    def make_directory(self, path: str) -> None:
        node = self.root
        for part in path.strip("/").split("/"):
            child = node.entries.get(part)
            if child is None:
                child = Directory()
                parent = node
                self.call("mkdir", lambda p=parent, n=part, c=child: p.add(n, c))
            assert isinstance(child, Directory)
            node = child

    def rename(self, source: str, target: str) -> None:
        parent, name = self._parent(source)
        other, new_name = self._parent(target)
        assert parent is other, "storage renames within one directory"
        if name not in parent.entries:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self.call("rename", lambda: parent.rename(name, new_name))

    def link(self, source: str, target: str) -> bool:
        parent, name = self._parent(target)
        try:
            inode = self._inode(source)
        except FileNotFoundError:
            return False
        if name in parent.entries:
            return False
        self.call("link", lambda: parent.add(name, inode))
        return True

    def remove(self, path: str) -> None:
        parent, name = self._parent(path)
        if name in parent.entries:
            self.call("remove", lambda: parent.remove(name))

    def remove_tree(self, path: str) -> None:
        parent, name = self._parent(path)
        if name in parent.entries:
            self.call("remove", lambda: parent.remove(name))

    def sync_directory(self, path: str) -> None:
        node = self._find(path) if path.strip("/") else self.root
        assert isinstance(node, Directory)
        self.call("sync directory", node.sync)

    def sync_all(self, path: str) -> None:
        self.call("sync all", lambda: _sync_tree(self.root))

    def boot_id(self) -> str:
        return f"boot {self._boots}"

    def read_bytes(self, path: str) -> bytes:
        inode = self._inode(path)
        self.call("read")
        return bytes(inode.data)

    def free_bytes(self, path: str) -> int:
        return self.free

    def total_bytes(self, path: str) -> int:
        return 1 << 40

    def lock(self, path: str) -> Callable[[], None] | None:
        if path in self._locked:
            return None
        self._locked.add(path)
        return lambda: self._locked.discard(path)


def _sync_tree(directory: Directory) -> None:
    directory.sync()
    for node in directory.entries.values():
        if isinstance(node, Directory):
            _sync_tree(node)
        else:
            node.sync()


def disk_full() -> DiskFullError:
    return DiskFullError("no space left on device")


def io_error() -> OSError:
    return OSError(errno.EIO, "input/output error")
