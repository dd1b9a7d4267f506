"""One record by its place, with its neighbours; its key or value as a file."""

from __future__ import annotations

from typing import Any, Final, Literal, cast

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_safe

from dashboard.downloads import send_file
from dashboard.forms.messages import VIEWS
from dashboard.permissions import Permission, check, may
from dashboard.scan.requests import View
from dashboard.scan_pool import Busy, Scan
from dashboard.services.audit import actor_of
from dashboard.services.reading import raw_file, read_record
from dashboard.snapshots import shelf
from dashboard.views.topics.frame import frame_of

MAX_OFFSET: Final = 2**63 - 1


@require_GET
def record(request: HttpRequest, name: str, partition: int, offset: int) -> HttpResponse:
    check(request.user, Permission.READ_RECORDS, name)
    frame = frame_of(request, name, "topic_messages")
    _check_place(partition, offset)
    view = request.GET.get("view", "auto")
    is_whole = request.GET.get("all") == "1"
    context: dict[str, Any] = {
        **frame.context,
        "partition": partition,
        "offset": str(offset),
        "views": VIEWS,
        "view": view if view in dict(VIEWS) else "auto",
        "is_whole": is_whole,
        "can_produce": may(request.user, Permission.PRODUCE),
    }
    status = 200
    if (since_ms := _silent_since_ms(name, partition)) is not None:
        context["silent_since_ms"] = since_ms
        return render(request, "dashboard/messages/record.html", context)
    try:
        scan = read_record(
            actor=actor_of(request),
            topic=name,
            partition=partition,
            offset=offset,
            view=cast(View, context["view"]),
            is_whole=is_whole,
        )
        context |= {"row": scan.rows[0] if scan.rows else None, "scan": scan}
        status = 200 if scan.rows else 404 if scan.state == "done" else 503
    except Busy as busy:
        context["busy"], status = str(busy), 503
    return render(request, "dashboard/messages/record.html", context, status=status)


@require_safe
def raw(request: HttpRequest, name: str, partition: int, offset: int) -> HttpResponseBase:
    check(request.user, Permission.READ_RECORDS, name)
    _check_place(partition, offset)
    part: Literal["key", "value"] = "key" if request.GET.get("part") == "key" else "value"
    try:
        found = raw_file(
            actor=actor_of(request), topic=name, partition=partition, offset=offset, part=part
        )
    except Busy as busy:
        return HttpResponse(str(busy), status=503, content_type="text/plain")
    if isinstance(found, Scan):
        words = found.failure.get("text") or f"There is no {part} at this place."
        raise Http404(str(words))
    return send_file(request, found, f"{name}-{partition}-{offset}-{part}.bin")


def _silent_since_ms(name: str, partition: int) -> int | None:
    """Whoever leads it does not answer: reading would wait as long as it may for nothing."""
    snapshot = shelf.peek()
    topic = snapshot.topics.get(name) if snapshot is not None else None
    if topic is None or partition >= len(topic.partitions):
        return None
    return topic.partitions[partition].stale_since_ms or topic.stale_since_ms


def _check_place(partition: int, offset: int) -> None:
    if partition > 2**31 - 1 or offset > MAX_OFFSET:
        raise Http404("There is no such place in a topic.")
