"""Schedules of jobs: the same forms and services as the pages'."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from django_celery_beat.models import PeriodicTask
from ninja import Router, Schema, Status
from pydantic import Field

from dashboard.api.auth import actor_of, may
from dashboard.api.errors import Invalid, NotFound
from dashboard.api.jobs import RunOut, run_of_job
from dashboard.api.shapes import Done, Milliseconds, Rfc3339, moment, responses
from dashboard.forms.jobs import MAX_TOPICS, ScheduleForm
from dashboard.jobs import KINDS
from dashboard.permissions import Permission
from dashboard.schedules.plan import expression_of
from dashboard.selectors import jobs as selector
from dashboard.services import schedules as service
from dashboard.times import to_ms

router = Router(tags=["Jobs"])
JobName = Annotated[
    str, Field(pattern=f"^({'|'.join(name for name, kind in KINDS.items() if kind.has_schedule)})$")
]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Period = Literal["seconds", "minutes", "hours", "days"]


class TimeOut(Schema):
    at_ms: Milliseconds
    at_time: Rfc3339


class ScheduleOut(Schema):
    """An interval (``every`` and ``period``), or ``cron`` in ``zone``; the others are null.

    ``next_times``: the next five, none while it is off. ``trouble``: why it cannot be read."""

    id: int
    name: str
    job: str
    target: str
    parameters: dict[str, Any]
    is_on: bool
    every: int | None
    period: str | None
    cron: str | None
    zone: str | None
    words: str
    next_times: list[TimeOut]
    last_run: RunOut | None
    trouble: str


class SchedulesOut(Schema):
    """``scheduler``: who watches them; null: nobody does."""

    scheduler: str | None
    schedules: list[ScheduleOut]


class ScheduleChange(Schema):
    """What is left out stays. ``every`` makes it an interval, ``cron`` the other kind."""

    name: Name | None = None
    is_on: bool | None = None
    every: Annotated[int, Field(ge=1, le=999_999)] | None = None
    period: Period | None = None
    cron: Annotated[str, Field(min_length=1, max_length=240)] | None = None
    zone: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    topics: (
        Annotated[
            list[Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$")]],
            Field(max_length=MAX_TOPICS, description="Of jobs that take some; empty: all."),
        ]
        | None
    ) = None


class NewSchedule(ScheduleChange):
    """An interval or a cron expression is needed."""

    job: JobName
    name: Name


@router.get("/schedules", auth=may(Permission.SEE), response=responses(SchedulesOut))
def list_schedules(request: HttpRequest):  # type: ignore[no-untyped-def]
    """By name."""
    return {
        "scheduler": selector.scheduler().holder,
        "schedules": [_told(row) for row in selector.schedule_rows()],
    }


@router.post("/schedules", auth=may(Permission.RUN_JOBS), response=responses(ScheduleOut, 201))
def create_schedule(request: HttpRequest, new: NewSchedule):  # type: ignore[no-untyped-def]
    """It counts from now. Those of reports are made with the report."""
    if new.every is None and new.cron is None:
        raise Invalid("body.every", "An interval or a cron expression is needed.")
    return Status(201, _save(request, new, new.job, None))


@router.get(
    "/schedules/{int:schedule_id}", auth=may(Permission.SEE), response=responses(ScheduleOut)
)
def get_schedule(request: HttpRequest, schedule_id: int):  # type: ignore[no-untyped-def]
    return _told(selector.schedule_row(_task(schedule_id)))


@router.patch(
    "/schedules/{int:schedule_id}", auth=may(Permission.RUN_JOBS), response=responses(ScheduleOut)
)
def change_schedule(request: HttpRequest, schedule_id: int, wanted: ScheduleChange):  # type: ignore[no-untyped-def]
    """It counts anew from now."""
    task = _task(schedule_id)
    return _save(request, wanted, _call(task).job, task)


@router.delete(
    "/schedules/{int:schedule_id}", auth=may(Permission.RUN_JOBS), response=responses(Done)
)
def delete_schedule(request: HttpRequest, schedule_id: int):  # type: ignore[no-untyped-def]
    """Its runs stay. One that comes with Odradek can only be switched off."""
    service.delete(actor=actor_of(request), task=_task(schedule_id))
    return {}


@router.post(
    "/schedules/{int:schedule_id}/runs",
    auth=may(Permission.RUN_JOBS),
    response=responses(RunOut, 201),
)
def run_schedule(request: HttpRequest, schedule_id: int):  # type: ignore[no-untyped-def]
    """Now, out of its turn, which stays as it is."""
    task = _task(schedule_id)
    _call(task)
    return Status(201, run_of_job(service.run_now(actor=actor_of(request), task=task)))


def _save(
    request: HttpRequest, wanted: ScheduleChange, job: str, task: PeriodicTask | None
) -> dict[str, Any]:
    """By the page's form, which knows what makes sense."""
    if wanted.every is not None and wanted.cron is not None:
        raise Invalid("body.cron", "Either an interval or a cron expression.")
    kind = KINDS.get(job)
    if kind is None:
        raise Invalid("path.schedule_id", f"This version knows no job {job!r}.")
    if wanted.topics and not kind.takes_topics:
        raise Invalid("body.topics", f"{kind.label} takes no topics.")
    form = ScheduleForm({**_present(kind, task), **_given(wanted)}, kind=kind, task=task)
    for name, errors in form.errors.items():
        where = {"expression": "cron", "__all__": "every"}.get(name, name)
        raise Invalid(f"body.{where}", " ".join(str(error) for error in errors))
    made = service.save(actor=actor_of(request), asked=form.asked(), task=task)
    return _told(selector.schedule_row(made))


def _present(kind: Any, task: PeriodicTask | None) -> dict[str, Any]:
    """What stands in the form before anything is changed."""
    form = ScheduleForm(None, kind=kind, task=task)
    return {name: form.get_initial_for_field(field, name) for name, field in form.fields.items()}


def _given(wanted: ScheduleChange) -> dict[str, Any]:
    same = wanted.model_dump(
        include={"name", "is_on", "every", "period", "zone"}, exclude_none=True
    )
    if wanted.cron is not None:
        same |= {"kind": "cron", "expression": wanted.cron}
    elif wanted.every is not None:
        same["kind"] = "interval"
    return same | ({} if wanted.topics is None else {"topics": " ".join(wanted.topics)})


def _task(schedule_id: int) -> PeriodicTask:
    task: PeriodicTask | None = service.ours().filter(pk=schedule_id).first()
    if task is None:
        raise NotFound("There is no such schedule.")
    return task


def _call(task: PeriodicTask) -> service.Call:
    try:
        return service.call_of(task)
    except ValueError as error:
        raise Invalid("path.schedule_id", f"This schedule cannot be read: {error}") from None


def _told(row: selector.ScheduleRow) -> dict[str, Any]:
    task = row.task
    is_cron = task.crontab is not None
    try:
        call = service.call_of(task)
    except ValueError:
        call = service.Call("", "", {})
    return {
        "id": task.pk,
        "name": task.name,
        "job": call.job,
        "target": call.target,
        "parameters": call.parameters,
        "is_on": task.enabled,
        "every": task.interval.every if task.interval is not None else None,
        "period": task.interval.period if task.interval is not None else None,
        "cron": expression_of(task) if is_cron else None,
        "zone": str(task.crontab.timezone) if is_cron else None,
        "words": row.words,
        "next_times": [moment("at", to_ms(at)) for at in row.next_times],
        "last_run": run_of_job(row.last) if row.last is not None else None,
        "trouble": row.trouble,
    }
