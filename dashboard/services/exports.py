"""Exports of records: asked for, cancelled, downloaded, deleted; all of it audited."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Literal, get_args

from dashboard.forms.messages import cluster
from dashboard.jobs.export import BOUNDS, path_of
from dashboard.models import JobRun, User
from dashboard.permissions import Permission, may
from dashboard.scan.requests import CheckRequest, ExportRequest, Range, Wanted, from_dict
from dashboard.scan_pool import Busy, checker
from dashboard.services import audit, jobs
from dashboard.services.audit import Actor
from dashboard.services.reading import record_once

JOB: Final = "export"
MAX_UNFINISHED: Final = 3
"""Of one person."""

Format = Literal["ndjson", "csv"]


class TooMany(Exception):
    """The text is for the person."""


class BadFilter(ValueError):
    """The text is for the person."""


def start(*, actor: Actor, chosen: Range, wanted: Wanted, format_: Format) -> JobRun:
    """The right to export is the view's to check. Raises TooMany, BadFilter."""
    _check(wanted.expression, actor)
    unfinished = JobRun.objects.filter(
        job=JOB, requested_by=actor.user, state__in=JobRun.UNFINISHED
    ).count()
    if unfinished >= MAX_UNFINISHED:
        raise TooMany(f"{unfinished} of your exports are not finished yet; wait for one, or cancel")
    request = ExportRequest(cluster(), chosen, wanted, BOUNDS, "", format_, 0)
    parameters: dict[str, Any] = {"request": asdict(request)}
    # Where the cluster is, and its passwords, the worker knows by itself.
    parameters["request"].pop("cluster")
    with audit.change(actor, "records.export", chosen.topic) as change:
        run = jobs.enqueue(
            job=JOB,
            target=f"{chosen.topic}#{secrets.token_hex(4)}",
            parameters=parameters,
            trigger=JobRun.Trigger.PERSON,
            actor=actor,
        )
        change.after = {"run": run.pk, "format": format_, "wanted": asdict(wanted)}
    return run


def _check(expression: str, actor: Actor) -> None:
    """Rather now than as the end of a run."""
    if not expression.strip():
        return
    assert actor.user is not None
    try:
        tried = checker.ask(CheckRequest(expression), actor.user.pk)
    except Busy:
        return  # the run will tell
    if tried.failure:
        raise BadFilter(str(tried.failure.get("text", "This is no filter.")))


def visible_to(user: User) -> list[JobRun]:
    """One's own; an admin sees all."""
    runs = JobRun.objects.filter(job=JOB).select_related("requested_by")
    if not may(user, Permission.MANAGE_PEOPLE):
        runs = runs.filter(requested_by=user)
    return [run for run in runs[:100] if is_whole(run)]


def is_whole(run: JobRun) -> bool:
    """Whether its row says what it is an export of; one that this version cannot read does not."""
    asked = run.parameters.get("request")
    if not isinstance(asked, dict) or asked.get("format") not in get_args(Format):
        return False
    try:
        from_dict({**asked, "cluster": {"bootstrap": ""}})
    except (KeyError, TypeError, ValueError, AttributeError):
        return False
    return True


def find(user: User, run_id: int) -> JobRun | None:
    """None also for what somebody else's is, and for a topic that may be exported no longer."""
    run = JobRun.objects.filter(job=JOB, pk=run_id).first()
    if run is None or not is_whole(run):
        return None
    if not may(user, Permission.EXPORT_RECORDS, topic_of(run)):
        return None
    if run.requested_by_id != user.pk and not may(user, Permission.MANAGE_PEOPLE):
        return None
    return run


def topic_of(run: JobRun) -> str:
    return str(run.parameters["request"]["range"]["topic"])


def file_of(run: JobRun) -> Path:
    return path_of(run.pk, run.parameters["request"]["format"])


def downloaded(*, actor: Actor, run: JobRun) -> None:
    size = run.result["file_bytes"] if run.result else None
    record_once(actor, "export.download", f"{topic_of(run)}#{run.pk}", size_bytes=size)


def cancel(*, actor: Actor, run: JobRun) -> None:
    with audit.change(actor, "export.cancel", f"{topic_of(run)}#{run.pk}"):
        jobs.cancel(run=run)


def delete_file(*, actor: Actor, run: JobRun) -> None:
    with audit.change(actor, "export.delete", f"{topic_of(run)}#{run.pk}"):
        file_of(run).unlink(missing_ok=True)
