"""Real files: descriptors, mapped tails, full disks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from broker.model.errors import DiskFullError, NoDescriptorError
from broker.storage import filesystem
from broker.storage.filesystem import MAP_COPY_LIMIT, RealFile, RealFileSystem, replace_file


def create(fs: RealFileSystem, path: Path, data: bytes = b"") -> RealFile:
    file = fs.open(str(path), create=True)
    if data:
        file.append(data)
    return file


def test_appends_are_read_back(tmp_path: Path) -> None:
    file = create(RealFileSystem(), tmp_path / "a", b"hello ")
    file.append(memoryview(b"world"))
    assert (file.size, file.pread(100, 0), file.peek(5, 6)) == (11, b"hello world", b"world")


def test_truncation_raises_the_generation(tmp_path: Path) -> None:
    file = create(RealFileSystem(), tmp_path / "a", b"hello world")
    file.truncate(5)
    assert (file.size, file.generation, (tmp_path / "a").read_bytes()) == (5, 1, b"hello")


def test_the_pool_keeps_its_limit_and_files_open_again(tmp_path: Path) -> None:
    fs = RealFileSystem(max_descriptors=8)
    files = [create(fs, tmp_path / str(number), b"%d" % number) for number in range(50)]
    assert len(fs.pool) == 8
    assert [file.pread(9, 0) for file in files] == [b"%d" % number for number in range(50)]
    assert len(fs.pool) == 8


def test_pinned_files_keep_their_descriptor(tmp_path: Path) -> None:
    fs = RealFileSystem(max_descriptors=4)
    pinned = create(fs, tmp_path / "pinned", b"x")
    descriptor = pinned.pin()
    for number in range(20):
        create(fs, tmp_path / str(number))
    os.unlink(tmp_path / "pinned")
    assert os.pread(descriptor, 1, 0) == b"x"
    assert pinned.pin() == descriptor
    pinned.unpin()
    pinned.unpin()
    pinned.close()
    assert pinned.descriptor == -1


def test_a_hot_tail_is_grown_by_zeros_and_trimmed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    file = create(RealFileSystem(), path, b"cold")
    assert file.heat(1 << 20)
    file.append(b"hot")
    assert path.stat().st_size > file.size == 7
    assert path.read_bytes().rstrip(b"\0") == b"coldhot"
    assert file.pread(100, 4)[:3] == b"hot"
    file.trim()
    assert path.read_bytes() == b"coldhot"
    file.append(b"again")
    file.cool()
    assert path.read_bytes() == b"coldhotagain"
    file.append(b"!")
    assert path.read_bytes() == b"coldhotagain!"


def test_large_appends_and_small_ones_mix_in_a_hot_tail(tmp_path: Path) -> None:
    path = tmp_path / "a"
    file = create(RealFileSystem(), path)
    file.heat(8 << 20)
    expected = b""
    for number in range(60):
        data = bytes([number]) * (MAP_COPY_LIMIT * 2 if number % 3 == 0 else 1000 + number)
        file.append(data)
        expected += data
        assert file.pread(len(data), file.size - len(data)) == data
    file.cool()
    assert path.read_bytes() == expected


def test_a_hot_tail_goes_on_by_pwrite_behind_its_map(tmp_path: Path) -> None:
    path = tmp_path / "a"
    file = create(RealFileSystem(), path)
    file.heat(4096)
    for _ in range(10):
        file.append(b"x" * 1000)
    file.cool()
    assert path.read_bytes() == b"x" * 10_000


def test_pages_behind_the_tail_are_released_and_stay_readable(tmp_path: Path) -> None:
    file = create(RealFileSystem(), tmp_path / "a")
    file.heat(32 << 20)
    data = os.urandom(50_000)
    for _ in range(300):
        file.append(data)
    assert file._released > 0
    assert file.pread(50_000, 0) == data
    assert file.pread(50_000, 299 * 50_000) == data
    file.cool()


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A disk on which ``[0]`` more bytes find room; writes are shortened before they fail."""
    room = [1 << 40]
    real = os.pwrite

    def pwrite(descriptor: int, data: bytes, position: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(descriptor, memoryview(data)[: room[0]], position)
        room[0] -= written
        return written

    monkeypatch.setattr(os, "pwrite", pwrite)
    return room


@pytest.mark.parametrize("is_hot", [False, True])
def test_a_full_disk_leaves_the_file_as_it_was(
    tmp_path: Path, full_disk: list[int], is_hot: bool
) -> None:
    path = tmp_path / "a"
    file = create(RealFileSystem(), path, b"before")
    if is_hot:
        file.heat(8 << 20)
    full_disk[0] = 100
    big = b"x" * (MAP_COPY_LIMIT + 1)
    for data in (big, b"y" * 5000, big):
        with pytest.raises(DiskFullError):
            file.append(data)
        assert file.size == 6
    assert path.read_bytes().rstrip(b"\0") == b"before"
    full_disk[0] = 1 << 40
    file.append(b" after")
    file.cool()
    assert path.read_bytes() == b"before after"


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, memoryview(data)[:7], at))
    file = create(RealFileSystem(), tmp_path / "a", b"0123456789" * 3)
    assert (tmp_path / "a").read_bytes() == b"0123456789" * 3
    assert file.size == 30


