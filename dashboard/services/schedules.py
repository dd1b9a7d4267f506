"""Schedules of jobs: made, changed, and fired when they are due.

Rows of django-celery-beat hold them; what is due is decided here (``dashboard.schedules``), and a
run is asked for in the transaction that moves the row's ``last_run_at`` on by compare-and-set: a due
time leads to one run however many look, and to one after any stop. A schedule that is new, changed
or switched on counts from now.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import zoneinfo
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask, PeriodicTasks

from dashboard import room
from dashboard.jobs import KINDS, RETENTION, SCHEDULES
from dashboard.models import JobRun
from dashboard.schedules import cron
from dashboard.schedules.plan import due, expression_of, following, interval, plan_of
from dashboard.services import audit, jobs
from dashboard.services.audit import Actor

logger = logging.getLogger(__name__)

TASK: Final = "odradek.scheduled"
"""Stands in rows that are ours; rows with other tasks are left alone."""
OURS: Final = "odradek."
MAX_SCHEDULES: Final = 200
CRON_LOOKED_AT: Final = 60
"""Times of a cron expression whose distances are looked at."""
MAX_AHEAD: Final = dt.timedelta(minutes=1)
"""A time of the last run further in the future comes from a clock that was wrong."""


class ScheduleRefused(Exception):
    """The text says why, for the page."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a schedule asks for: an interval (``every`` and ``period``), or ``expression`` in ``zone``."""

    name: str
    job: str
    is_on: bool = True
    every: int | None = None
    period: str = IntervalSchedule.MINUTES
    expression: str = ""
    zone: str = "UTC"
    target: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """What a schedule's row runs."""

    job: str
    target: str
    parameters: dict[str, Any]


