"""Reports: what is set up, their runs, and what came out."""

from __future__ import annotations

from typing import Any, cast

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import (
    require_GET,
    require_http_methods,
    require_POST,
    require_safe,
)

from dashboard import run_logs
from dashboard.downloads import send_file
from dashboard.forms.reports import ReportForm, schedule_initial
from dashboard.models import JobRun, Report, User
from dashboard.permissions import Permission, check, requires
from dashboard.selectors import reports as selector
from dashboard.services import jobs, reports, schedules
from dashboard.services.audit import actor_of
from dashboard.spark import catalog, results
from dashboard.views.parts import wants_part
from spark_tasks.report import Report as Kind

LOG_CHARACTERS = 20_000


@require_GET
@requires(Permission.SEE)
def listing(request: HttpRequest) -> HttpResponse:
    rows = selector.rows(cast(User, request.user))
    context = {
        "rows": rows,
        "is_busy": any(row.last is not None and not row.last.is_finished for row in rows),
    }
    if wants_part(request):
        return render(request, "dashboard/reports/rows.html", context)
    kinds, refused = catalog.reports(), catalog.user_reports()[1]
    context |= {"kinds": kinds.values(), "refused": refused, "missing": results.home().missing()}
    return render(request, "dashboard/reports/list.html", context)


@require_http_methods(["GET", "POST"])
@requires(Permission.CHANGE_REPORTS)
def create(request: HttpRequest) -> HttpResponse:
    kind = catalog.find(request.GET.get("kind", ""))
    if kind is None:
        raise Http404("There is no such kind of report.")
    report = Report(kind=kind.name, topics=request.GET.get("topic", ""))
    return _edit(request, report, kind)


@require_http_methods(["GET", "POST"])
@requires(Permission.CHANGE_REPORTS)
def change(request: HttpRequest, name: str) -> HttpResponse:
    report = _report(request, name)
    kind = catalog.find(report.kind)
    if kind is None:
        raise Http404("The report uses a kind that is not here any more.")
    return _edit(request, report, kind)


def _edit(request: HttpRequest, report: Report, kind: Kind) -> HttpResponse:
    before = reports.describe(report) if report.pk else None
    schedule = schedule_initial(reports.schedule_of(report) if report.pk else None)
    form = ReportForm(request.POST or None, instance=report, kind=kind, initial=schedule)
    if request.method == "POST" and form.is_valid():
        for topic in form.instance.topic_names:
            check(request.user, Permission.READ_RECORDS, topic)
        if form.instance.result_topic:
            check(request.user, Permission.PRODUCE)
        try:
            reports.save(actor=actor_of(request), report=form.instance, before=before)
            reports.set_schedule(
                actor=actor_of(request), report=form.instance, **form.schedule_fields()
            )
        except (reports.ReportRefused, schedules.ScheduleRefused) as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, f"Report {report.name} saved.")
            return redirect("report", form.instance.name)
    context = {"form": form, "report": report, "kind": kind}
    return render(request, "dashboard/reports/form.html", context)


@require_GET
def detail(request: HttpRequest, name: str) -> HttpResponse:
    report = _report(request, name)
    page = selector.history(report, request.GET.get("page"))
    newest = selector.runs_of(report).filter(state__in=selector.WITH_RESULT).first()
    context = {
        "row": selector.row_of(report),
        "report": report,
        "kind": catalog.find(report.kind),
        "page": page,
        "runs": [(run, selector.badge(run)) for run in page],
        "is_busy": any(not run.is_finished for run in page),
        "missing": results.home().missing(),
        **_result(report, newest),
    }
    if wants_part(request):
        return render(request, "dashboard/reports/history.html", context)
    return render(request, "dashboard/reports/detail.html", context)


def _result(report: Report, run: JobRun | None) -> dict[str, Any]:
    kind = catalog.find(report.kind)
    if run is None:
        return {"shown_run": None, "table": None}
    return {
        "shown_run": run,
        "table": selector.result_table(report, run, kind),
        "has_chart": kind is not None and kind.chart.kind == "line",
    }