def test_residency_where_the_kernel_cannot_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cold once, then, after a pull, to be sent: never an endless pulling."""

    def preadv(*arguments: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    file = create(RealFileSystem(), tmp_path / "a", b"x" * 10_000)
    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(filesystem._page_cache, "is_supported", False)
    assert not file.is_resident(0, 10_000)
    file.pull(0, 10_000)
    assert file.is_resident(0, 10_000)
    assert file.peek(4, 0) == b"xxxx"


def test_a_replaced_file_is_whole(tmp_path: Path) -> None:
    fs = RealFileSystem()
    path = str(tmp_path / "a")
    replace_file(fs, path, b"one", sync=True)
    replace_file(fs, path, b"two", sync=False)
    assert (tmp_path / "a").read_bytes() == b"two"
    assert [entry.name for entry in fs.list_directory(str(tmp_path))] == ["a"]


def test_a_file_closed_while_it_is_pinned_goes_with_the_last_pin(tmp_path: Path) -> None:
    """A segment is deleted while somebody reads it: its room comes back at once after that."""
    file = create(RealFileSystem(), tmp_path / "a", b"hello")
    descriptor = file.pin()
    file.pin()
    file.close()
    file.unpin()
    assert os.pread(descriptor, 5, 0) == b"hello"
    file.unpin()
    assert file.descriptor == -1
    assert file.pread(5, 0) == b"hello"  # as after any other close
    file.pin()
    file.unpin()
    assert file.descriptor >= 0


# Descriptors


class Descriptors:
    """The process has none left while ``are_gone``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.are_gone = False
        known = os.open

        def open_(path: str, flags: int, *arguments: int) -> int:
            if self.are_gone:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            return known(path, flags, *arguments)

        monkeypatch.setattr(os, "open", open_)


@pytest.fixture
def descriptors(monkeypatch: pytest.MonkeyPatch) -> Descriptors:
    return Descriptors(monkeypatch)


def test_without_descriptors_an_append_fails_and_the_next_may_not(
    tmp_path: Path, descriptors: Descriptors
) -> None:
    fs = RealFileSystem()
    file = create(fs, tmp_path / "a", b"hello")
    file.close()
    descriptors.are_gone = True
    for action in (
        lambda: file.append(b"!"),
        lambda: file.pread(5, 0),
        lambda: file.peek(5, 0),
        file.pin,
        lambda: fs.open(str(tmp_path / "b"), create=True),
        lambda: fs.sync_directory(str(tmp_path)),
        lambda: fs.sync_all(str(tmp_path)),
    ):
        with pytest.raises(NoDescriptorError):
            action()
    assert file.pins == 0
    descriptors.are_gone = False
    file.append(b"!")
    assert (tmp_path / "a").read_bytes() == b"hello!"
    assert not (tmp_path / "b").exists()


def test_a_descriptor_that_another_file_can_spare_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = RealFileSystem()
    first, second = create(fs, tmp_path / "a", b"1"), create(fs, tmp_path / "b", b"2")
    second.close()
    known = os.open

    def open_(path: str, flags: int, *arguments: int) -> int:
        if first.descriptor >= 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return known(path, flags, *arguments)

    monkeypatch.setattr(os, "open", open_)
    assert second.pread(1, 0) == b"2"
    assert first.descriptor == -1
