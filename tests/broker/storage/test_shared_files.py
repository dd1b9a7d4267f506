"""Small files with equal contents: one file with many names, and never a wrong content."""

from __future__ import annotations

import os
import random
import uuid
from pathlib import Path

import pytest

from broker.model.ids import TopicPartition
from broker.storage import shared_files
from broker.storage.filesystem import RealFileSystem
from broker.storage.shared_files import SharedFiles
from tests.broker.storage.build import config, fill, open_manager, reopen
from tests.broker.storage.check import check_indexes
from tests.support.faulty_filesystem import FaultyFileSystem


@pytest.fixture
def shared() -> SharedFiles:
    return SharedFiles(RealFileSystem())


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("sync", [False, True])
def test_equal_contents_are_one_file(shared: SharedFiles, tmp_path: Path, sync: bool) -> None:
    for name in "abc":
        shared.replace(f"{tmp_path}/{name}", b"same", sync=sync)
    shared.replace(f"{tmp_path}/d", b"other", sync=sync)
    assert len({(tmp_path / name).stat().st_ino for name in "abc"}) == 1
    assert (tmp_path / "d").stat().st_nlink == 1
    # One of them changes: the others stay, whoever was first.
    for changed in "ab":
        shared.replace(f"{tmp_path}/{changed}", b"changed", sync=sync)
    assert [(tmp_path / name).read_bytes() for name in "abcd"] == [
        b"changed", b"changed", b"same", b"other",
    ]  # fmt: skip
    shared.replace(f"{tmp_path}/b", b"changed", sync=sync)  # as it is already
    assert names(tmp_path) == list("abcd")


def test_a_file_that_was_replaced_by_somebody_else_is_not_shared(
    shared: SharedFiles, tmp_path: Path
) -> None:
    """A topic was deleted, and another took the directory."""
    shared.replace(f"{tmp_path}/a", b"old", sync=False)
    (tmp_path / "a").unlink()
    (tmp_path / "a").write_bytes(b"new")
    shared.replace(f"{tmp_path}/b", b"old", sync=False)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "b").read_bytes() == b"old"
    (tmp_path / "b").unlink()
    shared.replace(f"{tmp_path}/c", b"old", sync=False)
    assert names(tmp_path) == ["a", "c"]


def test_where_no_link_can_be_made_each_has_its_own(
    shared: SharedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: str, target: str, **options: bool) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", link)
    for name in "ab":
        shared.replace(f"{tmp_path}/{name}", b"same", sync=True)
    assert [(tmp_path / name).read_bytes() for name in "ab"] == [b"same", b"same"]
    assert (tmp_path / "a").stat().st_nlink == 1


def test_a_file_system_bounds_the_names_of_a_file(
    shared: SharedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = os.link

    def link(source: str, target: str, **options: bool) -> None:
        if Path(source).stat().st_nlink >= 3:
            raise OSError(31, "too many links")
        known(source, target, **options)

    monkeypatch.setattr(os, "link", link)
    for number in range(9):
        shared.replace(f"{tmp_path}/{number}", b"same", sync=False)
    assert len({path.stat().st_ino for path in tmp_path.iterdir()}) == 3


def test_few_contents_are_remembered(
    shared: SharedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_files, "MAX_CONTENTS", 4)
    for number in range(20):
        shared.replace(f"{tmp_path}/{number}", b"%d" % number, sync=False)
    assert len(shared._paths) == 4


def test_what_was_replaced_with_sync_survives_a_loss_of_power() -> None:
    for seed in range(50):
        fs = FaultyFileSystem(random.Random(seed))
        fs.make_directory("/data/p0")
        fs.make_directory("/data/p1")
        for path in ("/", "/data"):
            fs.sync_directory(path)
        shared = SharedFiles(fs)
        shared.replace("/data/p0/file", b"content", sync=False)
        shared.replace("/data/p1/file", b"content", sync=True)
        assert fs.after_power_loss().read_bytes("/data/p1/file") == b"content"


# What a partition takes


RESTING = config(segment_bytes=1 << 30, index_interval_bytes=4096)


def test_many_small_partitions_take_little_room(tmp_path: Path) -> None:
    """5,000 partitions of 20 records of 1 KB shall take less than 150 MB: 30 KiB each."""
    manager = open_manager([tmp_path], RESTING)
    topic_id = uuid.UUID(int=5)
    count = 100
    for index in range(count):
        log = manager.get_or_create(TopicPartition("t", index), topic_id, RESTING)
        log.assign_leader_epoch(0)
        fill(log, 20, size=1000)
        log.write_epochs()
    for second in range(60):
        for work in manager.tick(2_000_000 + 1000 * second):
            work.run()
    blocks = {
        found.stat().st_ino: found.stat().st_blocks
        for directory in tmp_path.glob("t-*")
        for found in (directory, *directory.iterdir())
    }
    assert 512 * sum(blocks.values()) <= count * 30 * 1024
    # Nothing was lost by that: not while it runs, not by a kill, not by a stop.
    log = manager.logs[TopicPartition("t", 0)]
    assert len(log.segments.active.offset_index.entries()) == 4
    check_indexes(log)
    manager.close()
    assert sorted(path.suffix for path in (tmp_path / "t-0").glob("0*")) == [
        ".index", ".log", ".timeindex",
    ]  # fmt: skip
    manager = open_manager([tmp_path], RESTING)
    for log in manager.logs.values():
        assert log.topic_id == topic_id
        assert log.log_end_offset == 20
        check_indexes(log)


def test_entries_that_rest_in_memory_go_on_growing_and_are_written_in_the_end(
    tmp_path: Path,
) -> None:
    manager = open_manager([tmp_path], RESTING)
    log = manager.get_or_create(TopicPartition("orders", 0), None, RESTING)
    for _ in range(5):
        fill(log, 20, size=1000)
        log.rest()
        assert not list((tmp_path / "orders-0").glob("*index"))
        check_indexes(log)
        log.rest()
    log.trim()
    assert {path.suffix for path in (tmp_path / "orders-0").glob("*index")} == {
        ".index", ".timeindex",
    }  # fmt: skip
    killed = reopen(tmp_path, RESTING, clean=False)
    check_indexes(killed)
    active, entries = log.segments.active, killed.segments.active.offset_index.entries()
    assert active.offset_index.entries() == entries
    log.rest()
    fill(log, 300, size=1000)
    log.rest()
    check_indexes(log)
