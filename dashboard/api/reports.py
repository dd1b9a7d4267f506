"""Reports: what is set up, their runs, and what came out. Who may not read one of a report's topics is
told that there is none, as on its pages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from django.urls import reverse
from ninja import Router, Schema, Status
from pydantic import Field

from dashboard import permissions
from dashboard.api.auth import actor_of, may, person
from dashboard.api.errors import NotFound
from dashboard.api.jobs import RunOut, run_of_job
from dashboard.api.shapes import (
    Done,
    Int64,
    Limit,
    PageNumber,
    moment_of,
    one_page,
    responses,
)
from dashboard.downloads import send_file
from dashboard.models import JobRun, Report
from dashboard.permissions import Permission
from dashboard.selectors import reports as selector
from dashboard.services import reports as service
from dashboard.spark import results

router = Router(tags=["Reports"])
FileName = Literal["result.csv", "result.parquet"]
RunId = Annotated[Int64, Field(ge=1, le=2**63 - 1)]


class ReportOut(Schema):
    """``schedule``: in words. ``last_run``: null where there was none."""

    name: str
    kind: str
    title: str
    topics: list[str]
    parameters: dict[str, Any]
    format: dict[str, Any]
    range: str
    is_incremental: bool
    timeout_s: int
    keep_runs: int
    result_topic: str
    schedule: str
    next_run_ms: Int64 | None
    next_run_time: str | None
    last_run: RunOut | None


class ReportsOut(Schema):
    reports: list[ReportOut]


class RangeOut(Schema):
    """Offsets from ``start`` to before ``end``."""

    topic: str
    partition: int
    start: Int64
    end: Int64


class ReportRunOut(RunOut):
    """``ranges``: what is read, known once the run has begun. ``gaps``: what was gone of it."""

    ranges: list[RangeOut]
    gaps: list[Any]
    records: Int64 | None
    not_parsed: Int64 | None
    tombstones: Int64 | None
    row_count: Int64 | None
    may_change_when_repeated: bool


class ReportRunsOut(Schema):
    page: int
    has_next: bool
    runs: list[RunOut]


class ColumnOut(Schema):
    """``type`` as Spark writes it."""

    name: str
    type: str


class FileOut(Schema):
    name: FileName
    size_bytes: Int64
    path: str = Field(description="Address on this host; takes Range.")


class ResultOut(Schema):
    """``rows``: the first 1,000, a list of values each; texts are cut after 1,000 characters, and the
    files hold all. Times are RFC 3339 in UTC, decimals and 64-bit texts are as in the CSV file."""

    run: int
    columns: list[ColumnOut]
    rows: list[list[Any]]
    row_count: Int64
    is_cut: bool = Field(description="There were more rows than the files hold.")
    files: list[FileOut]


class RunWanted(Schema):
    """``repeats``: a run whose offsets are read again."""

    repeats: RunId | None = None


@router.get("/reports", auth=may(Permission.SEE), response=responses(ReportsOut))
def list_reports(request: HttpRequest):  # type: ignore[no-untyped-def]
    """Those whose topics one may read."""
    return {"reports": [told(row) for row in selector.rows(person(request))]}


@router.get("/reports/{name}", auth=may(Permission.SEE), response=responses(ReportOut))
def get_report(request: HttpRequest, name: str):  # type: ignore[no-untyped-def]
    return told(selector.row_of(report_of(request, name)))


@router.delete("/reports/{name}", auth=may(Permission.CHANGE_REPORTS), response=responses(Done))
def delete_report(request: HttpRequest, name: str):  # type: ignore[no-untyped-def]
    """With its schedule and its results."""
    service.delete(actor=actor_of(request), report=report_of(request, name))
    return {}


@router.post(
    "/reports/{name}/forget", auth=may(Permission.CHANGE_REPORTS), response=responses(Done)
)
def forget_report_position(request: HttpRequest, name: str):  # type: ignore[no-untyped-def]
    """The next run of an incremental report begins where its range does."""
    service.forget_position(actor=actor_of(request), report=report_of(request, name))
    return {}


@router.get("/reports/{name}/runs", auth=may(Permission.SEE), response=responses(ReportRunsOut))
def list_report_runs(request: HttpRequest, name: str, limit: Limit, page: PageNumber):  # type: ignore[no-untyped-def]
    """Newest first."""
    found = selector.runs_of(report_of(request, name))
    return one_page(found, page, limit, "runs", run_of_job)


@router.post(
    "/reports/{name}/runs",
    auth=may(Permission.CHANGE_REPORTS),
    response=responses(ReportRunOut, 201),
)
def start_report(request: HttpRequest, name: str, wanted: RunWanted):  # type: ignore[no-untyped-def]
    """Asked for now, done by a worker: its state tells how far it is. One run of a report at a time."""
    report = report_of(request, name)
    repeated = _run(report, wanted.repeats) if wanted.repeats is not None else None
    run = service.start(actor=actor_of(request), report=report, repeated=repeated)
    return Status(201, _told_run(run))


@router.get(
    "/reports/{name}/runs/{int:run_id}", auth=may(Permission.SEE), response=responses(ReportRunOut)
)
def get_report_run(request: HttpRequest, name: str, run_id: int):  # type: ignore[no-untyped-def]
    """Its state, how far it is, and which offsets it reads."""
    return _told_run(_run(report_of(request, name), run_id))


@router.post(
    "/reports/{name}/runs/{int:run_id}/cancel",
    auth=may(Permission.CHANGE_REPORTS),
    response=responses(Done),
)
def cancel_report_run(request: HttpRequest, name: str, run_id: int):  # type: ignore[no-untyped-def]
    service.cancel(actor=actor_of(request), run=_run(report_of(request, name), run_id))
    return {}


@router.get(
    "/reports/{name}/runs/{int:run_id}/result",
    auth=may(Permission.SEE),
    response=responses(ResultOut),
)
def get_report_result(request: HttpRequest, name: str, run_id: int):  # type: ignore[no-untyped-def]
    """Of a run that is ok or incomplete; the newest ``keep_runs`` results are kept."""
    report = report_of(request, name)
    run = _with_result(report, run_id)
    document = results.rows_of(report.name, run.pk)
    if document is None or run.result is None:
        raise NotFound("The files of this result are gone.")
    return {
        "run": run.pk,
        **document,
        "row_count": run.result["row_count"],
        "is_cut": run.result["is_cut"],
        "files": _files(report, run),
    }


@router.get(
    "/reports/{name}/runs/{int:run_id}/files/{file}",
    auth=may(Permission.EXPORT_RECORDS),
    response=responses(bytes),
    openapi_extra={
        "responses": {
            200: {
                "description": "OK",
                "content": {kind: {} for kind in results.FILES.values()},
            }
        }
    },
)
def download_report_result(request: HttpRequest, name: str, run_id: int, file: FileName):  # type: ignore[no-untyped-def]
    """The whole result. The right to export the report's topics is needed; ``Range`` is understood."""
    report = report_of(request, name)
    run = _with_result(report, run_id)
    for topic in report.topic_names:
        permissions.check(request.user, Permission.EXPORT_RECORDS, topic)
    path = results.directory_of(report.name, run.pk) / file
    if not path.exists():
        raise NotFound("The files of this result are gone.")
    service.downloaded(actor=actor_of(request), run=run, path=path)
    name = f"{report.name}-{run.pk}{path.suffix}"
    return send_file(request, path, name, results.FILES[file])


