"""Times of cron schedules, held against clocks on walls read minute by minute."""

import datetime as dt
import itertools
import zoneinfo

import pytest

from dashboard.schedules.cron import BadCron, Cron, parse

UTC = dt.UTC
CHANGES = [
    ("Europe/Berlin", dt.date(2026, 3, 29), 23),
    ("Europe/Berlin", dt.date(2026, 10, 25), 25),
    ("America/New_York", dt.date(2026, 3, 8), 23),
    ("America/New_York", dt.date(2026, 11, 1), 25),
    ("America/Los_Angeles", dt.date(2026, 11, 1), 25),
    ("America/Santiago", dt.date(2026, 9, 6), 23),
    ("UTC", dt.date(2026, 3, 29), 24),
]


def cron(text: str, zone: str = "UTC") -> Cron:
    return parse(text, zoneinfo.ZoneInfo(zone))


def between(found: Cron, begin: dt.datetime, end: dt.datetime) -> list[dt.datetime]:
    times = []
    moment = found.after(begin - dt.timedelta(seconds=1))
    while moment is not None and moment < end:
        times.append(moment)
        moment = found.after(moment)
    return times


def bounds(zone: str, day: dt.date) -> tuple[dt.datetime, dt.datetime]:
    """When this day began and ended at this place: its minutes, found by reading clocks."""
    noon = dt.datetime.combine(day, dt.time(12), tzinfo=UTC)
    minutes = [noon + dt.timedelta(minutes=step) for step in range(-48 * 60, 48 * 60)]
    here = [at for at in minutes if at.astimezone(zoneinfo.ZoneInfo(zone)).date() == day]
    return here[0], here[-1] + dt.timedelta(minutes=1)


def wall_times(zone: str, times: list[dt.datetime]) -> list[str]:
    return [at.astimezone(zoneinfo.ZoneInfo(zone)).strftime("%H:%M %Z") for at in times]


@pytest.mark.parametrize(("zone", "day", "hours"), CHANGES)
def test_hourly_runs_once_in_each_hour_that_passes(zone: str, day: dt.date, hours: int) -> None:
    begin, end = bounds(zone, day)
    times = between(cron("0 * * * *", zone), begin, end)
    assert len(times) == hours
    gaps = {later - earlier for earlier, later in itertools.pairwise(times)}
    assert gaps == {dt.timedelta(hours=1)}


@pytest.mark.parametrize(("zone", "day", "hours"), CHANGES)
@pytest.mark.parametrize("clock", ["02:30", "01:30", "00:30", "00:00", "12:00"])
def test_daily_runs_once_on_every_day(zone: str, day: dt.date, hours: int, clock: str) -> None:
    hour, minute = clock.split(":")
    times = between(cron(f"{int(minute)} {int(hour)} * * *", zone), *bounds(zone, day))
    assert len(times) == 1


def test_what_a_change_of_clocks_leaves_out_runs_at_the_change_and_what_comes_twice_the_first_time() -> (
    None
):
    zone = "Europe/Berlin"
    spring, autumn = bounds(zone, dt.date(2026, 3, 29)), bounds(zone, dt.date(2026, 10, 25))
    daily, quarters = cron("30 2 * * *", zone), cron("*/15 2 * * *", zone)
    assert wall_times(zone, between(daily, *spring)) == ["03:00 CEST"]
    assert wall_times(zone, between(daily, *autumn)) == ["02:30 CEST"]
    assert wall_times(zone, between(quarters, *spring)) == ["03:00 CEST"]
    assert len(between(quarters, *autumn)) == 4


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns"])
def test_a_schedule_of_every_hour_follows_the_clock_minute_by_minute(zone: str) -> None:
    here = zoneinfo.ZoneInfo(zone)
    found = cron("7,40 * * * *", zone)
    begin = dt.datetime(2026, 1, 1, tzinfo=UTC)
    for start in (begin + dt.timedelta(days=7 * week) for week in range(0, 52)):
        minutes = (start + dt.timedelta(minutes=step) for step in range(7 * 24 * 60))
        read = [at for at in minutes if at.astimezone(here).minute in (7, 40)]
        assert between(found, start, start + dt.timedelta(days=7)) == read


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kathmandu"])
@pytest.mark.parametrize("text", ["*/10 * * * *", "30 2 * * *", "0 0 1 * *", "5 4 * * sun"])
def test_the_latest_time_is_the_one_that_the_next_follows(zone: str, text: str) -> None:
    found = cron(text, zone)
    long_ago = dt.datetime(2026, 1, 1, tzinfo=UTC)
    for days in range(40, 330, 7):
        now = long_ago + dt.timedelta(days=days, minutes=days * 37)
        latest = found.latest(now, long_ago)
        assert latest is not None
        assert latest <= now
        following = found.after(latest)
        assert following is not None
        assert following > now
        assert found.latest(now, latest) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 9 * * mon-fri", ["2026-05-01", "2026-05-04", "2026-05-05"]),
        ("0 9 29 2 *", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("0 9 13 * fri", ["2026-05-01", "2026-05-08", "2026-05-13"]),
        ("0 9 31 * *", ["2026-05-31", "2026-07-31", "2026-08-31"]),
        ("0 9 1 jan,jul 0-7", ["2026-07-01", "2026-07-02", "2026-07-03"]),
        ("0 9 */2 * *", ["2026-05-01", "2026-05-03", "2026-05-05"]),
        ("@monthly", ["2026-05-01", "2026-06-01", "2026-07-01"]),
    ],
)
def test_days_as_in_crontab_5(text: str, expected: list[str]) -> None:
    found = cron(text)
    moment: dt.datetime | None = dt.datetime(2026, 4, 30, 23, 59, tzinfo=UTC)
    days = []
    for _ in expected:
        assert moment is not None
        moment = found.after(moment)
        days.append(f"{moment:%Y-%m-%d}" if moment else None)
    assert days == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("* * * *", "Five fields"),
        ("60 * * * *", "'60' is no minute: it goes from 0 to 59."),
        ("0 24 * * *", "'24' is no hour"),
        ("0 0 0 * *", "day of the month"),
        ("0 0 * * funday", "day of the week"),
        ("*/0 * * * *", "step that makes no sense"),
        ("5-1 * * * *", "ends before it begins"),
        ("0 0 30 2 *", "no such day"),
        ("0 0 1;2 * *", "'1;2' is no day of the month"),
        ("* * * * * *", "Five fields"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(BadCron, match=words.replace("*", r"\*")):
        cron(text)
