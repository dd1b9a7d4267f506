"""What the kernel says of cached pages, and when it is believed."""

import mmap
import os
from pathlib import Path

import pytest

from broker.storage import filesystem
from broker.storage.filesystem import RealFileSystem
from broker.storage.page_cache import PageCache

PAGE = mmap.PAGESIZE


@pytest.fixture
def page_cache() -> PageCache:
    cache = PageCache()
    if cache.holds(os.open("/proc/self/exe", os.O_RDONLY), 0, 1) is None:
        pytest.skip("this kernel has no cachestat")
    return cache


def test_pages_just_written_are_held(tmp_path: Path, page_cache: PageCache) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8 * PAGE))
    descriptor = os.open(path, os.O_RDONLY)
    assert page_cache.holds(descriptor, 0, 8 * PAGE)
    assert page_cache.holds(descriptor, PAGE - 1, 2)
    assert not page_cache.holds(descriptor, 0, 9 * PAGE)
    os.close(descriptor)


def test_dropped_pages_are_not_held(tmp_path: Path, page_cache: PageCache) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8 * PAGE))
    descriptor = os.open(path, os.O_RDWR)
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    if page_cache.holds(descriptor, 0, 8 * PAGE):
        pytest.skip("this file system lives in memory")
    os.pread(descriptor, 1, 0)
    assert page_cache.holds(descriptor, 0, 1)
    os.close(descriptor)


def test_a_kernel_that_cannot_tell_is_asked_once() -> None:
    cache = PageCache()
    assert cache.holds(-1, 0, 1) is None
    assert not cache.is_supported


def test_after_a_pull_residency_is_proved_by_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = RealFileSystem()
    file = fs.open(str(tmp_path / "log"), create=True)
    file.append(bytes(4 * PAGE))
    asked: list[int] = []

    class Liar(PageCache):
        def holds(self, descriptor: int, position: int, length: int) -> bool | None:
            asked.append(position)
            return False

    monkeypatch.setattr(filesystem, "_page_cache", Liar())
    assert not file.is_resident(0, PAGE)
    file.pull(0, 4 * PAGE)
    assert all(file.is_resident(0, PAGE) for _ in range(filesystem.DISTRUST_CHECKS))
    assert asked == [0]
    assert not file.is_resident(0, PAGE)
    assert asked == [0, 0]
    file.close()