def report_of(request: HttpRequest, name: str) -> Report:
    found = Report.objects.filter(name=name).first()
    if found is None or not selector.may_see(request.user, found):
        raise NotFound("There is no such report, or you may not read its topics.")
    return found


def _run(report: Report, run_id: int) -> JobRun:
    found = selector.runs_of(report).filter(pk=run_id).first()
    if found is None:
        raise NotFound("There is no such run of this report.")
    assert isinstance(found, JobRun)
    return found


def _with_result(report: Report, run_id: int) -> JobRun:
    run = _run(report, run_id)
    if run.state not in selector.WITH_RESULT:
        raise NotFound(f"This run has no result: it is {run.state}.")
    return run


def told(row: selector.ReportRow) -> dict[str, Any]:
    report = row.report
    same = (
        "name", "kind", "parameters", "format", "range", "is_incremental", "timeout_s", "keep_runs",
        "result_topic",
    )  # fmt: skip
    return {
        **{name: getattr(report, name) for name in same},
        "title": row.title,
        "topics": report.topic_names,
        "schedule": row.schedule,
        **moment_of("next_run", row.next_at),
        "last_run": run_of_job(row.last) if row.last is not None else None,
    }


def _told_run(run: JobRun) -> dict[str, Any]:
    result: dict[str, Any] = run.result or {}
    read = result.get("read") or {}
    return {
        **run_of_job(run),
        "ranges": [
            {"topic": topic, "partition": partition, "start": start, "end": end}
            for topic, partition, start, end, *_ in run.parameters.get("ranges", [])
        ],
        "gaps": result.get("gaps", []),
        **{name: read.get(name) for name in ("records", "not_parsed", "tombstones")},
        "row_count": result.get("row_count"),
        "may_change_when_repeated": bool(result.get("compacted")),
    }


def _files(report: Report, run: JobRun) -> list[dict[str, Any]]:
    result: dict[str, Any] = run.result or {}
    return [
        {
            "name": name,
            "size_bytes": result[name.removeprefix("result.") + "_bytes"],
            "path": reverse("api:download_report_result", args=[report.name, run.pk, name]),
        }
        for name in results.FILES
    ]
