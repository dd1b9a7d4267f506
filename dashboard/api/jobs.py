"""Runs of jobs: what is queued, running and over, what came of it; and their end before their time.

Exports are of people: each sees their own, an admin all.
"""

from __future__ import annotations

from typing import Any, Literal

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Router, Schema

from dashboard import permissions, run_logs
from dashboard.api.auth import actor_of, may, person
from dashboard.api.errors import NotFound
from dashboard.api.shapes import Done, Int64, Limit, PageNumber, moment_of, one_page, responses
from dashboard.models import JobRun
from dashboard.permissions import Permission
from dashboard.selectors.jobs import PRIVATE
from dashboard.services import audit
from dashboard.services import jobs as service

router = Router(tags=["Jobs"])
State = Literal[
    "", "queued", "running", "ok", "failed", "incomplete", "cancelled", "lost", "skipped"
]


class RunOut(Schema):
    id: int
    job: str
    target: str
    trigger: str
    requested_by: str | None
    state: str
    done: Int64
    total: Int64 | None
    progress_text: str
    error: str
    is_cancel_requested: bool
    queued_ms: Int64 | None
    queued_time: str | None
    started_ms: Int64 | None
    started_time: str | None
    finished_ms: Int64 | None
    finished_time: str | None


class RunDetailOut(RunOut):
    """``result``: by the kind of job; null until it is over, and where nothing came of it."""

    parameters: dict[str, Any]
    result: Any
    repeat_count: int


class RunLogOut(Schema):
    """Times in it are UTC."""

    log: str


class RunsOut(Schema):
    page: int
    has_next: bool
    runs: list[RunOut]


@router.get("/jobs", auth=may(Permission.SEE), response=responses(RunsOut))
def list_runs(  # type: ignore[no-untyped-def]
    request: HttpRequest, limit: Limit, page: PageNumber, job: str = "", state: State = ""
):
    """Newest first."""
    found = _visible(request)
    if job:
        found = found.filter(job=job)
    if state:
        found = found.filter(state=state)
    return one_page(found, page, limit, "runs", run_of_job)


@router.get("/jobs/{int:run_id}", auth=may(Permission.SEE), response=responses(RunDetailOut))
def get_run(request: HttpRequest, run_id: int):  # type: ignore[no-untyped-def]
    run = get_object_or_404(_visible(request), pk=run_id)
    return {
        **run_of_job(run),
        "parameters": run.parameters,
        "result": run.result,
        "repeat_count": run.repeat_count,
    }


@router.get("/jobs/{int:run_id}/log", auth=may(Permission.SEE), response=responses(RunLogOut))
def get_run_log(request: HttpRequest, run_id: int):  # type: ignore[no-untyped-def]
    """What the run has said so far; the middle of a long log is cut out."""
    text = run_logs.read(get_object_or_404(_visible(request), pk=run_id).pk)
    if text is None:
        raise NotFound("This run has no log here.")
    return {"log": text}


@router.post("/jobs/{int:run_id}/cancel", auth=may(Permission.SEE), response=responses(Done))
def cancel_run(request: HttpRequest, run_id: int):  # type: ignore[no-untyped-def]
    """One's own run, or with the right to run jobs any that one sees."""
    run = get_object_or_404(_visible(request), pk=run_id)
    if run.requested_by_id != person(request).pk:
        permissions.check(request.user, Permission.RUN_JOBS)
    with audit.change(actor_of(request), "job.cancel", f"{run.job} {run.pk}"):
        service.cancel(run=run)
    return {}


def _visible(request: HttpRequest) -> QuerySet[JobRun]:
    user = person(request)
    found = JobRun.objects.select_related("requested_by")
    if permissions.may(user, Permission.MANAGE_PEOPLE):
        return found
    return found.filter(~Q(job=PRIVATE) | Q(requested_by=user))


def run_of_job(run: JobRun) -> dict[str, Any]:
    """For ``RunOut``."""
    same = ("id", "job", "target", "trigger", "state", "done", "total", "progress_text", "error")
    return {
        **{name: getattr(run, name) for name in same},
        "requested_by": run.requested_by.username if run.requested_by is not None else None,
        "is_cancel_requested": run.is_cancel_requested,
        **moment_of("queued", run.queued_at),
        **moment_of("started", run.started_at),
        **moment_of("finished", run.finished_at),
    }
