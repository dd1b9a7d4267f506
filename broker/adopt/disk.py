"""The few things that an adoption does to the disk, each of them one step.

An adoption may be killed between any two of them, which tests do by a ``Disk`` that counts. Nothing
is durable before ``sync``; only ``write`` replaces a file as a whole and durably.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from broker.storage.filesystem import RealFileSystem

CHUNK_BYTES: Final = 8 * 1024 * 1024
#: A kernel or file system that cannot copy from descriptor to descriptor.
_NO_RANGE_COPY: Final = frozenset(
    {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM, errno.EBADF}
)
#: Reasons why a file cannot be linked, but be copied: another file system, or none of our files.
_NO_LINK: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP}
)
Progress = Callable[[int], None]


class Disk:
    """The machine's own."""

    def make_directory(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def remove_tree(self, path: Path) -> None:
        if path.exists():
            shutil.rmtree(path)

    def remove_directory(self, path: Path) -> None:
        path.rmdir()

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def link(self, source: Path, target: Path) -> bool:
        """False where it has to be copied: also when we could not write to the file later."""
        if not os.access(source, os.R_OK | os.W_OK):
            return False
        try:
            os.link(source, target, follow_symlinks=True)
        except OSError as error:
            if error.errno in _NO_LINK:
                return False
            raise
        return True

    def is_one_file_system(self, file: Path, directory: Path) -> bool:
        """Whether ``file`` could be linked or moved into ``directory``. Only trying tells: two mounts
        of one file system look alike."""
        trial = directory / ".adopting-trial"
        trial.unlink(missing_ok=True)
        try:
            os.link(file, trial)
        except OSError as error:
            return error.errno != errno.EXDEV
        trial.unlink()
        return True

    def copy(self, source: Path, target: Path, on_progress: Progress) -> None:
        """Content, holes and modification time."""
        with source.open("rb") as reader, target.open("wb") as writer:
            status = os.fstat(reader.fileno())
            for start, end in _extents(reader.fileno(), status.st_size):
                _copy_range(reader.fileno(), writer.fileno(), start, end, on_progress)
            os.ftruncate(writer.fileno(), status.st_size)
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))

    def write(self, path: Path, data: bytes) -> None:
        """All of the new content or all of the old, and on the disk."""
        temporary = path.with_name(f"{path.name}.tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        self.sync_directory(path.parent)

    def sync_directory(self, path: Path) -> None:
        RealFileSystem().sync_directory(str(path))

    def sync_all(self, path: Path) -> None:
        RealFileSystem().sync_all(str(path))


def _extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """The parts of a file that hold data."""
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # only a hole is left
            yield end, size
            return
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        yield start, end


def _copy_range(source: int, target: int, start: int, end: int, on_progress: Progress) -> None:
    while start < end:
        wanted = min(end - start, CHUNK_BYTES)
        try:
            count = os.copy_file_range(source, target, wanted, start, start)
        except OSError as error:
            if error.errno not in _NO_RANGE_COPY:
                raise
            count = _copy_plainly(source, target, wanted, start)
        if not count:
            return  # the file became shorter
        start += count
        on_progress(count)


def _copy_plainly(source: int, target: int, wanted: int, position: int) -> int:
    data = memoryview(os.pread(source, wanted, position))
    count = len(data)
    while data:
        written = os.pwrite(target, data, position)
        data = data[written:]
        position += written
    return count
