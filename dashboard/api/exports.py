"""Exports of records: asked for, followed, fetched, cancelled, deleted, as on their page.

An export is a run of a job: how far it is stands in ``/jobs`` too. Everybody has their own, an admin sees all.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import Field

from dashboard.api.auth import actor_of, may, person
from dashboard.api.errors import Invalid, NotFound
from dashboard.api.jobs import RunOut, run_of_job
from dashboard.api.records import MAX_OFFSET, start_value
from dashboard.api.shapes import Done, Int64, responses, time_parameter, topic_state
from dashboard.downloads import send_file
from dashboard.forms.messages import is_open
from dashboard.models import JobRun
from dashboard.permissions import Permission, check
from dashboard.scan.requests import Range, Start, Wanted
from dashboard.services import exports

router = Router(tags=["Exports"])
RunId = Annotated[Int64, Field(ge=1, le=MAX_OFFSET)]
TYPES = {"ndjson": "application/x-ndjson", "csv": "text/csv"}


class ExportIn(Schema):
    """Which records, in the words of reading them (``/topics/{name}/records``)."""

    format: Literal["ndjson", "csv"] = "ndjson"
    start: Start = "oldest"
    offset: int | None = Field(None, ge=0, le=MAX_OFFSET)
    time: str = Field("", max_length=40, description="RFC 3339 or milliseconds.")
    last: int | None = Field(None, ge=1, le=1_000_000)
    since: str = Field("", max_length=40, description="Only stamped from then on.")
    until: str = Field("", max_length=40, description="Only stamped before.")
    partitions: list[Annotated[int, Field(ge=0, le=2**31 - 1)]] = Field([], max_length=1000)
    filter: str = Field("", max_length=2000, description="CEL, as on the page.")
    in_key: str = Field("", max_length=1000)
    in_value: str = Field("", max_length=1000)
    in_header: str = Field("", max_length=1000)


class ExportOut(RunOut):
    """``has_file``: it can be fetched; files are kept for a day. ``result`` is null until it is over."""

    topic: str
    format: Literal["ndjson", "csv"]
    has_file: bool
    result: dict[str, Any] | None


class ExportsOut(Schema):
    exports: list[ExportOut]


@router.post(
    "/topics/{name}/exports", auth=may(Permission.EXPORT_RECORDS), response=responses(ExportOut)
)
def start_export(request: HttpRequest, name: str, wanted: ExportIn):  # type: ignore[no-untyped-def]
    """Written by the worker; at most three of one's own at a time."""
    check(request.user, Permission.EXPORT_RECORDS, name)
    since_ms, until_ms = (
        time_parameter(which, getattr(wanted, which), "body") for which in ("since", "until")
    )
    if since_ms is not None and until_ms is not None and since_ms >= until_ms:
        raise Invalid("body.until", "The range of times ends before it begins.")
    topic_state(name)
    chosen = Range(
        name,
        tuple(sorted(set(wanted.partitions))),
        wanted.start,
        start_value(wanted.start, wanted.offset, wanted.time, wanted.last, "body"),
        None,
        "backward" if wanted.start == "newest" else "forward",
        since_ms,
        until_ms,
        is_open(until_ms),
    )
    try:
        run = exports.start(
            actor=actor_of(request),
            chosen=chosen,
            wanted=Wanted(wanted.filter, wanted.in_key, wanted.in_value, wanted.in_header),
            format_=wanted.format,
        )
    except exports.BadFilter as error:
        raise Invalid("body.filter", str(error)) from None
    return _told(run)


@router.get("/exports", auth=may(Permission.EXPORT_RECORDS), response=responses(ExportsOut))
def list_exports(request: HttpRequest):  # type: ignore[no-untyped-def]
    """The newest hundred."""
    return {"exports": [_told(run) for run in exports.visible_to(person(request))]}


@router.get(
    "/exports/{int:run_id}", auth=may(Permission.EXPORT_RECORDS), response=responses(ExportOut)
)
def get_export(request: HttpRequest, run_id: RunId):  # type: ignore[no-untyped-def]
    return _told(_run(request, run_id))


@router.get(
    "/exports/{int:run_id}/file",
    auth=may(Permission.EXPORT_RECORDS),
    response=responses(bytes),
    openapi_extra={
        "responses": {
            status: {"description": words, "content": {kind: {} for kind in TYPES.values()}}
            for status, words in ((200, "OK"), (206, "The range that was asked for"))
        }
    },
)
def get_export_file(request: HttpRequest, run_id: RunId):  # type: ignore[no-untyped-def]
    """The file, whole or a range of it (``Range``)."""
    run = _run(request, run_id)
    if run.state != JobRun.State.OK:
        raise NotFound(f"This export has no file: it is {run.state}.")
    path = exports.file_of(run)
    if not path.exists():
        raise NotFound("The file is gone: it was kept for its time, or made room.")
    exports.downloaded(actor=actor_of(request), run=run)
    name = f"{exports.topic_of(run)}-{run.pk}{path.suffix}"
    return send_file(request, path, name, TYPES[path.suffix.removeprefix(".")])


@router.delete(
    "/exports/{int:run_id}/file", auth=may(Permission.EXPORT_RECORDS), response=responses(Done)
)
def delete_export_file(request: HttpRequest, run_id: RunId):  # type: ignore[no-untyped-def]
    exports.delete_file(actor=actor_of(request), run=_run(request, run_id))
    return {}


@router.post(
    "/exports/{int:run_id}/cancel", auth=may(Permission.EXPORT_RECORDS), response=responses(Done)
)
def cancel_export(request: HttpRequest, run_id: RunId):  # type: ignore[no-untyped-def]
    exports.cancel(actor=actor_of(request), run=_run(request, run_id))
    return {}


def _run(request: HttpRequest, run_id: int) -> JobRun:
    run = exports.find(person(request), run_id)
    if run is None:
        raise NotFound("There is no such export, or it is not yours.")
    return run


def _told(run: JobRun) -> dict[str, Any]:
    return {
        **run_of_job(run),
        "topic": exports.topic_of(run),
        "format": run.parameters["request"]["format"],
        "has_file": run.state == JobRun.State.OK and exports.file_of(run).exists(),
        "result": run.result,
    }
