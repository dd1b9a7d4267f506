"""What the Alerts page, the banner and the navigation show."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from django.core.paginator import Page, Paginator
from django.db.models import Max, Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_date

from broker.clock import SystemClock
from dashboard.alerting.evaluator import silencer
from dashboard.alerting.kinds import KINDS, Kind, rule_in_words, seconds
from dashboard.models import (
    Alert,
    AlertChannel,
    AlertDelivery,
    AlertRule,
    AlertSilence,
    Severity,
)
from dashboard.templatetags.show import duration

PER_PAGE = 50
_GRAVEST_FIRST = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}
COUNT_FOR_MS = 2_000
"""The navigation's figure may be as old as this."""


@dataclass(frozen=True, slots=True)
class OpenRow:
    alert: Alert
    is_silenced: bool

    @property
    def severity_class(self) -> str:
        return severity_class(self.alert.severity)

    @property
    def age(self) -> str:
        return duration((timezone.now() - self.alert.since).total_seconds() * 1000)

    @property
    def target_glob(self) -> str:
        """Matches this target; what would part or widen a glob is any one character."""
        return re.sub(r"[\s,*?\[\]]", "?", self.alert.target)


@dataclass(frozen=True, slots=True)
class RuleRow:
    rule: AlertRule
    words: str
    kind: Kind
    firing_count: int
    told: str

    @property
    def severity_class(self) -> str:
        return severity_class(self.rule.severity)


@dataclass(frozen=True, slots=True)
class ChannelRow:
    channel: AlertChannel
    queued_count: int
    last: AlertDelivery | None
    """The newest message that was sent, or failed for good."""


def severity_class(severity: str) -> str:
    return {Severity.CRITICAL: "bad", Severity.WARNING: "warn"}.get(Severity(severity), "")


def firing() -> list[OpenRow]:
    """Gravest first, then the newest."""
    return _open_rows(Alert.State.FIRING)


def pending() -> list[OpenRow]:
    """Seen, but not for long enough."""
    return _open_rows(Alert.State.PENDING)


def _open_rows(state: Alert.State) -> list[OpenRow]:
    silences = active_silences()
    alerts = Alert.objects.filter(state=state).select_related("rule").order_by("-since", "pk")
    rows = [
        OpenRow(alert, alert.rule is not None and silencer(alert.rule, silences)(alert.target))
        for alert in alerts[:500]
    ]
    return sorted(rows, key=lambda row: _GRAVEST_FIRST[Severity(row.alert.severity)])


def active_silences() -> list[AlertSilence]:
    return list(AlertSilence.objects.filter(until__gt=timezone.now()).select_related("rule"))


def rules() -> list[RuleRow]:
    found = AlertRule.objects.prefetch_related("channels")
    firing_of: dict[int | None, int] = {}
    for pk in Alert.objects.filter(state=Alert.State.FIRING).values_list("rule_id", flat=True):
        firing_of[pk] = firing_of.get(pk, 0) + 1
    return [
        RuleRow(
            rule,
            rule_in_words(rule.kind, rule.parameters, rule.targets, rule.for_seconds),
            KINDS[rule.kind],
            firing_of.get(rule.pk, 0),
            _told(rule),
        )
        for rule in found
    ]


def _told(rule: AlertRule) -> str:
    names = ", ".join(channel.name for channel in rule.channels.all())
    whom = "every channel" if rule.is_for_all_channels else names or "nobody"
    again = f", again every {seconds(rule.repeat_minutes * 60)}" if rule.repeat_minutes else ""
    return whom + (again if whom != "nobody" else "")


def channels() -> list[ChannelRow]:
    rows = []
    for channel in AlertChannel.objects.all():
        sent = AlertDelivery.objects.filter(channel=channel)
        queued = sent.filter(state=AlertDelivery.State.QUEUED)
        newest = sent.aggregate(pk=Max("pk", filter=Q(attempts__gt=0)))["pk"]
        last = AlertDelivery.objects.filter(pk=newest).first() if newest else None
        rows.append(ChannelRow(channel, queued.count(), last))
    return rows


def history(filters: Mapping[str, str]) -> Page[Alert]:
    """Alerts that fired. Filters: rule (its name), severity, target (a part of it), from, to."""
    rows: QuerySet[Alert] = Alert.objects.exclude(fired_at=None).order_by("-fired_at", "-pk")
    if rule := filters.get("rule"):
        rows = rows.filter(rule_name=rule)
    if (severity := filters.get("severity")) in Severity.values:
        rows = rows.filter(severity=severity)
    if target := filters.get("target", "").strip():
        rows = rows.filter(Q(target__icontains=target) | Q(text__icontains=target))
    if (first := _day(filters.get("from"))) is not None:
        rows = rows.filter(fired_at__gte=first)
    if (last := _day(filters.get("to"))) is not None:
        rows = rows.filter(fired_at__lt=last + dt.timedelta(days=1))
    return Paginator(rows, PER_PAGE).get_page(filters.get("page"))


def history_rule_names() -> list[str]:
    names = Alert.objects.exclude(fired_at=None).order_by("rule_name")
    return list(names.values_list("rule_name", flat=True).distinct())


def deliveries(filters: Mapping[str, str]) -> Page[AlertDelivery]:
    rows = AlertDelivery.objects.select_related("channel").defer("body")
    if filters.get("channel", "").isdecimal():
        rows = rows.filter(channel_id=int(filters["channel"]))
    if (state := filters.get("state")) in AlertDelivery.State.values:
        rows = rows.filter(state=state)
    return Paginator(rows, PER_PAGE).get_page(filters.get("page"))


def _day(text: str | None) -> dt.datetime | None:
    """Midnight in the chosen zone."""
    try:
        day = parse_date(text or "")
    except ValueError:
        return None
    return timezone.make_aware(dt.datetime.combine(day, dt.time())) if day else None


class _Count:
    """How many fire, for every page's navigation: asked of the database now and then."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._at_ms: int | None = None
        self._count = 0

    def get(self) -> int:
        now_ms = SystemClock().monotonic_ms()
        with self._lock:
            if self._at_ms is not None and now_ms - self._at_ms < COUNT_FOR_MS:
                return self._count
        count = Alert.objects.filter(state=Alert.State.FIRING).count()
        with self._lock:
            self._at_ms, self._count = now_ms, count
        return count


firing_count = _Count()
