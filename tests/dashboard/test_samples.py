"""History: what was written is read again, coarser with its age, within the bounds."""

import sqlite3
from pathlib import Path

import pytest

from dashboard import samples as module
from dashboard.samples import Samples

NOON = 1_800_000_000_000 // 600_000 * 600_000


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    return Samples(tmp_path / "samples.db")


def known(points: list[tuple[int, float | None]]) -> list[tuple[int, float]]:
    return [(at, value) for at, value in points if value is not None]


def test_what_was_written_in_the_last_hour_is_read_at_its_time(samples: Samples) -> None:
    for i in range(5):
        samples.write(NOON + i * 10_000, {"cluster.bytes_in": i, "topic.size:orders": 2.0**60})

    points = samples.read("cluster.bytes_in", NOON - 3_600_000, NOON + 40_000, points=400)

    assert known(points) == [(NOON + i * 10_000, float(i)) for i in range(5)]
    assert len(points) <= 365
    assert known(samples.read("topic.size:orders", NOON, NOON))[0][1] == 2.0**60


def test_a_series_nobody_wrote_has_times_and_no_values(samples: Samples) -> None:
    assert known(samples.read("no.such", NOON - 3_600_000, NOON)) == []
    samples.write(NOON, {"a": 1.0})
    points = samples.read("no.such", NOON - 3_600_000, NOON)
    assert len(points) > 300
    assert known(points) == []


def test_a_slower_pace_leaves_no_holes_and_a_longer_silence_does(samples: Samples) -> None:
    samples.write(NOON, {"a": 1.0})
    samples.write(NOON + 60_000, {"a": 7.0})
    samples.write(NOON + 600_000, {"a": 9.0})

    found = dict(known(samples.read("a", NOON, NOON + 600_000)))

    assert found[NOON + 30_000] == 7.0
    assert NOON + 300_000 not in found
    assert found[NOON + 600_000] == 9.0


def test_a_day_is_told_in_minutes_and_a_week_in_ten_minutes(samples: Samples) -> None:
    for i in range(6 * 60 * 3):
        samples.write(NOON + i * 10_000, {"a": float(i // 6)})
    end = NOON + 3 * 3_600_000

    day = dict(known(samples.read("a", end - 86_400_000, end, points=2000)))
    week = dict(known(samples.read("a", end - 7 * 86_400_000, end, points=2000)))

    assert day[NOON + 100 * 60_000] == 100.0
    assert week[NOON + 60 * 60_000] == 64.5
    assert len(day) == 180
    assert len(week) == 18


def test_what_has_not_been_rolled_up_yet_is_on_the_longer_charts_too(samples: Samples) -> None:
    samples.write(NOON + 10_000, {"a": 4.0})
    samples.write(NOON + 20_000, {"a": 6.0})

    for days in (1, 7):
        points = samples.read("a", NOON - days * 86_400_000, NOON + 30_000, points=2000)
        assert [value for _, value in known(points)] == [5.0]


def test_fewer_points_are_means(samples: Samples) -> None:
    for i in range(360):
        samples.write(NOON + i * 10_000, {"a": float(i % 2)})

    points = samples.read("a", NOON, NOON + 3_599_000, points=36)

    assert len(points) == 36
    assert {value for _, value in points} == {0.5}


def test_the_finest_round_forgets_after_its_time(samples: Samples) -> None:
    samples.write(NOON, {"a": 1.0})
    samples.write(NOON + 86_400_000, {"a": 2.0})

    with sqlite3.connect(samples._path) as connection:
        (count,) = connection.execute("SELECT count(*) FROM samples WHERE id < 1 << 48").fetchone()
    assert count == 1


def test_series_past_the_bound_are_counted_and_dropped(
    samples: Samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SERIES", 3)

    assert samples.write(NOON, {f"s{i}": float(i) for i in range(5)}) == 2
    assert known(samples.read("s2", NOON, NOON)) == [(NOON, 2.0)]
    assert known(samples.read("s3", NOON, NOON)) == []


def test_a_full_file_gives_up_its_oldest_and_goes_on(tmp_path: Path) -> None:
    bound = 400 * 1024
    samples = Samples(tmp_path / "samples.db", max_bytes=bound)
    many = {f"s{i}": float(i) for i in range(300)}

    for i in range(360):
        samples.write(NOON + i * 10_000, many)

    assert (tmp_path / "samples.db").stat().st_size <= bound
    end = NOON + 359 * 10_000
    assert known(samples.read("s299", end, end)) == [(end // 10_000 * 10_000, 299.0)]


def test_a_damaged_file_is_put_aside_and_history_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "samples.db"
    path.write_bytes(b"this is no database at all" * 400)
    samples = Samples(path)

    assert known(samples.read("a", NOON, NOON)) == []
    samples.write(NOON, {"a": 1.0})

    assert known(samples.read("a", NOON, NOON)) == [(NOON, 1.0)]
    assert path.with_suffix(".damaged").exists()


def test_a_new_process_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    first = Samples(tmp_path / "samples.db")
    first.write(NOON, {"a": 1.0, "b": 1.0})
    first.close()
    second = Samples(tmp_path / "samples.db")
    second.write(NOON + 10_000, {"b": 2.0})

    assert known(second.read("b", NOON, NOON + 10_000)) == [(NOON, 1.0), (NOON + 10_000, 2.0)]
