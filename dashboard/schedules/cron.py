"""Cron expressions in a time zone, over the nights on which clocks change. Pure.

Five fields as in crontab(5): lists, ranges, steps, names; when both the day of the month and the
day of the week are restricted, either is enough. A schedule of every hour follows the time that
passes: it has 25 hours in autumn and 23 in spring. One of particular hours follows the clock on the
wall and runs once a day: of an hour that comes twice it takes the first, and for one that is left
out it runs when the clocks have been changed.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

MAX_DAYS: Final = 366 * 9
"""How far ahead a next time is looked for: over the eight years between two 29ths of February."""
ALIASES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_PART = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?", re.ASCII)
_SECOND = dt.timedelta(seconds=1)


class BadCron(ValueError):
    """The text is for the person who wrote the expression."""


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()


_FIELDS: Final = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 7, _DAYS),
)


@dataclass(frozen=True, slots=True)
class Cron:
    """``parse`` makes one."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """Sunday is 0."""
    zone: zoneinfo.ZoneInfo
    is_either_day: bool
    """Both kinds of days are restricted: either is enough."""

    def after(self, moment: dt.datetime) -> dt.datetime | None:
        """The first time later than ``moment``, in UTC; None when there is none for nine years."""
        day = moment.astimezone(self.zone).date() - dt.timedelta(days=1)
        for _ in range(MAX_DAYS):
            for found in _times_of(self, day) if self._has(day) else ():
                if found > moment:
                    return found
            day += dt.timedelta(days=1)
        return None

    def latest(self, moment: dt.datetime, since: dt.datetime) -> dt.datetime | None:
        """The last time up to ``moment``, in UTC; None when there is none after ``since``."""
        day = moment.astimezone(self.zone).date() + dt.timedelta(days=1)
        first_day = since.astimezone(self.zone).date() - dt.timedelta(days=1)
        while day >= first_day:
            for found in reversed(_times_of(self, day)) if self._has(day) else ():
                if found <= moment:
                    return found if found > since else None
            day -= dt.timedelta(days=1)
        return None

    def times_of(self, day: dt.date) -> list[dt.datetime]:
        """In UTC, in order, each once."""
        is_hourly = len(self.hours) == 24
        found: set[dt.datetime] = set()
        for hour in self.hours:
            for minute in self.minutes:
                wall = dt.datetime.combine(day, dt.time(hour, minute))
                found.update(self._elapsed(wall) if is_hourly else self._once(wall))
        return sorted(found)

    def _has(self, day: dt.date) -> bool:
        if day.month not in self.months:
            return False
        is_day, is_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (is_day or is_weekday) if self.is_either_day else (is_day and is_weekday)

    def _elapsed(self, wall: dt.datetime) -> Iterator[dt.datetime]:
        """Each moment at which the clock on the wall shows this: none, one or two."""
        for fold in (0, 1):
            at = wall.replace(tzinfo=self.zone, fold=fold).astimezone(dt.UTC)
            if at.astimezone(self.zone).replace(tzinfo=None) == wall:
                yield at

    def _once(self, wall: dt.datetime) -> Iterator[dt.datetime]:
        first = next(self._elapsed(wall), None)
        yield first if first is not None else self._change_over(wall)

    def _change_over(self, wall: dt.datetime) -> dt.datetime:
        """When the clocks were changed over this time, which they left out (PEP 495: a gap)."""
        late = wall.replace(tzinfo=self.zone, fold=0).astimezone(dt.UTC)
        early = wall.replace(tzinfo=self.zone, fold=1).astimezone(dt.UTC)
        before = early.astimezone(self.zone).utcoffset()
        while late - early > _SECOND:
            middle = early + (late - early) // (2 * _SECOND) * _SECOND
            if middle.astimezone(self.zone).utcoffset() == before:
                early = middle
            else:
                late = middle
        return late


@lru_cache(maxsize=512)
def _times_of(cron: Cron, day: dt.date) -> tuple[dt.datetime, ...]:
    """Asked again each second, of equal schedules."""
    return tuple(cron.times_of(day))


@lru_cache(maxsize=512)
def parse(expression: str, zone: zoneinfo.ZoneInfo) -> Cron:
    """Raises BadCron."""
    minute, hour, day, month, weekday = split(expression)
    weekdays = frozenset(number % 7 for number in _numbers(weekday, _FIELDS[4]))
    cron = Cron(
        tuple(sorted(_numbers(minute, _FIELDS[0]))),
        tuple(sorted(_numbers(hour, _FIELDS[1]))),
        frozenset(_numbers(day, _FIELDS[2])),
        frozenset(_numbers(month, _FIELDS[3])),
        weekdays,
        zone,
        not day.startswith("*") and not weekday.startswith("*"),
    )
    if cron.after(dt.datetime(2024, 1, 1, tzinfo=dt.UTC)) is None:
        raise BadCron("There is no such day.")
    return cron


def split(expression: str) -> tuple[str, str, str, str, str]:
    """The five fields, in small letters; names such as ``@daily`` are written out."""
    text = expression.strip().lower()
    parts = ALIASES.get(text, text).split()
    if len(parts) != 5:
        raise BadCron(
            "Five fields, please: minute, hour, day of the month, month, day of the week."
        )
    return parts[0], parts[1], parts[2], parts[3], parts[4]


def _numbers(text: str, field: _Field) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise BadCron(f"{part!r} is no {field.name}.")
        star, first, last, step = match.groups()
        if star:
            low, high = field.least, field.most
        else:
            low = _number(first, field)
            high = _number(last, field) if last else field.most if step else low
        if high < low:
            raise BadCron(f"{part!r} of the {field.name} ends before it begins.")
        if step is not None and not 0 < int(step) <= field.most:
            raise BadCron(f"{part!r} of the {field.name} has a step that makes no sense.")
        found.update(range(low, high + 1, int(step) if step else 1))
    return found


def _number(text: str, field: _Field) -> int:
    if text in field.names:
        return field.names.index(text) + field.least
    if not text.isdecimal() or not field.least <= int(text) <= field.most:
        raise BadCron(f"{text!r} is no {field.name}: it goes from {field.least} to {field.most}.")
    return int(text)
