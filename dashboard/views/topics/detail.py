"""Tabs of one topic that only show: partitions, groups, and how clients connect."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from dashboard.models import User
from dashboard.selectors.charts import chart, chosen_range, range_choices
from dashboard.selectors.topic_detail import groups_of, lagging_of, logs_of
from dashboard.services.favourites import set_favourite
from dashboard.snippets import snippets_of
from dashboard.views.parts import page_or_part, wants_part
from dashboard.views.topics.frame import frame_of

PARTITIONS_PER_PAGE = 100


@require_safe
def partitions(request: HttpRequest, name: str) -> HttpResponse:
    frame = frame_of(request, name, "topic")
    rows = frame.topic.partitions if frame.topic else ()
    page = Paginator(rows, PARTITIONS_PER_PAGE).get_page(request.GET.get("page"))
    logs = logs_of(name, frame.snapshot.cluster_id if frame.snapshot else None)
    lagging = lagging_of(frame.snapshot, name) if frame.snapshot else {}
    chosen = chosen_range(request)
    context = {
        **frame.context,
        "page": page,
        "rows": [
            (each, (logs.value or {}).get(each.index), lagging.get(each.index)) for each in page
        ],
        "logs": logs,
        "ranges": range_choices(chosen),
        "charts": [
            chart("Records in", [f"topic.records_in:{name}"], chosen),
            chart(
                "Bytes in and out", [f"topic.bytes_in:{name}", f"topic.bytes_out:{name}"], chosen
            ),
            chart("Size, all replicas", [f"topic.size:{name}"], chosen),
        ],
    }
    return page_or_part(request, "topics/partitions.html", "topics/partitions_part.html", context)


@require_POST
def favourite(request: HttpRequest, name: str) -> HttpResponse:
    """Keep the topic at hand, or no more; the button alone for htmx."""
    user = request.user
    assert isinstance(user, User)
    is_favourite = request.POST.get("is_favourite") == "1"
    set_favourite(user=user, topic=name, is_favourite=is_favourite)
    if not wants_part(request):
        return redirect("topic", name)
    context = {"name": name, "is_favourite": is_favourite}
    return render(request, "dashboard/topics/favourite.html", context)


@require_safe
def groups(request: HttpRequest, name: str) -> HttpResponse:
    frame = frame_of(request, name, "topic_groups")
    found = groups_of(frame.snapshot, name) if frame.snapshot else []
    return render(request, "dashboard/topics/groups.html", {**frame.context, "groups": found})


@require_safe
def snippets(request: HttpRequest, name: str) -> HttpResponse:
    frame = frame_of(request, name, "topic_snippets")
    found = snippets_of(frame.snapshot, name)
    return render(request, "dashboard/topics/snippets.html", {**frame.context, "found": found})
