"""Schedules: the list with last runs, made, changed, switched, run out of their turn."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from django_celery_beat.models import PeriodicTask

from dashboard.forms.jobs import ScheduleForm
from dashboard.jobs import KINDS
from dashboard.permissions import Permission, check, requires
from dashboard.selectors import jobs as selector
from dashboard.services import jobs, schedules
from dashboard.services.audit import actor_of
from dashboard.views.parts import page_or_part


@require_safe
@requires(Permission.SEE)
def listing(request: HttpRequest) -> HttpResponse:
    context = {
        "rows": selector.schedule_rows(),
        "scheduler": selector.scheduler(),
        "kinds": [kind for kind in KINDS.values() if kind.has_schedule and not kind.needs_target],
        "queue": selector.queue(),
        "tab": "jobs",
    }
    return page_or_part(request, "jobs/list.html", "jobs/rows.html", context)


@require_http_methods(["GET", "POST"])
@requires(Permission.RUN_JOBS)
@never_cache
def create(request: HttpRequest) -> HttpResponse:
    kind = KINDS.get(request.GET.get("job", ""))
    if kind is None or not kind.has_schedule or kind.needs_target:
        raise Http404("There is no such job, or it has no schedules.")
    form = ScheduleForm(request.POST or None, kind=kind)
    if request.method == "POST" and form.is_valid():
        try:
            task = schedules.save(actor=actor_of(request), asked=form.asked())
        except schedules.ScheduleRefused as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, f"Schedule {task.name} saved.")
            return redirect("schedule", task.pk)
    return render(request, "dashboard/jobs/schedule.html", {"form": form, "kind": kind})


@require_http_methods(["GET", "POST"])
@requires(Permission.SEE)
@never_cache
def change(request: HttpRequest, pk: int) -> HttpResponse:
    if request.method == "POST":
        check(request.user, Permission.RUN_JOBS)
    task = _task(pk)
    row = selector.schedule_row(task)
    form = ScheduleForm(request.POST or None, kind=row.kind, task=task)
    if request.method == "POST" and form.is_valid():
        try:
            schedules.save(actor=actor_of(request), asked=form.asked(), task=task)
        except schedules.ScheduleRefused as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, f"Schedule {task.name} saved.")
            return redirect("schedule", task.pk)
    context = {"form": form, "kind": row.kind, "row": row, "runs": selector.runs_of(task)}
    return render(request, "dashboard/jobs/schedule.html", context)


@require_safe
@requires(Permission.SEE)
def preview(request: HttpRequest) -> HttpResponse:
    """The next times of what stands in the form, and what is wrong with it."""
    context = selector.preview(request.GET.dict())
    return render(request, "dashboard/jobs/preview.html", context)


@require_POST
@requires(Permission.RUN_JOBS)
def run(request: HttpRequest, pk: int) -> HttpResponse:
    task = _task(pk)
    try:
        made = schedules.run_now(actor=actor_of(request), task=task)
    except jobs.AlreadyQueued:
        messages.warning(request, f"{task.name} is queued or running already.")
        return redirect("jobs")
    return redirect("job_run", made.pk)


@require_POST
@requires(Permission.RUN_JOBS)
def switch(request: HttpRequest, pk: int) -> HttpResponse:
    task = _task(pk)
    is_on = request.POST.get("is_on") == "1"
    schedules.switch(actor=actor_of(request), task=task, is_on=is_on)
    messages.success(request, f"Schedule {task.name} is {'on' if is_on else 'off'}.")
    return redirect("jobs")


@require_POST
@requires(Permission.RUN_JOBS)
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    task = _task(pk)
    try:
        schedules.delete(actor=actor_of(request), task=task)
    except schedules.ScheduleRefused as error:
        messages.error(request, str(error))
        return redirect("schedule", pk)
    messages.success(request, f"Schedule {task.name} deleted.")
    return redirect("jobs")


def _task(pk: int) -> PeriodicTask:
    task: PeriodicTask | None = schedules.ours().filter(pk=pk).first()
    if task is None:
        raise Http404("There is no such schedule.")
    return task
