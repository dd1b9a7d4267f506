"""Alerts: what fires, what has fired, and silences."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Router, Schema

from dashboard.api.auth import may
from dashboard.api.shapes import Int64, Limit, PageNumber, moment_of, one_page, responses
from dashboard.models import Alert
from dashboard.permissions import Permission

router = Router(tags=["Alerts"])


class AlertOut(Schema):
    id: int
    rule: str
    kind: str
    severity: str
    target: str
    state: str
    text: str
    value: float | None
    since_ms: Int64 | None
    since_time: str | None
    fired_ms: Int64 | None
    fired_time: str | None
    resolved_ms: Int64 | None
    resolved_time: str | None
    resolution: str


class AlertsOut(Schema):
    page: int
    has_next: bool
    alerts: list[AlertOut]


@router.get("/alerts", auth=may(Permission.SEE), response=responses(AlertsOut))
def list_alerts(  # type: ignore[no-untyped-def]
    request: HttpRequest,
    limit: Limit,
    page: PageNumber,
    state: Literal["", "pending", "firing", "resolved"] = "",
):
    """Newest first; all, or those in one state."""
    found = Alert.objects.order_by("-since", "-pk")
    if state:
        found = found.filter(state=state)
    return one_page(found, page, limit, "alerts", _told)


@router.get("/alerts/{int:alert_id}", auth=may(Permission.SEE), response=responses(AlertOut))
def get_alert(request: HttpRequest, alert_id: int):  # type: ignore[no-untyped-def]
    return _told(get_object_or_404(Alert, pk=alert_id))


def _told(alert: Alert) -> dict[str, Any]:
    same = ("id", "kind", "severity", "target", "state", "text", "value", "resolution")
    return {
        **{name: getattr(alert, name) for name in same},
        "rule": alert.rule_name,
        **moment_of("since", alert.since),
        **moment_of("fired", alert.fired_at),
        **moment_of("resolved", alert.resolved_at),
    }
