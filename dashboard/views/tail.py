"""The live tail's page; its records come over the WebSocket (``dashboard.consumers.live_tail``)."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse

from dashboard.models import User
from dashboard.payloads import MAX_FILTER_LENGTH, MAX_TOPIC_LENGTH, MAX_TOPICS
from dashboard.permissions import Permission, check, may, requires
from dashboard.selectors.tail import watchable_topics
from dashboard.services import saved_filters
from dashboard.snapshots import look_now
from dashboard.views.messages.browsing import person

BEGINNINGS = (
    ("0", "now"),
    ("10", "the last 10"),
    ("100", "the last 100"),
    ("1000", "the last 1,000"),
)
KEPT_ROWS = (100, 500, 1_000, 5_000)
KEPT_BY_DEFAULT = 500


@requires(Permission.READ_RECORDS)
def tail(request: HttpRequest) -> HttpResponse:
    topics = list(dict.fromkeys(name for name in request.GET.getlist("topic") if name))[:MAX_TOPICS]
    for topic in topics:
        check(request.user, Permission.READ_RECORDS, topic[:MAX_TOPIC_LENGTH])
    context = {
        "topics": topics,
        "filter": request.GET.get("filter", "")[:MAX_FILTER_LENGTH],
        "last": request.GET.get("last", "0"),
        "kept": request.GET.get("rows", str(KEPT_BY_DEFAULT)),
        "beginnings": BEGINNINGS,
        "kept_rows": [(str(count), f"{count:,}") for count in KEPT_ROWS],
        "max_topics": MAX_TOPICS,
        "max_filter_length": MAX_FILTER_LENGTH,
        "socket_path": reverse("tail") + "socket/",
        "record_base": _record_base(),
        "saved_place": "tail",
        "saved_topic": "",
        "saved_filters": saved_filters.offered(person(request), "tail"),
    }
    return render(request, "dashboard/tail.html", context)


@requires(Permission.READ_RECORDS)
def topics(request: HttpRequest) -> HttpResponse:
    """Part of the page: topics that may be added."""
    assert isinstance(request.user, User)
    snapshot = look_now()
    search = request.GET.get("search", "")[:MAX_TOPIC_LENGTH]
    chosen = frozenset(request.GET.getlist("topic"))
    found = watchable_topics(snapshot, request.user, search, chosen) if snapshot else []
    name = search.strip()
    is_listed = name in chosen or any(topic.name == name for topic in found)
    may_be_new = bool(name) and not is_listed and may(request.user, Permission.READ_RECORDS, name)
    context = {"found": found, "search": name, "unlisted": name if may_be_new else ""}
    return render(request, "dashboard/tail_topics.html", context)


def _record_base() -> str:
    """What stands before topic, partition and offset in the address of one record."""
    try:
        return reverse("record", args=["t", 1, 2]).removesuffix("t/1/2/")
    except NoReverseMatch:
        return ""
