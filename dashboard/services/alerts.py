"""Changes to rules, channels and silences; each is audited, no secret with it."""

from __future__ import annotations

import datetime as dt
import secrets
from typing import Any
from urllib.parse import urlsplit

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from broker.clock import SystemClock
from dashboard.alerting import deliveries, evaluator
from dashboard.alerting.watch import alert_watch
from dashboard.models import (
    AlertChannel,
    AlertDelivery,
    AlertRule,
    AlertSilence,
    Role,
    User,
)
from dashboard.services import audit
from dashboard.services.audit import Actor

MAX_RULES = 200
MAX_CHANNELS = 50
MAX_SILENCES = 200
MAX_SILENCE = dt.timedelta(days=366)
SECRET_BYTES = 32


class AlertRefused(Exception):
    """The text says why, for the page."""


def save_rule(
    *, actor: Actor, rule: AlertRule, channels: list[AlertChannel] | None = None
) -> AlertRule:
    """Make or change a rule. ``channels`` None: as they are."""
    before = AlertRule.objects.filter(pk=rule.pk).first() if rule.pk else None
    if before is None and AlertRule.objects.count() >= MAX_RULES:
        raise AlertRefused(f"There are {MAX_RULES} rules already.")
    action = "alert_rule.change" if before else "alert_rule.create"
    with audit.change(actor, action, rule.name) as change:
        change.before = describe_rule(before) if before else None
        with transaction.atomic():
            _lock(rule)
            rule.save()
            if channels is not None:
                rule.channels.set(channels)
            if not rule.is_on and before is not None and before.is_on:
                _end_alerts(rule, "the rule was switched off")
        change.after = describe_rule(rule)
    alert_watch.wake()
    return rule


def switch_rule(*, actor: Actor, rule: AlertRule, is_on: bool) -> None:
    rule.is_on = is_on
    save_rule(actor=actor, rule=rule)


def delete_rule(*, actor: Actor, rule: AlertRule) -> None:
    """Its alerts are ended, and stay in the history."""
    if rule.default_key is not None:
        raise AlertRefused("This rule comes with Odradek: it can be switched off, not deleted.")
    with audit.change(actor, "alert_rule.delete", rule.name) as change:
        change.before = describe_rule(rule)
        with transaction.atomic():
            _lock(rule)
            _end_alerts(rule, "the rule was deleted")
            rule.delete()


def save_channel(*, actor: Actor, channel: AlertChannel) -> str | None:
    """Make or change a channel. Returns a new webhook's secret, which is not shown again."""
    before = AlertChannel.objects.filter(pk=channel.pk).first() if channel.pk else None
    if before is None and AlertChannel.objects.count() >= MAX_CHANNELS:
        raise AlertRefused(f"There are {MAX_CHANNELS} channels already.")
    opens = channel.may_reach_private and not (before is not None and before.may_reach_private)
    if opens and not (actor.user is not None and actor.user.role == Role.ADMIN):
        raise AlertRefused("Only an admin may let a webhook reach private addresses.")
    secret = None
    if channel.kind == AlertChannel.Kind.WEBHOOK and not channel.secret:
        secret = channel.secret = new_secret()
    action = "alert_channel.change" if before else "alert_channel.create"
    with audit.change(actor, action, channel.name) as change:
        change.before = describe_channel(before) if before else None
        with transaction.atomic():
            channel.save()
            if before is not None and before.is_on and not channel.is_on:
                _drop_queue(channel, "The channel was switched off")
        change.after = describe_channel(channel)
        if before is not None and before.url != channel.url:
            change.after["address_changed"] = True
    return secret


def renew_secret(*, actor: Actor, channel: AlertChannel) -> str:
    """The old one is invalid at once, also for messages that wait."""
    with audit.change(actor, "alert_channel.secret", channel.name):
        channel.secret = new_secret()
        channel.save(update_fields=["secret"])
    return channel.secret


def delete_channel(*, actor: Actor, channel: AlertChannel) -> None:
    with audit.change(actor, "alert_channel.delete", channel.name) as change:
        change.before = describe_channel(channel)
        channel.delete()


def test_channel(*, actor: Actor, channel: AlertChannel) -> AlertDelivery:
    """Queued past everything else; the row says what became of it."""
    with audit.change(actor, "alert_channel.test", channel.name):
        return deliveries.enqueue_test(channel, actor.name, timezone.now())


def silence(
    *, actor: Actor, rule: AlertRule | None, targets: str, reason: str, until: dt.datetime
) -> AlertSilence:
    now = timezone.now()
    if not now < until <= now + MAX_SILENCE:
        raise AlertRefused("A silence has to end in the future, and within a year.")
    if AlertSilence.objects.filter(until__gt=now).count() >= MAX_SILENCES:
        raise AlertRefused(f"There are {MAX_SILENCES} silences already.")
    with audit.change(actor, "alert.silence", rule.name if rule else "every rule") as change:
        made = AlertSilence.objects.create(
            rule=rule,
            targets=targets,
            reason=reason,
            until=until,
            created_by=actor.user,
            created_by_name=actor.name,
        )
        change.after = {"targets": targets, "until": until.isoformat(), "reason": reason}
    return made


def end_silence(*, actor: Actor, silence: AlertSilence) -> None:
    """What fires and was not told is told at the next tick."""
    name = silence.rule.name if silence.rule else "every rule"
    with audit.change(actor, "alert.end_silence", name) as change:
        change.before = {"targets": silence.targets, "until": silence.until.isoformat()}
        silence.until = min(silence.until, timezone.now())
        silence.save(update_fields=["until"])
    alert_watch.wake()


def new_secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


def describe_rule(rule: AlertRule) -> dict[str, Any]:
    names = ["*"] if rule.is_for_all_channels else [channel.name for channel in rule.channels.all()]
    return {
        "kind": rule.kind,
        "parameters": rule.parameters,
        "targets": rule.targets,
        "severity": str(rule.severity),
        "is_on": rule.is_on,
        "for_seconds": rule.for_seconds,
        "clear_seconds": rule.clear_seconds,
        "repeat_minutes": rule.repeat_minutes,
        "channels": names,
    }


def describe_channel(channel: AlertChannel) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": str(channel.kind), "is_on": channel.is_on}
    if channel.kind == AlertChannel.Kind.EMAIL:
        return {**found, "recipients": channel.recipients}
    return {
        **found,
        "address": shown_address(channel.url),
        "may_reach_private": channel.may_reach_private,
    }


def shown_address(url: str) -> str:
    """Without the path, which of many services is all that guards them."""
    parts = urlsplit(url)
    rest = "/…" if parts.path.strip("/") or parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{rest}"


def may_open_private(user: User) -> bool:
    return user.role == Role.ADMIN


def _lock(rule: AlertRule) -> None:
    """A tick under way that judged by the old figures will find another version."""
    if rule.pk:
        AlertRule.objects.filter(pk=rule.pk).update(version=F("version") + 1)
        rule.version = AlertRule.objects.values_list("version", flat=True).get(pk=rule.pk)


def _end_alerts(rule: AlertRule, why: str) -> None:
    evaluator.switch_off(rule, why, SystemClock().wall_ms())


def _drop_queue(channel: AlertChannel, why: str) -> None:
    queued = AlertDelivery.objects.filter(channel=channel, state=AlertDelivery.State.QUEUED)
    queued.update(state=AlertDelivery.State.DROPPED, outcome=why, finished_at=timezone.now())
