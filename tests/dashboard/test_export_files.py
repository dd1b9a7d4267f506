"""What exports leave on disk has its bounds."""

import os
from pathlib import Path
from typing import Any

import pytest

from broker.clock import SystemClock
from dashboard import export_files


@pytest.fixture
def directory(tmp_path: Path, settings: Any) -> Path:
    settings.DATA_DIR = tmp_path
    return export_files.directory()


def put(directory: Path, name: str, size: int, age_s: int) -> Path:
    path = directory / name
    with path.open("wb") as file:
        file.truncate(size)
    at = SystemClock().wall_ms() / 1000 - age_s
    os.utime(path, (at, at))
    return path


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_what_is_a_day_old_and_what_was_abandoned_goes(directory: Path) -> None:
    put(directory, "old", 10, 25 * 3600)
    put(directory, "new", 10, 23 * 3600)
    put(directory, "left.partial", 10, 2 * 3600)
    put(directory, "written.partial", 10, 60)

    export_files.sweep()

    assert names(directory) == {"new", "written.partial"}


def test_the_oldest_make_room_and_what_is_being_written_stays(directory: Path) -> None:
    gib = 1024**3
    put(directory, "written.partial", 2 * gib, 0)
    for age in (1, 2, 3):
        put(directory, f"hour-{age}", gib, age * 3600)

    room = export_files.sweep(gib)

    assert names(directory) == {"written.partial", "hour-1", "hour-2"}
    assert room == gib


def test_nothing_is_left_when_others_write_it_all(directory: Path) -> None:
    put(directory, "written.partial", export_files.MAX_TOTAL_BYTES, 0)

    assert export_files.sweep(1) == 0
