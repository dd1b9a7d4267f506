"""The Alerts page, its history, what was sent, and the Prometheus rule file."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from dashboard.alerting.kinds import KINDS
from dashboard.alerting.prometheus import rule_file
from dashboard.models import AlertDelivery, AlertRule, Severity
from dashboard.permissions import Permission, requires
from dashboard.selectors import alerts


@requires(Permission.SEE)
def index(request: HttpRequest) -> HttpResponse:
    context = {
        **_open(),
        "rules": alerts.rules(),
        "channels": alerts.channels(),
        "kinds": KINDS.values(),
        "tab": "alerts",
    }
    return render(request, "dashboard/alerts.html", context)


@requires(Permission.SEE)
def open_part(request: HttpRequest) -> HttpResponse:
    return render(request, "dashboard/parts/alerts_open.html", _open())


def _open() -> dict[str, object]:
    return {
        "firing": alerts.firing(),
        "pending": alerts.pending(),
        "silences": alerts.active_silences(),
    }


@requires(Permission.SEE)
def history(request: HttpRequest) -> HttpResponse:
    context = {
        "page": alerts.history(request.GET.dict()),
        "rule_names": alerts.history_rule_names(),
        "severities": Severity.choices,
        "tab": "history",
    }
    return render(request, "dashboard/alert_history.html", context)


@requires(Permission.SEE)
def deliveries(request: HttpRequest) -> HttpResponse:
    context = {
        "page": alerts.deliveries(request.GET.dict()),
        "channels": alerts.channels(),
        "states": AlertDelivery.State.choices,
        "tab": "deliveries",
    }
    return render(request, "dashboard/alert_deliveries.html", context)


@requires(Permission.SEE)
def delivery(request: HttpRequest, pk: int) -> HttpResponse:
    """One message: what became of it so far."""
    context = {"delivery": get_object_or_404(AlertDelivery, pk=pk)}
    return render(request, "dashboard/parts/alert_delivery.html", context)


@requires(Permission.SEE)
def prometheus_rules(request: HttpRequest) -> HttpResponse:
    text = rule_file(AlertRule.objects.filter(is_on=True))
    answer = HttpResponse(text, content_type="application/yaml; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="odradek-alerts.yml"'
    return answer
