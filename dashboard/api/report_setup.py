"""Reports are set up and changed: the same form and services as the pages'. Operations of the same router as
the other ones of reports: an address belongs to one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Schema, Status
from pydantic import Field

from dashboard import permissions
from dashboard.api.alert_rules import check_form
from dashboard.api.auth import actor_of, may
from dashboard.api.errors import Invalid, NotFound
from dashboard.api.reports import ReportOut, report_of, router, told
from dashboard.api.shapes import responses
from dashboard.forms.reports import MAX_TOPICS, PREFIX, ReportForm, schedule_initial
from dashboard.models import Report
from dashboard.permissions import Permission
from dashboard.selectors import reports as selector
from dashboard.services import reports as service
from dashboard.spark import catalog

__all__ = ["router"]
Texts = Annotated[dict[str, str], Field(max_length=50, description="By the kind's names.")]


class ParameterOut(Schema):
    name: str
    label: str
    default: str
    help: str


class ReportKindOut(Schema):
    """What can be set up. ``parameters``: what its reports ask for, besides what all ask for."""

    name: str
    title: str
    parameters: list[ParameterOut]


class ReportKindsOut(Schema):
    kinds: list[ReportKindOut]


class FormatWanted(Schema):
    """How values are written, and what is needed to read them: see docs/reports.md."""

    kind: Literal["none", "json", "csv", "regex", "avro"] = "json"
    schema_text: Annotated[str, Field(max_length=20_000)] = ""
    expression: Annotated[str, Field(max_length=2_000)] = ""
    separator: Annotated[str, Field(max_length=1)] = ","
    skip_bytes: Annotated[int, Field(ge=0, le=64)] = 0


class ReportChange(Schema):
    """What is left out stays; of a new report it is what its page begins with.

    ``schedule``: an interval, ``cron`` (with ``cron`` and ``zone``), or an empty text for none."""

    topics: (
        Annotated[
            list[Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]],
            Field(max_length=MAX_TOPICS),
        ]
        | None
    ) = None
    parameters: Texts | None = None
    format: FormatWanted | None = None
    range: Annotated[str, Field(max_length=100)] | None = None
    is_incremental: bool | None = None
    timeout_s: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    keep_runs: Annotated[int, Field(ge=1, le=2**15 - 1)] | None = None
    result_topic: Annotated[str, Field(max_length=249)] | None = None
    schedule: (
        Literal["", "5 minutes", "15 minutes", "1 hours", "6 hours", "1 days", "cron"] | None
    ) = None
    cron: Annotated[str, Field(max_length=100)] | None = None
    zone: Annotated[str, Field(max_length=64)] | None = None


class NewReport(ReportChange):
    kind: Annotated[str, Field(min_length=1, max_length=64)]
    name: Annotated[str, Field(min_length=1, max_length=100)]


@router.get("/report-kinds", auth=may(Permission.SEE), response=responses(ReportKindsOut))
def list_report_kinds(request: HttpRequest):  # type: ignore[no-untyped-def]
    """Those that come with Odradek, and the files of this node's own."""
    return {
        "kinds": [
            {
                "name": kind.name,
                "title": kind.title,
                "parameters": [
                    {
                        "name": one.name,
                        "label": one.label,
                        "default": one.default,
                        "help": one.help_text,
                    }
                    for one in kind.parameters
                ],
            }
            for kind in catalog.reports().values()
        ]
    }


@router.post("/reports", auth=may(Permission.CHANGE_REPORTS), response=responses(ReportOut, 201))
def create_report(request: HttpRequest, new: NewReport):  # type: ignore[no-untyped-def]
    """The right to read its topics is needed, and the right to produce where it writes to one."""
    if catalog.find(new.kind) is None:
        raise Invalid("body.kind", "There is no such kind of report.")
    return Status(201, _save(request, Report(kind=new.kind), new))


@router.patch("/reports/{name}", auth=may(Permission.CHANGE_REPORTS), response=responses(ReportOut))
def change_report(request: HttpRequest, name: str, wanted: ReportChange):  # type: ignore[no-untyped-def]
    """The next run is made so; what is kept of earlier ones stays."""
    return _save(request, report_of(request, name), wanted)


def _save(request: HttpRequest, report: Report, wanted: ReportChange) -> dict[str, Any]:
    """By the page's form, which knows what makes sense for the report's kind."""
    kind = catalog.find(report.kind)
    if kind is None:
        raise NotFound("The report uses a kind that is not here any more.")
    before = service.describe(report) if report.pk else None
    schedule = schedule_initial(service.schedule_of(report) if report.pk else None)
    form = ReportForm(None, instance=report, kind=kind, initial=schedule)
    present = {name: form.get_initial_for_field(one, name) for name, one in form.fields.items()}
    given = _given(wanted)
    for name in given:
        if name not in form.fields and name != "kind":
            raise Invalid(_where(name), "Reports of this kind have none.")
    form = ReportForm({**present, **given}, instance=report, kind=kind, initial=schedule)
    check_form(form, _where)
    for topic in form.instance.topic_names:
        permissions.check(request.user, Permission.READ_RECORDS, topic)
    if form.instance.result_topic:
        permissions.check(request.user, Permission.PRODUCE)
    made = service.save(actor=actor_of(request), report=form.instance, before=before)
    service.set_schedule(actor=actor_of(request), report=made, **form.schedule_fields())
    return told(selector.row_of(made))


def _given(wanted: ReportChange) -> dict[str, Any]:
    """By the names of the form's fields."""
    found = wanted.model_dump(exclude_none=True, exclude={"parameters", "format", "topics", "kind"})
    if wanted.topics is not None:
        found["topics"] = ", ".join(wanted.topics)
    for name, value in (wanted.parameters or {}).items():
        found[PREFIX + name] = value
    if wanted.format is not None:
        one = wanted.format.model_dump()
        one["schema"] = one.pop("schema_text")
        found |= {f"format_{name}": value for name, value in one.items()}
    return found


def _where(field: str) -> str:
    """Of the request, that a field of the form was taken from."""
    if field.startswith(PREFIX):
        return f"body.parameters.{field.removeprefix(PREFIX)}"
    if field.startswith("format_"):
        part = field.removeprefix("format_")
        return f"body.format.{'schema_text' if part == 'schema' else part}"
    return f"body.{field}".removesuffix(".__all__")
