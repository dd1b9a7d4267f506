"""Brokers: all of them, one of them with its settings, and the change of one setting."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods, require_safe

from dashboard import clusters
from dashboard.permissions import Permission, check
from dashboard.refusals import refusal_of
from dashboard.selectors import brokers as selector
from dashboard.selectors import charts
from dashboard.selectors.health import open_listeners
from dashboard.services import brokers as service
from dashboard.services.audit import actor_of
from dashboard.snapshots import BrokerState, ClusterSnapshot, look_now
from dashboard.views.parts import page_or_part

SHOWN = ("set", "dynamic", "all")


@require_safe
def brokers(request: HttpRequest) -> HttpResponse:
    snapshot = look_now()
    context = {
        "snapshot": snapshot,
        "rows": selector.rows_of(snapshot) if snapshot is not None else [],
        "open_listeners": open_listeners(snapshot, is_plain=clusters.gateway().is_plain),
    }
    return page_or_part(request, "brokers.html", "brokers_live.html", context)


@require_safe
def broker(request: HttpRequest, broker_id: int) -> HttpResponse:
    snapshot, state = _find(broker_id)
    range_name = charts.chosen_range(request)
    search = request.GET.get("q", "").strip()[:100]
    shown = request.GET.get("shown", "set")
    shown = shown if shown in SHOWN else "set"
    answer = selector.settings_of(broker_id)
    series = [f"broker.disk_used:{broker_id}", f"broker.size:{broker_id}"]
    context: dict[str, Any] = {
        "snapshot": snapshot,
        "broker": state,
        "row": next(row for row in selector.rows_of(snapshot) if row.state is state),
        "node": selector.node_of(snapshot, broker_id),
        "answer": answer,
        "settings": selector.matching(answer.value or (), search, shown),
        "search": search,
        "shown": shown,
        "chart": charts.chart("Disk", series, range_name),
        "ranges": charts.range_choices(range_name),
    }
    is_for_settings = request.headers.get("HX-Target") == "broker-settings"
    part = "broker_settings.html" if is_for_settings else "broker_live.html"
    response = page_or_part(request, "broker.html", part, context)
    patch_vary_headers(response, ["HX-Target"])
    return response


@require_http_methods(["GET", "HEAD", "POST"])
def setting(request: HttpRequest, broker_id: int, key: str) -> HttpResponse:
    """One setting: ``save`` sets it, ``reset`` takes away what was set by hand."""
    check(request.user, Permission.CHANGE_BROKERS)
    _, state = _find(broker_id)
    answer = selector.settings_of(broker_id)
    row = next((row for row in answer.value or () if row.view.name == key), None)
    if row is None and answer.value is not None:
        raise Http404(f"Broker {broker_id} has no setting {key}.")
    context: dict[str, Any] = {
        "broker": state,
        "key": key,
        "row": row,
        "answer": answer,
        "typed": None,
    }
    if request.method == "POST" and row is not None:
        for_all = request.POST.get("scope") == "all"
        typed = request.POST.get("value", "")
        value = None if request.POST.get("action") == "reset" else typed
        failure = service.set_setting(
            actor=actor_of(request),
            broker_id=broker_id,
            key=key,
            value=value,
            for_all=for_all,
            before=row.view.value,
        )
        if failure is None:
            what = "is as its file and defaults say" if value is None else "was set"
            whose = "all brokers" if for_all else f"broker {broker_id}"
            messages.success(request, f"{key} of {whose} {what}.")
            query = urlencode({"q": key, "shown": "all"})
            return redirect(f"{reverse('broker', args=[broker_id])}?{query}#settings")
        refusal = refusal_of(failure, [key])
        context |= {"refusal": refusal, "typed": typed, "for_all": for_all}
    return render(request, "dashboard/broker_setting.html", context)


def _find(broker_id: int) -> tuple[ClusterSnapshot, BrokerState]:
    snapshot = look_now()
    state = snapshot.brokers.get(broker_id) if snapshot is not None else None
    if snapshot is None or state is None:
        raise Http404(f"No broker {broker_id} has been seen in this cluster.")
    return snapshot, state
