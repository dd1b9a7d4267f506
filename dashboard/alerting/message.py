"""What is told: the body of a webhook, and the same as a mail's subject and text.

The body is documented in docs/alerts.md. ``text`` is what Slack, Mattermost and Teams webhooks show
when they are given the same JSON.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.utils import timezone

from dashboard.alerting.observations import clean
from dashboard.models import Alert, AlertDelivery, AlertRule

VERSION = 1
MAX_LINES = 20
"""Alerts named in the text; the JSON has them all."""
_HEADLINES = {
    AlertDelivery.Event.FIRING: "FIRING",
    AlertDelivery.Event.REPEATED: "STILL FIRING",
    AlertDelivery.Event.RESOLVED: "RESOLVED",
    AlertDelivery.Event.TEST: "TEST",
}


def new_uid() -> str:
    return str(uuid.uuid4())


def body_of(
    uid: str,
    event: AlertDelivery.Event,
    rule: AlertRule,
    alerts: Sequence[Alert],
    cluster_id: str | None,
    now: dt.datetime,
) -> dict[str, Any]:
    is_over = event == AlertDelivery.Event.RESOLVED
    lines = [_line(alert, is_over) for alert in alerts[:MAX_LINES]]
    if len(alerts) > MAX_LINES:
        lines.append(f"and {len(alerts) - MAX_LINES} more")
    headline = f"{_HEADLINES[event]} ({rule.severity}): {rule.name}"
    return {
        **_frame(uid, event, [headline, *lines], cluster_id, now),
        "rule": {
            "id": rule.pk,
            "name": rule.name,
            "kind": rule.kind,
            "severity": rule.severity,
        },
        "alerts": [_entry(alert) for alert in alerts],
    }


def test_body(uid: str, channel_name: str, by: str, now: dt.datetime) -> dict[str, Any]:
    lines = [f"TEST: {channel_name}", f"{by} tests this channel. Nothing is wrong."]
    return {
        **_frame(uid, AlertDelivery.Event.TEST, lines, None, now),
        "rule": None,
        "alerts": [],
    }


def subject_of(body: dict[str, Any]) -> str:
    """One line, whatever stands in names that clients chose."""
    first = str(body["text"]).partition("\n")[0]
    alerts = body["alerts"]
    words = f"{first}: {alerts[0]['text']}" if len(alerts) == 1 else first
    return clean(f"[Odradek] {words}", 150)


def _frame(
    uid: str,
    event: AlertDelivery.Event,
    lines: Sequence[str],
    cluster_id: str | None,
    now: dt.datetime,
) -> dict[str, Any]:
    url = f"{settings.ODRADEK_PUBLIC_URL}/alerts/" if settings.ODRADEK_PUBLIC_URL else None
    return {
        "version": VERSION,
        "id": uid,
        "event": event.value,
        "at": _iso(now),
        "cluster": cluster_id,
        "url": url,
        "text": "\n".join([*lines, *([url] if url else [])]),
    }


def _line(alert: Alert, is_over: bool) -> str:
    since = _words(alert.since)
    if not is_over:
        return f"{alert.text} (since {since})"
    until = _words(alert.resolved_at) if alert.resolved_at else "now"
    why = f", {alert.resolution}" if alert.resolution else ""
    return f"Over: {alert.text} (from {since} to {until}{why})"


def _entry(alert: Alert) -> dict[str, Any]:
    return {
        "id": alert.pk,
        "target": alert.target,
        "state": alert.state,
        "text": alert.text,
        "value": alert.value,
        "since": _iso(alert.since),
        "fired_at": _iso(alert.fired_at),
        "resolved_at": _iso(alert.resolved_at),
    }


def _iso(at: dt.datetime | None) -> str | None:
    return at.astimezone(dt.UTC).isoformat(timespec="milliseconds") if at else None


def _words(at: dt.datetime) -> str:
    return timezone.localtime(at, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
