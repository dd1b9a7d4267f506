"""Reports: set up, changed, scheduled, run, deleted; all of it audited."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any, Final

from django.db import IntegrityError, transaction
from django_celery_beat.models import PeriodicTask

from dashboard.jobs import REPORT
from dashboard.models import JobRun, Report
from dashboard.services import audit, jobs, schedules
from dashboard.services.audit import Actor
from dashboard.services.reading import record_once
from dashboard.spark import results

MAX_REPORTS: Final = 200
SCHEDULE_PREFIX: Final = "Report "


class ReportRefused(Exception):
    """The text says why, for the page."""


def describe(report: Report) -> dict[str, Any]:
    """For the audit log."""
    return {
        name: getattr(report, name)
        for name in (
            "kind", "topics", "parameters", "format", "range", "is_incremental", "timeout_s",
            "keep_runs", "result_topic",
        )
    }  # fmt: skip


def save(*, actor: Actor, report: Report, before: dict[str, Any] | None = None) -> Report:
    """Make or change one; its fields were checked by a form. Raises ReportRefused."""
    is_new = report.pk is None
    if is_new and Report.objects.count() >= MAX_REPORTS:
        raise ReportRefused(f"There are {MAX_REPORTS} reports already.")
    with audit.change(actor, "report.create" if is_new else "report.change", report.name) as change:
        change.before = before
        if is_new:
            report.created_by = actor.user
        try:
            with transaction.atomic():
                report.save()
        except IntegrityError:
            raise ReportRefused("There is a report of this name already.") from None
        change.after = describe(report)
    return report


def schedule_of(report: Report) -> PeriodicTask | None:
    found: PeriodicTask | None = schedules.ours().filter(name=SCHEDULE_PREFIX + report.name).first()
    return found


def set_schedule(
    *,
    actor: Actor,
    report: Report,
    every: int | None = None,
    period: str = "minutes",
    expression: str = "",
    zone: str = "UTC",
) -> None:
    """An interval, or a cron expression; neither: none. Raises schedules.ScheduleRefused."""
    task = schedule_of(report)
    if every is None and not expression:
        if task is not None:
            schedules.delete(actor=actor, task=task)
        return
    asked = schedules.Asked(
        name=SCHEDULE_PREFIX + report.name,
        job=REPORT,
        every=every,
        period=period,
        expression=expression,
        zone=zone,
        target=report.name,
    )
    schedules.save(actor=actor, asked=asked, task=task)


def start(*, actor: Actor, report: Report, repeated: JobRun | None = None) -> JobRun:
    """A run now; ``repeated``: of the same offsets as that one. Raises jobs.AlreadyQueued."""
    parameters: dict[str, Any] = {}
    if repeated is not None and "ranges" in repeated.parameters:
        parameters = {"ranges": repeated.parameters["ranges"], "repeats": repeated.pk}
    with audit.change(actor, "report.run", report.name) as change:
        run = jobs.enqueue(
            job=REPORT,
            target=report.name,
            parameters=parameters,
            trigger=jobs.trigger_of(actor),
            actor=actor,
        )
        change.after = {"run": run.pk, **({"repeats": repeated.pk} if repeated else {})}
    return run


def cancel(*, actor: Actor, run: JobRun) -> None:
    with audit.change(actor, "report.cancel", f"{run.target}#{run.pk}"):
        jobs.cancel(run=run)


def downloaded(*, actor: Actor, run: JobRun, path: Path) -> None:
    """A file of its result is being sent, whole or in ranges."""
    with contextlib.suppress(FileNotFoundError):
        size = path.stat().st_size
        record_once(actor, "report.download", f"{run.target}#{run.pk}", size_bytes=size)


def forget_position(*, actor: Actor, report: Report) -> None:
    """The next incremental run begins where the range does."""
    with audit.change(actor, "report.forget_position", report.name) as change:
        change.before = report.position
        Report.objects.filter(pk=report.pk).update(position={})


def delete(*, actor: Actor, report: Report) -> None:
    """With its schedule and its results; rows of its runs stay. Raises ReportRefused."""
    if JobRun.objects.filter(job=REPORT, target=report.name, state__in=JobRun.UNFINISHED).exists():
        raise ReportRefused("It runs just now: cancel the run first.")
    with audit.change(actor, "report.delete", report.name) as change:
        change.before = describe(report)
        set_schedule(actor=actor, report=report)
        report.delete()
        shutil.rmtree(results.root() / report.name, ignore_errors=True)
