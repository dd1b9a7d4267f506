"""Offset and time index: search in memory and in the file, rebuilding, cutting."""

from __future__ import annotations

import random
from pathlib import Path

from broker.storage.offset_index import OffsetIndex
from broker.storage.sparse_index import PENDING_ENTRIES, TAIL_ENTRIES
from broker.storage.time_index import TimeIndex
from tests.broker.storage.build import RealFileSystem


def offset_index(path: Path, base_offset: int = 1000, max_bytes: int = 1 << 20) -> OffsetIndex:
    return OffsetIndex(RealFileSystem(), str(path), base_offset, max_bytes)


def time_index(path: Path, base_offset: int = 1000, max_bytes: int = 1 << 20) -> TimeIndex:
    return TimeIndex(RealFileSystem(), str(path), base_offset, max_bytes)


def filled(path: Path, count: int) -> OffsetIndex:
    index = offset_index(path)
    for number in range(count):
        index.append(1000 + 10 * number + 9, 100 * number)
    return index


def test_an_empty_index_has_no_file(tmp_path: Path) -> None:
    index = offset_index(tmp_path / "i")
    assert index.position_before(5000) == (0, -1)
    assert index.last() == (1000, 0)
    assert not (tmp_path / "i").exists()


def test_searches_agree_in_memory_and_in_the_file(tmp_path: Path) -> None:
    count = 5 * TAIL_ENTRIES
    index = filled(tmp_path / "i", count)
    index.flush()
    from_file = offset_index(tmp_path / "i")
    for offset in random.Random(2).sample(range(1000, 1000 + 10 * count + 20), 500):
        slot = (offset - 1009) // 10
        expected = (100 * slot, 1009 + 10 * slot) if slot >= 0 else (0, -1)
        if slot >= count:
            expected = (100 * (count - 1), 1009 + 10 * (count - 1))
        assert index.position_before(offset) == from_file.position_before(offset) == expected
    for position in (0, 1, 99, 100, 12_345, 10**9):
        expected_position = min(position // 100 * 100, 100 * (count - 1))
        assert index.batch_at_or_before(position)[0] == expected_position
        assert from_file.batch_at_or_before(position)[0] == expected_position


def test_the_file_holds_whole_entries_only(tmp_path: Path) -> None:
    index = filled(tmp_path / "i", PENDING_ENTRIES - 1)
    assert not (tmp_path / "i").exists()
    index.append(10**6, 10**6)
    assert (tmp_path / "i").stat().st_size == 8 * PENDING_ENTRIES


def test_memory_holds_the_newest_entries_only(tmp_path: Path) -> None:
    index = filled(tmp_path / "i", 20 * TAIL_ENTRIES)
    assert len(index._keys) <= 2 * TAIL_ENTRIES + PENDING_ENTRIES


def test_an_index_is_full_by_its_limit(tmp_path: Path) -> None:
    index = offset_index(tmp_path / "o", max_bytes=24)
    times = time_index(tmp_path / "t", max_bytes=36)
    for number in range(2):
        index.append(1000 + number, number)
        times.maybe_append(number + 1, 1000 + number)
    assert (index.is_full, times.is_full) == (False, True)
    index.append(1002, 2)
    assert index.is_full


def test_truncation_keeps_entries_of_whole_batches(tmp_path: Path) -> None:
    for count in (10, 5 * TAIL_ENTRIES):
        index = filled(tmp_path / str(count), count)
        index.truncate_to(1000 + 10 * 5)
        assert index.last() == (1049, 400)
        index.truncate_to(1049)
        assert index.last() == (1039, 300)
        index.append(2000, 999)
        index.flush()
        assert [entry[1] for entry in offset_index(tmp_path / str(count)).entries()] == [
            0, 100, 200, 300, 999,
        ]  # fmt: skip


def test_the_time_index_takes_rising_timestamps_only(tmp_path: Path) -> None:
    index = time_index(tmp_path / "t")
    assert index.maybe_append(50, 1005)
    assert not index.maybe_append(50, 1006)
    assert not index.maybe_append(-1, 1007)
    assert index.maybe_append(60, 1008)
    assert index.entries() == [(50, 5), (60, 8)]
    assert [index.entry_before(time)[1] for time in (49, 50, 59, 60, 99)] == [
        1000, 1005, 1005, 1008, 1008,
    ]  # fmt: skip
    assert index.last() == (60, 1008)
    index.truncate_to(1008)
    assert index.last() == (50, 1005)


def test_a_rebuild_touches_only_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "i"
    filled(path, 100).flush()
    before = path.stat().st_mtime_ns
    index = offset_index(path)
    index.begin_rebuild()
    for number in range(100):
        index.append(1000 + 10 * number + 9, 100 * number)
    assert not index.finish_rebuild()
    assert path.stat().st_mtime_ns == before


def test_a_rebuild_repairs_zeros_torn_and_wrong_entries(tmp_path: Path) -> None:
    path = tmp_path / "i"
    index = filled(path, 100)
    index.flush()
    good = path.read_bytes()
    for damage in (b"", good[:400] + bytes(400), good[:93], good + bytes(1 << 20), b"\xff" * 800):
        path.write_bytes(damage)
        index = offset_index(path)
        index.begin_rebuild()
        for number in range(100):
            index.append(1000 + 10 * number + 9, 100 * number)
        assert index.finish_rebuild()
        assert path.read_bytes() == good
        assert index.last() == (1999, 9900)
