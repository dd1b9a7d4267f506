"""Deletes what the appliance has written about itself and nobody needs any more.

Each table has a bound by age and one by number; what is deleted is told in the run's result.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.apps import apps
from django.db.models import Model, QuerySet
from django.utils import timezone

from dashboard import export_files, run_logs
from dashboard.jobs import JobContext
from dashboard.models import AuditEntry, JobMark, JobRun, Report
from dashboard.spark import results

BATCH = 500
"""Rows of one transaction: others may write in between."""


class Bound(NamedTuple):
    days: int
    rows: int


RUNS = Bound(days=90, rows=20_000)
AUDIT = Bound(days=365, rows=500_000)
SIGN_INS = Bound(days=90, rows=50_000)


def clean_up(context: JobContext) -> dict[str, Any] | None:
    now = timezone.now()
    export_files.sweep()
    JobMark.objects.filter(finished_at__lt=now - timedelta(days=RUNS.days)).delete()
    finished = JobRun.objects.exclude(state__in=JobRun.UNFINISHED)
    deleted = {
        "runs": _apply(context, finished, "queued_at", RUNS, now),
        "audit": _apply(context, AuditEntry.objects.all(), "at", AUDIT, now),
        "sessions": _expired_sessions(context, now),
    }
    for name in ("accessattempt", "accesslog", "accessfailurelog"):
        if apps.is_installed("axes"):
            rows = apps.get_model("axes", name)._default_manager.all()
            deleted[name] = _apply(context, rows, "attempt_time", SIGN_INS, now)
    deleted["logs of runs"] = run_logs.sweep(
        frozenset(JobRun.objects.order_by().values_list("pk", flat=True))
    )
    deleted["results of reports"] = results.sweep(
        set(Report.objects.order_by().values_list("name", flat=True))
    )
    return {name: count for name, count in deleted.items() if count} or None


def _expired_sessions(context: JobContext, now: datetime) -> int:
    sessions = apps.get_model("sessions", "session")._default_manager
    return _delete(context, sessions.filter(expire_date__lt=now))


def _apply(
    context: JobContext, rows: QuerySet[Any], moment: str, bound: Bound, now: datetime
) -> int:
    old = rows.filter(**{f"{moment}__lt": now - timedelta(days=bound.days)})
    count = _delete(context, old)
    newest_first = rows.order_by(f"-{moment}", "-pk")
    last_kept = newest_first.values_list(moment, flat=True)[bound.rows - 1 : bound.rows].first()
    if last_kept is not None:
        count += _delete(context, rows.filter(**{f"{moment}__lt": last_kept}))
    return count


def _delete(context: JobContext, rows: QuerySet[Any]) -> int:
    model: type[Model] = rows.model
    count = 0
    while keys := list(rows.order_by().values_list("pk", flat=True)[:BATCH]):
        context.progress(count, text=f"deleting old rows of {model._meta.verbose_name_plural}")
        model._default_manager.filter(pk__in=keys).delete()
        count += len(keys)
    return count