@require_GET
def run(request: HttpRequest, name: str, run_id: int) -> HttpResponse:
    report = _report(request, name)
    found = _run(report, run_id)
    log = run_logs.read(run_id) or ""
    line, _, rest = found.error.partition("\n")
    context = {
        "report": report,
        "kind": catalog.find(report.kind),
        "run": found,
        "badge": selector.badge(found),
        "error": line,
        "advice": rest.partition("\n\n")[0].strip(),
        "log": log[-LOG_CHARACTERS:],
        "ranges": found.parameters.get("ranges", [])[:200],
        "range_count": len(found.parameters.get("ranges", [])),
        **_result(report, found if found.state in selector.WITH_RESULT else None),
    }
    return render(request, "dashboard/reports/run.html", context)


@require_GET
def chart(request: HttpRequest, name: str, run_id: int) -> JsonResponse:
    report = _report(request, name)
    found = _run(report, run_id)
    kind = catalog.find(report.kind)
    if kind is None:
        raise Http404("The report uses a kind that is not here any more.")
    return JsonResponse(
        selector.chart_data(report, found, kind), headers={"Cache-Control": "no-store"}
    )


@require_safe
def download(request: HttpRequest, name: str, run_id: int, file: str) -> HttpResponseBase:
    report = _report(request, name)
    found = _run(report, run_id)
    if file not in results.FILES or found.state not in selector.WITH_RESULT:
        raise Http404("There is no such file.")
    for topic in report.topic_names:
        check(request.user, Permission.EXPORT_RECORDS, topic)
    path = results.directory_of(report.name, run_id) / file
    if path.exists():
        reports.downloaded(actor=actor_of(request), run=found, path=path)
    return send_file(request, path, f"{name}-{run_id}{path.suffix}", results.FILES[file])


@require_POST
@requires(Permission.CHANGE_REPORTS)
def start(request: HttpRequest, name: str) -> HttpResponse:
    report = _report(request, name)
    repeats = request.POST.get("repeats", "")
    repeated = _run(report, int(repeats)) if repeats.isdecimal() and len(repeats) < 15 else None
    try:
        reports.start(actor=actor_of(request), report=report, repeated=repeated)
    except jobs.AlreadyQueued:
        messages.error(request, "A run of this report is not over yet.")
    else:
        messages.success(request, "The run waits for its turn; starting Spark takes some seconds.")
    return redirect("report", name)


@require_POST
@requires(Permission.CHANGE_REPORTS)
def cancel(request: HttpRequest, name: str, run_id: int) -> HttpResponse:
    report = _report(request, name)
    reports.cancel(actor=actor_of(request), run=_run(report, run_id))
    return redirect("report", name)


@require_POST
@requires(Permission.CHANGE_REPORTS)
def forget(request: HttpRequest, name: str) -> HttpResponse:
    reports.forget_position(actor=actor_of(request), report=_report(request, name))
    messages.success(request, "The next run begins where the range does.")
    return redirect("report", name)


@require_POST
@requires(Permission.CHANGE_REPORTS)
def delete(request: HttpRequest, name: str) -> HttpResponse:
    try:
        reports.delete(actor=actor_of(request), report=_report(request, name))
    except reports.ReportRefused as error:
        messages.error(request, str(error))
        return redirect("report", name)
    messages.success(request, f"Report {name} deleted.")
    return redirect("reports")


def _report(request: HttpRequest, name: str) -> Report:
    """Raises Http404 also for one whose topics this user may not read."""
    check(request.user, Permission.SEE)
    report = Report.objects.filter(name=name).first()
    if report is None or not selector.may_see(request.user, report):
        raise Http404("There is no such report, or you may not read its topics.")
    return report


def _run(report: Report, run_id: int) -> JobRun:
    found = selector.runs_of(report).filter(pk=run_id).first()
    if found is None:
        raise Http404("There is no such run of this report.")
    assert isinstance(found, JobRun)
    return found
