"""The list of topics, and the same as a CSV file."""

from __future__ import annotations

import csv
import io
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from dashboard.selectors.topics import COLUMNS, TopicQuery, board_of
from dashboard.snapshots import look_now
from dashboard.views.parts import REQUEST_HEADER, wants_part

INTERNAL_KEY = "topics_show_internal"
"""In the session: whether this person wants to see internal topics."""
LIVE_ELEMENT = "topics-list"
"""The part that renews itself; renewing is no step that the browser's history should keep."""


@require_safe
def topics(request: HttpRequest) -> HttpResponse:
    query = _query_of(request)
    snapshot = look_now()
    page = board_of(snapshot).page(query) if snapshot is not None else None
    here = _address(query, page=page.number if page else 1)
    context: dict[str, Any] = {
        "snapshot": snapshot,
        "query": query,
        "page": page,
        "here": here,
        "columns": [
            {
                "column": column,
                "url": _address(query, sort=query.sorted_by(column), page=1),
                "sort": _aria_sort(query) if column is query.column else None,
            }
            for column in COLUMNS
        ],
        "csv_url": f"{reverse('topics_csv')}?{query.encode(page=1)}",
        "previous_url": _address(query, page=page.number - 1) if page else "",
        "next_url": _address(query, page=page.number + 1) if page else "",
        "last_url": _address(query, page=page.last) if page else "",
        "first_url": _address(query, page=1),
    }
    is_part = _is_part(request)
    template = "list_part.html" if is_part else "list.html"
    response = render(request, f"dashboard/topics/{template}", context)
    if is_part and request.headers.get("HX-Trigger") != LIVE_ELEMENT:
        response["HX-Push-Url"] = here
    patch_vary_headers(response, [REQUEST_HEADER])
    return response


@require_safe
def topics_csv(request: HttpRequest) -> HttpResponse:
    """Every row of the list as it is filtered and sorted, with the same columns."""
    snapshot = look_now()
    rows = board_of(snapshot).matching(_query_of(request))[0] if snapshot is not None else []
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column.label for column in COLUMNS])
    for row in rows:
        values = [column.value(row) for column in COLUMNS]
        writer.writerow(["" if value is None else value for value in values])
    return HttpResponse(
        text.getvalue(),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="topics.csv"'},
    )


def _query_of(request: HttpRequest) -> TopicQuery:
    """Internal topics: as the address says, else as it was chosen last."""
    said = request.GET.get("internal")
    remembered = bool(request.session.get(INTERNAL_KEY, False))
    shows_internal = remembered if said is None else said == "1"
    if shows_internal != remembered:
        request.session[INTERNAL_KEY] = shows_internal
    favourites = frozenset(getattr(request.user, "favourite_topics", ()))
    return TopicQuery.of(request.GET, shows_internal=shows_internal, favourites=favourites)


def _address(query: TopicQuery, **changes: Any) -> str:
    encoded = query.encode(**changes)
    return f"{reverse('topics')}?{encoded}" if encoded else reverse("topics")


def _aria_sort(query: TopicQuery) -> str:
    return "descending" if query.is_descending else "ascending"


def _is_part(request: HttpRequest) -> bool:
    """A page that is restored from the history is wanted whole."""
    return wants_part(request) and "HX-History-Restore-Request" not in request.headers
