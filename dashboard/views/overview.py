"""The first page; its figures ask for themselves again (``overview`` as an htmx part)."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from dashboard.selectors import overview as selector
from dashboard.selectors.charts import chosen_range
from dashboard.snapshots import look_now
from dashboard.views.parts import page_or_part


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    snapshot = look_now()
    context = selector.context_of(snapshot, chosen_range(request))
    return page_or_part(request, "overview.html", "overview_part.html", context)
