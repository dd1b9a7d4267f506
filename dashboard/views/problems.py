"""Problems: every partition that is offline, under-replicated or under its minimum ISR."""

from __future__ import annotations

from collections import Counter

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from dashboard.collecting.problems import MAX_TOLD, OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED
from dashboard.selectors import alerts
from dashboard.selectors.health import health_of, problem_counts
from dashboard.snapshots import look_now
from dashboard.views.parts import page_or_part

PER_PAGE = 100
LABELS = {
    OFFLINE: "Offline",
    UNDER_MIN_ISR: "Under min ISR",
    UNDER_REPLICATED: "Under-replicated",
}


@require_safe
def problems(request: HttpRequest) -> HttpResponse:
    snapshot = look_now()
    found = snapshot.problems if snapshot is not None else ()
    counts = problem_counts(snapshot) if snapshot is not None else Counter[str]()
    broker = _broker(request.GET.get("broker", ""))
    if broker is not None:
        found = tuple(problem for problem in found if broker in problem.replicas)
        counts = Counter(problem.kind for problem in found)
    kind = request.GET.get("kind", "")
    if kind in LABELS:
        found = tuple(problem for problem in found if problem.kind == kind)
    page = Paginator(found, PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "snapshot": snapshot,
        "page": page,
        "rows": [(LABELS[problem.kind], problem) for problem in page],
        "kind": kind if kind in LABELS else "",
        "broker": broker,
        "kinds": [(key, label, counts.get(key, 0)) for key, label in LABELS.items()],
        "others": [
            reason
            for reason in health_of(snapshot, alerts.firing()).reasons
            if reason.link != "Problems"
        ],
        "is_cut": snapshot is not None and len(snapshot.problems) >= MAX_TOLD,
    }
    return page_or_part(request, "problems.html", "problems_live.html", context)


def _broker(text: str) -> int | None:
    """The broker that the address names, if it names one."""
    return int(text) if text.isdecimal() and len(text) < 11 else None
