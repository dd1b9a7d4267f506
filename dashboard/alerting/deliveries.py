"""The queue of messages, in the database: what is to be told to whom, and what became of it.

``announce`` writes inside the transaction that changes the alert. A channel's messages are sent in
their order; a queue that is full drops what comes, with a row that says so.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections import defaultdict
from collections.abc import Sequence

from django.db import transaction

from dashboard.alerting import message
from dashboard.models import Alert, AlertChannel, AlertDelivery, AlertRule

MAX_QUEUED = 200
"""Messages that wait for one channel."""

bell = threading.Event()
"""Rung when there may be something to send; the sender looks by itself as well."""


def announce(
    rule: AlertRule,
    event: AlertDelivery.Event,
    alerts: Sequence[Alert],
    cluster_id: str | None,
    now: dt.datetime,
) -> None:
    """One message for each channel concerned, about all these alerts."""
    by_channel: dict[int, list[Alert]] = defaultdict(list)
    channels = {channel.pk: channel for channel in _channels(rule, event)}
    for alert in alerts:
        for pk in channels:
            if event != AlertDelivery.Event.RESOLVED or pk in alert.told_channels:
                by_channel[pk].append(alert)
                if pk not in alert.told_channels:
                    alert.told_channels.append(pk)
        if event != AlertDelivery.Event.RESOLVED:
            alert.save(update_fields=["told_channels"])
    for pk, concerned in by_channel.items():
        uid = message.new_uid()
        body = message.body_of(uid, event, rule, concerned, cluster_id, now)
        _enqueue(channels[pk], uid, event, rule.name, body, now)


def enqueue_test(channel: AlertChannel, by: str, now: dt.datetime) -> AlertDelivery:
    """Sent once, past the queue: its outcome is what the person waits for."""
    uid = message.new_uid()
    body = message.test_body(uid, channel.name, by, now)
    return _enqueue(channel, uid, AlertDelivery.Event.TEST, "", body, now)


def _channels(rule: AlertRule, event: AlertDelivery.Event) -> Sequence[AlertChannel]:
    """An end is told to whoever was told of the beginning, also when the rule now names others."""
    switched_on = AlertChannel.objects.filter(is_on=True)
    if event == AlertDelivery.Event.RESOLVED or rule.is_for_all_channels:
        return list(switched_on)
    return list(switched_on.filter(rules=rule))


def _enqueue(
    channel: AlertChannel,
    uid: str,
    event: AlertDelivery.Event,
    rule_name: str,
    body: dict[str, object],
    now: dt.datetime,
) -> AlertDelivery:
    queued = AlertDelivery.objects.filter(channel=channel, state=AlertDelivery.State.QUEUED)
    is_full = queued.count() >= MAX_QUEUED
    transaction.on_commit(bell.set)
    return AlertDelivery.objects.create(
        channel=channel,
        uid=uid,
        event=event,
        rule_name=rule_name,
        body=body,
        state=AlertDelivery.State.DROPPED if is_full else AlertDelivery.State.QUEUED,
        next_at=now,
        created_at=now,
        finished_at=now if is_full else None,
        outcome=f"{MAX_QUEUED} messages wait for this channel already" if is_full else "",
    )
