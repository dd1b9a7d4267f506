"""When a disk will be full."""

import pytest

from dashboard.alerting.disk_trend import MAX_DISKS, NEVER, DiskTrend

MINUTE = 60_000
GIB = 1 << 30


def seen(minutes: int, used: object) -> DiskTrend:
    trend = DiskTrend()
    for minute in range(minutes + 1):
        trend.add("d", round(used(minute)), minute * MINUTE)  # type: ignore[operator]
    return trend


def test_steady_growth_is_extended() -> None:
    trend = seen(120, lambda minute: minute * GIB / 60)  # 1 GiB an hour

    assert trend.hours_to_full("d", 10 * GIB) == pytest.approx(10, rel=0.01)


def test_half_an_hour_has_to_be_seen_first() -> None:
    assert seen(29, lambda minute: minute * GIB).hours_to_full("d", GIB) is None
    assert seen(30, lambda minute: minute * GIB).hours_to_full("d", GIB) is not None


def test_what_does_not_grow_is_never_full() -> None:
    assert seen(60, lambda minute: 5 * GIB).hours_to_full("d", GIB) == NEVER
    assert seen(60, lambda minute: (90 - minute) * GIB).hours_to_full("d", GIB) == NEVER


def test_one_large_file_is_no_trend_once_an_hour_has_passed() -> None:
    trend = seen(200, lambda minute: 0 if minute < 60 else 50 * GIB)

    assert trend.hours_to_full("d", 10 * GIB) == NEVER


def test_an_hour_of_growth_in_a_disk_that_is_emptied_is_no_trend() -> None:
    trend = seen(360, lambda minute: (360 - minute) * GIB if minute < 300 else minute * GIB / 100)

    assert trend.hours_to_full("d", 10 * GIB) == NEVER


def test_memory_is_bounded_and_a_clock_that_goes_back_begins_anew() -> None:
    trend = DiskTrend()
    for number in range(MAX_DISKS + 10):
        trend.add(f"d{number}", 0, 0)
    assert trend.hours_to_full(f"d{MAX_DISKS + 5}", 1) is None

    again = seen(60, lambda minute: minute * GIB)
    again.add("d", 0, 0)
    assert again.hours_to_full("d", GIB) is None
