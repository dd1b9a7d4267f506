"""Schedules and runs as the Jobs pages show them."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from cron_descriptor import Options, get_description
from django.core.paginator import Page, Paginator
from django.db.models import F, QuerySet, Window
from django.db.models.functions import RowNumber
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from dashboard import leases, room, run_logs
from dashboard.jobs import KINDS, JobKind, label_of
from dashboard.models import JobMark, JobRun
from dashboard.schedules import cron
from dashboard.schedules.plan import Plan, expression_of, following, interval, plan_of
from dashboard.services import schedules
from dashboard.templatetags.show import run_badge

PRIVATE: Final = "export"
"""Of people, with a page of its own that shows each their own."""
TICKS: Final = 16
PAGE_SIZE: Final = 50
SHOWN_RUNS: Final = 20
LOG_SHOWN: Final = 64 * 1024
"""Characters of a log on the page: its end."""
_SECONDS: Final = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}


class Tick(NamedTuple):
    run_id: int
    badge: str
    text: str


class ScheduleRow(NamedTuple):
    task: PeriodicTask
    kind: JobKind
    words: str
    zone: str
    """Empty for an interval."""
    next_times: list[dt.datetime]
    ticks: list[Tick]
    last: JobRun | None
    mark: JobMark | None
    trouble: str
    """Why it cannot be read."""


class Scheduler(NamedTuple):
    holder: str | None
    room: room.Room


def visible_runs() -> QuerySet[JobRun]:
    return JobRun.objects.exclude(job=PRIVATE).select_related("requested_by", "schedule")


def title_of(run: JobRun) -> str:
    return f"{label_of(run.job)} {run.target}".strip()


# -- schedules -------------------------------------------------------------------------------------


def scheduler() -> Scheduler:
    """Who watches the schedules; None: nobody."""
    return Scheduler(leases.holder_of(leases.SCHEDULER), room.look())


def queue() -> dict[str, int]:
    """How many runs wait and are under way; of exports too."""
    states = JobRun.objects.filter(state__in=JobRun.UNFINISHED).values_list("state", flat=True)
    found = list(states)
    return {"queued": found.count("queued"), "running": found.count("running")}


def schedule_rows() -> list[ScheduleRow]:
    tasks = list(schedules.ours().order_by("name"))
    runs = _last_runs(tasks)
    marks = {(mark.job, mark.target): mark for mark in JobMark.objects.all()}
    return [_row(task, runs[task.pk], marks) for task in tasks]


def schedule_row(task: PeriodicTask) -> ScheduleRow:
    marks = {(mark.job, mark.target): mark for mark in JobMark.objects.all()}
    return _row(task, _last_runs([task])[task.pk], marks)


def _last_runs(tasks: Iterable[PeriodicTask]) -> defaultdict[int, list[JobRun]]:
    """The newest of each, the oldest of them first."""
    place = Window(RowNumber(), partition_by=[F("schedule_id")], order_by=F("pk").desc())
    rows = (
        JobRun.objects.filter(schedule__in=[task.pk for task in tasks])
        .defer("result", "parameters")
        .annotate(place=place)
        .filter(place__lte=TICKS)
        .order_by("pk")
    )
    found: defaultdict[int, list[JobRun]] = defaultdict(list)
    for run in rows:
        found[run.schedule_id or 0].append(run)
    return found


def _row(
    task: PeriodicTask, runs: list[JobRun], marks: Mapping[tuple[str, str], JobMark]
) -> ScheduleRow:
    now = timezone.now()
    kind, words, zone, times, trouble = KINDS["clean-up"], "", "", [], ""
    mark = None
    try:
        call = schedules.call_of(task)
        kind = KINDS.get(call.job) or kind._replace(name=call.job, label=call.job, does="")
        mark = marks.get((call.job, call.target))
        words, zone = words_of(task)
        plan = plan_of(task)
        times = following(plan, _since(task, plan, now)) if task.enabled else []
    except ValueError as error:
        trouble = str(error)
    return ScheduleRow(
        task, kind, words, zone, times, [_tick(run) for run in runs],
        runs[-1] if runs else None, mark, trouble,
    )  # fmt: skip


def _since(task: PeriodicTask, plan: Plan, now: dt.datetime) -> dt.datetime:
    since = task.last_run_at or task.date_changed
    first = plan.after(since)
    # Overdue: it comes at the next look, and counts from then on.
    return since if first is not None and first > now else now


def _tick(run: JobRun) -> Tick:
    at = timezone.localtime(run.started_at or run.queued_at).strftime("%Y-%m-%d %H:%M:%S")
    said = f": {run.error_line}" if run.error else ""
    again = f", {run.repeat_count + 1} times" if run.repeat_count else ""
    return Tick(run.pk, run_badge(run), f"{run.state}{again}, {at}{said}"[:300])


def words_of(task: PeriodicTask) -> tuple[str, str]:
    """When, in words, and in which time zone."""
    if task.interval is not None:
        return interval_words(task.interval.every, task.interval.period), ""
    return cron_words(expression_of(task)), str(task.crontab.timezone)


def interval_words(every: int, period: str) -> str:
    """In the largest unit that it is whole of."""
    seconds = every * _SECONDS[period]
    unit = next(unit for unit in _SECONDS if seconds % _SECONDS[unit] == 0)
    count = seconds // _SECONDS[unit]
    return f"Every {unit[:-1]}" if count == 1 else f"Every {count} {unit}"


def cron_words(expression: str) -> str:
    options = Options()
    options.use_24hour_time_format = True
    try:
        return str(get_description(expression, options))
    except Exception:  # noqa: BLE001 - a library's words for what it cannot describe
        return expression


def preview(given: Mapping[str, str]) -> dict[str, Any]:
    """The next times of what stands in a form."""
    try:
        if given.get("kind") == "cron":
            zone = zoneinfo.ZoneInfo(given.get("zone") or "UTC")
            plan: Plan = cron.parse(given.get("expression", ""), zone)
            words = cron_words(" ".join(cron.split(given.get("expression", ""))))
        else:
            every, period = int(given.get("every") or 0), given.get("period", "minutes")
            if period not in _SECONDS or not 0 < every < 1_000_000:
                raise ValueError("How often?")
            plan, words = interval(every, period), interval_words(every, period)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as error:
        text = (
            str(error)
            if not isinstance(error, KeyError | OSError)
            else "There is no such time zone."
        )
        return {"trouble": text}
    return {"words": words, "times": following(plan, timezone.now())}


# -- runs ------------------------------------------------------------------------------------------


def runs_of(task: PeriodicTask) -> list[JobRun]:
    return list(visible_runs().filter(schedule=task)[:SHOWN_RUNS])


def run_page(given: Mapping[str, str]) -> Page[JobRun]:
    runs = visible_runs()
    if given.get("job") in KINDS:
        runs = runs.filter(job=given["job"])
    if given.get("state") in JobRun.State.values:
        runs = runs.filter(state=given["state"])
    if target := given.get("target", "").strip():
        runs = runs.filter(target__icontains=target[:300])
    return Paginator(runs, PAGE_SIZE).get_page(given.get("page"))


def run_detail(run: JobRun) -> dict[str, Any]:
    text = run_logs.read(run.pk)
    kind = KINDS.get(run.job)
    return {
        "run": run,
        "title": title_of(run),
        "badge": run_badge(run),
        "kind": kind,
        "result_template": kind.result_template if kind else "dashboard/jobs/result.html",
        "log": text[-LOG_SHOWN:] if text else "",
        "is_log_cut": text is not None and len(text) > LOG_SHOWN,
        "error_rest": run.error.partition("\n")[2].strip(),
        "per_mille": min(1000, run.done * 1000 // run.total) if run.total else 0,
        "waited_ms": _between(run.queued_at, run.started_at),
    }


def _between(begin: dt.datetime, end: dt.datetime | None) -> float | None:
    return None if end is None else (end - begin).total_seconds() * 1000
