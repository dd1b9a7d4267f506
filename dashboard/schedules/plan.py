"""When a schedule's row (django-celery-beat's ``PeriodicTask``) is due, and what it says in words."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from dataclasses import dataclass

from django_celery_beat.models import PeriodicTask

from dashboard.schedules.cron import Cron, parse

NEXT_COUNT = 5


@dataclass(frozen=True, slots=True)
class Interval:
    """Every so often since it was last due: over elapsed time, whatever clocks on walls do."""

    every: dt.timedelta

    def after(self, moment: dt.datetime) -> dt.datetime | None:
        return moment + self.every


Plan = Interval | Cron


def plan_of(task: PeriodicTask) -> Plan:
    """Raises ValueError for a row that says no time: other programs may write them."""
    if task.interval is not None:
        return interval(task.interval.every, task.interval.period)
    if task.crontab is not None:
        return parse(expression_of(task), zoneinfo.ZoneInfo(str(task.crontab.timezone)))
    raise ValueError("it has neither an interval nor a cron expression")


def interval(every: int, period: str) -> Interval:
    """``period``: days, hours, minutes or seconds."""
    found = Interval(dt.timedelta(**{period: every}))
    if found.every <= dt.timedelta(0):
        raise ValueError("an interval is longer than nothing")
    return found


def expression_of(task: PeriodicTask) -> str:
    cron = task.crontab
    return f"{cron.minute} {cron.hour} {cron.day_of_month} {cron.month_of_year} {cron.day_of_week}"


def due(plan: Plan, since: dt.datetime, now: dt.datetime) -> dt.datetime | None:
    """The latest time that has come since ``since``: however many were missed, they are one."""
    if isinstance(plan, Interval):
        passed = (now - since) // plan.every
        return since + passed * plan.every if passed > 0 else None
    return plan.latest(now, since)


def following(plan: Plan, since: dt.datetime, count: int = NEXT_COUNT) -> list[dt.datetime]:
    """The next times after ``since``."""
    found: list[dt.datetime] = []
    moment: dt.datetime | None = since
    while len(found) < count and moment is not None:
        moment = plan.after(moment)
        if moment is not None:
            found.append(moment)
    return found
