"""The records of a topic: a scan, its progress, its stop, and the check of what is being typed."""

from __future__ import annotations

from typing import Any, Final

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_POST

from dashboard.forms.messages import MessageForm
from dashboard.models import User
from dashboard.permissions import Permission, check, may
from dashboard.scan.requests import CheckRequest, ScanRequest
from dashboard.scan_pool import Busy, Scan, checker, pool
from dashboard.selectors.messages import page_parameters, view_of
from dashboard.services import saved_filters
from dashboard.views.topics.frame import frame_of

FIRST_WAIT_S: Final = 0.4
"""Most pages are there by then, and come whole; the others come as they are read."""


@require_GET
def browse(request: HttpRequest, name: str) -> HttpResponse:
    check(request.user, Permission.READ_RECORDS, name)
    frame = frame_of(request, name, "topic_messages")
    form = MessageForm(request.GET)
    context: dict[str, Any] = {
        **frame.context,
        "form": form,
        "saved_place": "messages",
        "saved_topic": name,
        "saved_filters": saved_filters.offered(person(request), "messages", name),
    }
    if not form.is_valid():
        return render(request, "dashboard/messages/browse.html", context, status=422)
    try:
        scan = pool.start(form.scan(name), person(request).pk)
    except Busy as busy:
        context["busy"] = str(busy)
        return render(request, "dashboard/messages/browse.html", context, status=503)
    scan.finished.wait(FIRST_WAIT_S)
    context |= _shown(scan, request, form)
    return render(request, "dashboard/messages/browse.html", context)


@require_GET
def poll(request: HttpRequest, name: str, scan_id: str) -> HttpResponse:
    """What has come since: rows beyond those that the page has, and how far it is."""
    scan = _own_scan(request, name, scan_id)
    return _part(request, name, scan)


@require_POST
def stop(request: HttpRequest, name: str, scan_id: str) -> HttpResponse:
    scan = _own_scan(request, name, scan_id)
    pool.stop(scan)
    return _part(request, name, scan)


@require_GET
def try_filter(request: HttpRequest, name: str) -> HttpResponse:
    """Which of the records that a page has seen would match the expression as typed so far."""
    check(request.user, Permission.READ_RECORDS, name)
    text = request.GET.get("filter", "")
    context: dict[str, Any] = {}
    if text.strip():
        scan = pool.find(request.GET.get("scan", ""), person(request).pk)
        is_of_topic = (
            scan is not None
            and isinstance(scan.request, ScanRequest)
            and scan.request.range.topic == name
        )
        samples = tuple(scan.samples) if scan is not None and is_of_topic else ()
        try:
            tried = checker.ask(CheckRequest(text, samples), person(request).pk)
            context = {"tried": tried.result, "failure": tried.failure}
        except Busy:
            context = {"busy": True}
    return render(request, "dashboard/messages/filter_check.html", context)


def _own_scan(request: HttpRequest, name: str, scan_id: str) -> Scan:
    check(request.user, Permission.READ_RECORDS, name)
    scan = pool.find(scan_id, person(request).pk)
    if (
        scan is None
        or not isinstance(scan.request, ScanRequest)
        or scan.request.range.topic != name
    ):
        raise Http404("This search is over and forgotten: load the page again.")
    return scan


def _part(request: HttpRequest, name: str, scan: Scan) -> HttpResponse:
    form = MessageForm(request.GET)
    if not form.is_valid():
        raise Http404("The address of this search was changed: load the page again.")
    context = {"name": name, "is_part": True, **_shown(scan, request, form)}
    return render(request, "dashboard/messages/scan_part.html", context)


def _shown(scan: Scan, request: HttpRequest, form: MessageForm) -> dict[str, Any]:
    have = request.GET.get("have", "")
    parameters = page_parameters(request.GET.dict())
    view = view_of(
        scan,
        parameters,
        newest_first=form.is_newest_first,
        have=int(have) if have.isdecimal() and len(have) < 7 else 0,
    )
    chosen = scan.request
    assert isinstance(chosen, ScanRequest)
    polled = request.GET.copy()
    polled["have"] = str(view.row_count)
    return {
        "scan": scan,
        "view": view,
        "figures": scan.progress,
        "bounds": chosen.bounds,
        "mib": chosen.bounds.size_bytes // 1024**2,
        "poll_query": polled.urlencode(),
        "topic_name": chosen.range.topic,
        "may_export": may(request.user, Permission.EXPORT_RECORDS, chosen.range.topic),
        "can_produce": may(request.user, Permission.PRODUCE),
        "here": reverse("topic_messages", args=[chosen.range.topic]),
    }


def person(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user
