"""Runs: the list, one with its result and log, its end before its time."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from dashboard import run_logs
from dashboard.jobs import KINDS
from dashboard.models import JobRun
from dashboard.permissions import Permission, requires
from dashboard.selectors import jobs as selector
from dashboard.services import audit, jobs
from dashboard.views.parts import page_or_part


@require_safe
@requires(Permission.SEE)
def listing(request: HttpRequest) -> HttpResponse:
    context = {
        "page": selector.run_page(request.GET.dict()),
        "kinds": [kind for kind in KINDS.values() if kind.name != selector.PRIVATE],
        "states": JobRun.State.choices,
        "tab": "runs",
    }
    return render(request, "dashboard/jobs/runs.html", context)


@require_safe
@requires(Permission.SEE)
@never_cache
def detail(request: HttpRequest, run_id: int) -> HttpResponse:
    context = selector.run_detail(_run(run_id))
    return page_or_part(request, "jobs/run.html", "jobs/run_live.html", context)


@require_safe
@requires(Permission.SEE)
@never_cache
def log(request: HttpRequest, run_id: int) -> HttpResponse:
    text = run_logs.read(_run(run_id).pk)
    if text is None:
        raise Http404("This run has no log here.")
    return HttpResponse(text, content_type="text/plain; charset=utf-8")


@require_POST
@requires(Permission.RUN_JOBS)
def cancel(request: HttpRequest, run_id: int) -> HttpResponse:
    run = _run(run_id)
    with audit.change(audit.actor_of(request), "job.cancel", selector.title_of(run)):
        jobs.cancel(run=run)
    messages.success(request, "It ends at its next step.")
    return redirect("job_run", run_id)


def _run(run_id: int) -> JobRun:
    run = selector.visible_runs().filter(pk=run_id).first()
    if run is None:
        raise Http404("There is no such run.")
    return run
