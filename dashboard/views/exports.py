"""Exports: asked for on a page of records, followed and downloaded here."""

from __future__ import annotations

from typing import cast, get_args

from django.contrib import messages
from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_GET, require_POST, require_safe

from dashboard.downloads import send_file
from dashboard.forms.messages import MessageForm
from dashboard.models import JobRun
from dashboard.permissions import Permission, check, requires
from dashboard.selectors.exports import export_rows, held_bytes
from dashboard.services import exports
from dashboard.services.audit import actor_of
from dashboard.views.messages.browsing import person
from dashboard.views.parts import page_or_part
from dashboard.views.topics.frame import frame_of


@require_GET
@requires(Permission.EXPORT_RECORDS)
def listing(request: HttpRequest) -> HttpResponse:
    rows = export_rows(person(request))
    held, most = held_bytes()
    context = {
        "rows": rows,
        "is_busy": any(not row.run.is_finished for row in rows),
        "held_bytes": held,
        "most_bytes": most,
    }
    return page_or_part(request, "exports/list.html", "exports/rows.html", context)


@require_POST
def create(request: HttpRequest, name: str) -> HttpResponse:
    """The page's own address says which records: its query stands in this one's."""
    check(request.user, Permission.EXPORT_RECORDS, name)
    frame_of(request, name, "topic_messages")
    form = MessageForm(request.GET)
    format_ = request.POST.get("format", "ndjson")
    if format_ not in get_args(exports.Format):
        raise BadRequest(f"An export is one of {', '.join(get_args(exports.Format))}.")
    if not form.is_valid():
        said = "; ".join(f"{field}: {errors[0]}" for field, errors in form.errors.items())
        raise BadRequest(f"The address says which records, and makes no sense: {said}.")
    try:
        exports.start(
            actor=actor_of(request),
            chosen=form.range(name),
            wanted=form.wanted(),
            format_=cast(exports.Format, format_),
        )
    except exports.TooMany as error:
        messages.error(request, f"{error}.")
    except exports.BadFilter as error:
        raise BadRequest(f"The filter is not understood: {error}") from None
    return redirect("exports")


@require_safe
def download(request: HttpRequest, run_id: int) -> HttpResponseBase:
    run = _run(request, run_id)
    if run.state != JobRun.State.OK:
        raise Http404("This export has no file.")
    path = exports.file_of(run)
    if path.exists():
        exports.downloaded(actor=actor_of(request), run=run)
    name = f"{exports.topic_of(run)}-{run.pk}{path.suffix}"
    content_type = "text/csv" if path.suffix == ".csv" else "application/x-ndjson"
    return send_file(request, path, name, content_type)


@require_POST
def cancel(request: HttpRequest, run_id: int) -> HttpResponse:
    exports.cancel(actor=actor_of(request), run=_run(request, run_id))
    return redirect("exports")


@require_POST
def delete(request: HttpRequest, run_id: int) -> HttpResponse:
    exports.delete_file(actor=actor_of(request), run=_run(request, run_id))
    messages.success(request, "The file was deleted.")
    return redirect("exports")


def _run(request: HttpRequest, run_id: int) -> JobRun:
    check(request.user, Permission.EXPORT_RECORDS)
    run = exports.find(person(request), run_id)
    if run is None:
        raise Http404("There is no such export, or it is not yours.")
    return run