def call_of(task: PeriodicTask) -> Call:
    """Raises ValueError for a row that somebody else has spoilt."""
    try:
        found = json.loads(task.kwargs or "{}")
        return Call(
            str(found["job"]), str(found.get("target", "")), dict(found.get("parameters") or {})
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it does not say which job it runs: {error}") from None


def ours() -> Any:
    """The rows that are shown and fired."""
    return PeriodicTask.objects.filter(task=TASK).select_related("interval", "crontab")


# -- made and changed by people --------------------------------------------------------------------


def save(*, actor: Actor, asked: Asked, task: PeriodicTask | None = None) -> PeriodicTask:
    """Make or change one. Raises ScheduleRefused."""
    _check(asked, task)
    action = "schedule.change" if task is not None else "schedule.create"
    with audit.change(actor, action, asked.name) as change:
        change.before = describe(task) if task is not None else None
        row = task or PeriodicTask(task=TASK)
        row.name, row.enabled = asked.name, asked.is_on
        row.kwargs = json.dumps(
            {"job": asked.job, "target": asked.target, "parameters": asked.parameters}
        )
        with transaction.atomic():
            _set_times(row, asked)
            row.save()
            if row.enabled:
                PeriodicTask.objects.filter(pk=row.pk).update(last_run_at=timezone.now())
            _forget_unused_times()
        row.refresh_from_db()
        change.after = describe(row)
    return row


def _too_often(least_s: int) -> str:
    count, unit = (least_s // 60, "minute") if least_s % 60 == 0 else (least_s, "second")
    return f"Not more often than every {count} {unit}{'' if count == 1 else 's'}."


def _check(asked: Asked, task: PeriodicTask | None) -> None:
    kind = KINDS.get(asked.job)
    if kind is None or not kind.has_schedule:
        raise ScheduleRefused(f"There are no schedules of the job {asked.job!r}.")
    if kind.needs_target and not asked.target:
        raise ScheduleRefused(f"{kind.label}: its schedules are made where it is set up.")
    if task is None and ours().count() >= MAX_SCHEDULES:
        raise ScheduleRefused(f"There are {MAX_SCHEDULES} schedules already.")
    if task is not None and task.name in SCHEDULES and asked.name != task.name:
        raise ScheduleRefused("This schedule comes with Odradek and keeps its name.")
    same_name = PeriodicTask.objects.filter(name=asked.name)
    if same_name.exclude(pk=task.pk if task is not None else None).exists():
        raise ScheduleRefused("There is a schedule of this name already.")
    try:
        if asked.every is None:
            plan = cron.parse(asked.expression, zoneinfo.ZoneInfo(asked.zone))
            times = following(plan, timezone.now(), CRON_LOOKED_AT)
            least = dt.timedelta(seconds=kind.least_every_s)
            if any(later - at < least for at, later in pairwise(times)):
                raise ScheduleRefused(_too_often(kind.least_every_s))
        elif interval(asked.every, asked.period).every < dt.timedelta(seconds=kind.least_every_s):
            raise ScheduleRefused(_too_often(kind.least_every_s))
    except zoneinfo.ZoneInfoNotFoundError:
        raise ScheduleRefused(f"There is no time zone {asked.zone!r}.") from None
    except (ValueError, OverflowError) as error:
        raise ScheduleRefused(str(error)) from None


def _set_times(row: PeriodicTask, asked: Asked) -> None:
    row.interval = row.crontab = None
    if asked.every is not None:
        row.interval, _ = IntervalSchedule.objects.get_or_create(
            every=asked.every, period=asked.period
        )
        return
    minute, hour, day, month, weekday = cron.split(asked.expression)
    row.crontab, _ = CrontabSchedule.objects.get_or_create(
        minute=minute,
        hour=hour,
        day_of_month=day,
        month_of_year=month,
        day_of_week=weekday,
        timezone=asked.zone,
    )


def _forget_unused_times() -> None:
    for model in (IntervalSchedule, CrontabSchedule):
        model.objects.filter(periodictask__isnull=True).delete()


def switch(*, actor: Actor, task: PeriodicTask, is_on: bool) -> None:
    with audit.change(actor, "schedule.change", task.name) as change:
        change.before, change.after = {"is_on": task.enabled}, {"is_on": is_on}
        PeriodicTask.objects.filter(pk=task.pk).update(enabled=is_on, last_run_at=timezone.now())
        PeriodicTasks.update_changed()


def delete(*, actor: Actor, task: PeriodicTask) -> None:
    """Its runs stay. One that comes with Odradek would be made again: it is switched off instead."""
    if task.name in SCHEDULES:
        raise ScheduleRefused(
            "This schedule comes with Odradek: it can be switched off, not deleted."
        )
    with audit.change(actor, "schedule.delete", task.name) as change:
        change.before = describe(task)
        task.delete()
        _forget_unused_times()


def run_now(*, actor: Actor, task: PeriodicTask) -> JobRun:
    """Out of its turn, which stays as it is. Raises AlreadyQueued."""
    call = call_of(task)
    with audit.change(actor, "job.run", task.name) as change:
        run = jobs.enqueue(
            job=call.job,
            target=call.target,
            parameters=call.parameters,
            trigger=jobs.trigger_of(actor),
            actor=actor,
            schedule=task,
        )
        change.after = {"run": run.pk}
    return run


def describe(task: PeriodicTask) -> dict[str, Any]:
    """For the audit log."""
    found: dict[str, Any] = {"name": task.name, "is_on": task.enabled, **json.loads(task.kwargs)}
    if task.interval is not None:
        found |= {"every": task.interval.every, "period": task.interval.period}
    elif task.crontab is not None:
        found |= {"cron": expression_of(task), "zone": str(task.crontab.timezone)}
    return found


# -- fired by beat ---------------------------------------------------------------------------------


def make_missing() -> None:
    """Those that come with Odradek; what exists keeps what people made of it, being off included.
    Rows of ours whose job no version here knows are switched off: they could only fail."""
    for name, (job, every_s) in SCHEDULES.items():
        if not PeriodicTask.objects.filter(name=name).exists():
            every, _ = IntervalSchedule.objects.get_or_create(
                every=every_s, period=IntervalSchedule.SECONDS
            )
            PeriodicTask.objects.get_or_create(
                name=name,
                defaults={"task": TASK, "kwargs": json.dumps({"job": job}), "interval": every},
            )
    for task in PeriodicTask.objects.filter(task__startswith=OURS, enabled=True):
        reason = _orphaned(task)
        if reason:
            logger.warning("schedule %r is switched off: %s", task.name, reason)
            PeriodicTask.objects.filter(pk=task.pk).update(enabled=False)


def _orphaned(task: PeriodicTask) -> str:
    if task.task != TASK:
        return f"nothing is called {task.task!r} any more"
    try:
        job = call_of(task).job
    except ValueError as error:
        return str(error)
    return "" if job in KINDS else f"this version knows no job {job!r}"


def fire_due(*, now: dt.datetime | None = None) -> int:
    """Ask for every run that is due; how many. Without room for rows only retention, which makes some."""
    now = now or timezone.now()
    count = 0
    is_short = room.is_short()
    for task in ours().filter(enabled=True):
        try:
            if is_short and call_of(task).job != RETENTION:
                continue
            count += _fire(task, now)
        except ValueError as error:
            logger.warning("schedule %r cannot be read: %s", task.name, error)
            PeriodicTask.objects.filter(pk=task.pk).update(enabled=False)
    return count


def _fire(task: PeriodicTask, now: dt.datetime) -> bool:
    call = call_of(task)
    since = task.last_run_at or task.date_changed
    if since > now + MAX_AHEAD:
        _move_on(task, now)
        return False
    at = due(plan_of(task), since, now)
    if at is None:
        return False
    with transaction.atomic():
        if not _move_on(task, at):
            return False  # somebody else did, or it was changed just now
        run = _queue(task, call)
    if run is not None:
        jobs.ring(run)
    return run is not None


def _move_on(task: PeriodicTask, to: dt.datetime) -> bool:
    row = PeriodicTask.objects.filter(pk=task.pk, enabled=True)
    row = (
        row.filter(last_run_at__isnull=True)
        if task.last_run_at is None
        else row.filter(last_run_at=task.last_run_at)
    )
    changed: int = row.update(last_run_at=to, total_run_count=F("total_run_count") + 1)
    return changed > 0


def _queue(task: PeriodicTask, call: Call) -> JobRun | None:
    if call.job not in KINDS:
        raise ValueError(f"this version knows no job {call.job!r}")
    try:
        return jobs.queue(
            job=call.job,
            target=call.target,
            parameters=call.parameters,
            trigger=JobRun.Trigger.SCHEDULE,
            actor=audit.SYSTEM,
            schedule=task,
        )
    except jobs.AlreadyQueued:
        if not KINDS[call.job].is_quick:
            jobs.record_skipped(
                job=call.job, target=call.target, parameters=call.parameters, schedule=task
            )
        return None
