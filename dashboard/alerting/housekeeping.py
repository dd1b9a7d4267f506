"""Keeps the tables of alerts bounded: by age, and by number of rows."""

from __future__ import annotations

import datetime as dt

from django.db.models import QuerySet

from dashboard.models import Alert, AlertDelivery, AlertSilence

HISTORY_AGE = dt.timedelta(days=365)
MAX_HISTORY = 50_000
DELIVERY_AGE = dt.timedelta(days=30)
MAX_DELIVERIES = 5_000
SILENCE_AGE = dt.timedelta(days=30)
BATCH = 2_000
"""Rows deleted at once: the writers of one database wait for each other."""


def prune(now: dt.datetime) -> None:
    over = Alert.objects.filter(state=Alert.State.RESOLVED)
    _delete(over.filter(resolved_at__lt=now - HISTORY_AGE))
    _delete_beyond(over.order_by("-resolved_at", "-pk"), MAX_HISTORY)
    done = AlertDelivery.objects.exclude(state=AlertDelivery.State.QUEUED)
    _delete(done.filter(finished_at__lt=now - DELIVERY_AGE))
    _delete_beyond(done.order_by("-finished_at", "-pk"), MAX_DELIVERIES)
    _delete(AlertSilence.objects.filter(until__lt=now - SILENCE_AGE))


def _delete(rows: QuerySet[Alert] | QuerySet[AlertDelivery] | QuerySet[AlertSilence]) -> None:
    while pks := list(rows.order_by("pk").values_list("pk", flat=True)[:BATCH]):
        rows.model._default_manager.filter(pk__in=pks).delete()


def _delete_beyond(rows: QuerySet[Alert] | QuerySet[AlertDelivery], count: int) -> None:
    """``rows`` with the newest first."""
    while pks := list(rows.values_list("pk", flat=True)[count : count + BATCH]):
        rows.model._default_manager.filter(pk__in=pks).delete()
