"""Pages of consumer groups: the list, its CSV, one group, deleting."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from dashboard import clusters
from dashboard.cluster import KafkaFailure
from dashboard.collecting.group_watch import watch
from dashboard.permissions import Permission, requires
from dashboard.selectors import charts
from dashboard.selectors import groups as selector
from dashboard.services import audit
from dashboard.services import groups as service
from dashboard.snapshots import look_now, shelf
from dashboard.templatetags.show import STATUS_WORDS
from dashboard.views.parts import page_or_part

PARTITIONS_PER_PAGE: Final = 200
MAX_GROUP_LENGTH: Final = 32_767


def group_list(request: HttpRequest) -> HttpResponse:
    snapshot = look_now(needs_groups=True)
    query = selector.GroupQuery.of(request.GET)
    page = selector.page_of(snapshot.groups, query) if snapshot is not None else None
    context = {
        "snapshot": snapshot,
        "query": query,
        "page": page,
        "summary": selector.summary(page) if page is not None else "",
        "columns": [(name, label) for name, (label, _) in selector.SORTS.items()],
        "numeric_columns": selector.NUMERIC_COLUMNS,
        "statuses": STATUS_WORDS,
        "sizes": selector.PAGE_SIZES,
        **_refresh(request),
    }
    return _page_or_part(request, "groups.html", "parts/group_table.html", context)


def group_csv(request: HttpRequest) -> HttpResponse:
    """What the list's filter shows, on all its pages."""
    snapshot = look_now(needs_groups=True)
    groups = snapshot.groups if snapshot is not None else {}
    found = selector.chosen_groups(groups, selector.GroupQuery.of(request.GET))
    by_partition = request.GET.get("partitions") == "1"
    return _csv("groups", selector.csv_rows(found, by_partition=by_partition))


def group_detail(request: HttpRequest) -> HttpResponse:
    name = group_name(request)
    group = watch().look(name)
    snapshot = shelf.peek()
    if group is None and watch().is_missing(name):
        raise Http404(f"There is no group {name!r} (any more).")
    range_name = charts.chosen_range(request)
    context: dict[str, Any] = {
        "name": name,
        "snapshot": snapshot,
        "group": group,
        "charts": [
            charts.chart("Lag in records", [f"group.lag:{name}"], range_name),
            charts.chart("Lag in time", [f"group.lag_ms:{name}"], range_name),
        ],
        "ranges": charts.range_choices(range_name),
        **_refresh(request),
    }
    if group is not None:
        only_lagging = request.GET.get("lagging") == "1"
        rows = selector.partition_rows(group, only_lagging=only_lagging)
        context["row"] = selector.row_of(group)
        context["only_lagging"] = only_lagging
        context["partitions"] = Paginator(rows, PARTITIONS_PER_PAGE).get_page(
            request.GET.get("page")
        )
        context["members"] = selector.member_rows(group)
    return _page_or_part(request, "group.html", "parts/group_live.html", context)


@require_POST
@requires(Permission.CHANGE_GROUPS)
def group_delete(request: HttpRequest) -> HttpResponse:
    name = group_name(request)
    if request.POST.get("confirm") != name:
        messages.error(request, "Nothing was deleted: the name that was typed is another one.")
        return redirect(group_url(name))
    done = tried(
        request,
        lambda: service.delete_group(
            gateway=clusters.gateway(), actor=audit.actor_of(request), group=name
        ),
    )
    if done:
        messages.success(request, f"Group {name} is deleted.")
    return redirect("groups" if done else group_url(name))


@require_POST
@requires(Permission.CHANGE_GROUPS)
def group_delete_offsets(request: HttpRequest) -> HttpResponse:
    name, topic = group_name(request), request.POST.get("topic", "")
    done = tried(
        request,
        lambda: service.delete_offsets(
            gateway=clusters.gateway(), actor=audit.actor_of(request), group=name, topic=topic
        ),
    )
    if done:
        messages.success(request, f"What {name} had committed for {topic} is forgotten.")
    return redirect(group_url(name))


def group_url(name: str, view: str = "group") -> str:
    return f"{reverse(view)}?{urlencode({'id': name})}"


def tried(request: HttpRequest, change: Callable[[], object]) -> bool:
    """Whether it was done; why not is said on the next page."""
    try:
        change()
    except service.Refused as refused:
        messages.error(request, str(refused))
    except KafkaFailure as failure:
        messages.error(request, service.words_of(failure))
    else:
        return True
    return False


def group_name(request: HttpRequest) -> str:
    name = request.GET.get("id", "")
    if not name or len(name) > MAX_GROUP_LENGTH:
        raise Http404("The address names no group.")
    return name


def _refresh(request: HttpRequest) -> dict[str, Any]:
    """How often the page asks again, from its address."""
    given = request.GET.get("refresh", "")
    chosen = int(given) if given.isdigit() and int(given) in selector.REFRESH_CHOICES else 0
    return {"refresh": chosen, "refresh_choices": selector.REFRESH_CHOICES}


def _page_or_part(
    request: HttpRequest, page: str, part: str, context: dict[str, Any]
) -> HttpResponse:
    response = page_or_part(request, page, part, context)
    response["Cache-Control"] = "no-store"
    return response


def _csv(name: str, rows: Iterable[Sequence[Any]]) -> HttpResponse:
    """Made as a whole: the web server would hold all of it anyway."""
    out = io.StringIO()
    csv.writer(out).writerows([selector.safe_cell(cell) for cell in row] for row in rows)
    response = HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    return response
