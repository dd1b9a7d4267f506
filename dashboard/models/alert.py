"""Alerts: rules, the alerts that they raised, who is told, and how that went.

``Alert`` rows are the evaluation's memory: a restart goes on where the rows are. A change of an
alert and the deliveries that tell of it are written in one transaction (``dashboard.alerting``).
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q


class Severity(models.TextChoices):
    INFO = "info", "Info"
    WARNING = "warning", "Warning"
    CRITICAL = "critical", "Critical"


class AlertChannel(models.Model):
    """Where alerts are sent."""

    class Kind(models.TextChoices):
        WEBHOOK = "webhook", "Webhook"
        EMAIL = "email", "E-mail"

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=16, choices=Kind)
    is_on = models.BooleanField(default=True)
    url = models.CharField(max_length=2000, blank=True)
    secret = models.CharField(max_length=128, blank=True)
    """Signs a webhook's requests; shown once, when it is made."""
    may_reach_private = models.BooleanField(default=False)
    """Whether the webhook may lead to addresses that are not on the public internet."""
    recipients = models.TextField(blank=True)
    """E-mail addresses, separated by commas or blanks."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class AlertRule(models.Model):
    """What is watched. ``parameters`` by the kind's table in ``dashboard.alerting.kinds``."""

    name = models.CharField(max_length=120, unique=True)
    kind = models.CharField(max_length=32)
    parameters = models.JSONField(default=dict)
    targets = models.TextField(default="*", blank=True)
    """Globs, separated by commas or blanks; of what, says the kind."""
    severity = models.CharField(max_length=16, choices=Severity, default=Severity.WARNING)
    is_on = models.BooleanField(default=True)
    for_seconds = models.PositiveIntegerField(default=60)
    """How long it has to be so before the alert fires."""
    clear_seconds = models.PositiveIntegerField(default=60)
    """How long it has to be over before the alert is resolved."""
    repeat_minutes = models.PositiveIntegerField(default=60)
    """Told again after this while it lasts; 0: told once."""
    is_for_all_channels = models.BooleanField(default=True)
    """Else for those in ``channels`` alone."""
    channels = models.ManyToManyField(AlertChannel, blank=True, related_name="rules")
    version = models.PositiveIntegerField(default=0)
    """Raised by each change, so that a tick that judged by older figures writes nothing."""
    default_key = models.CharField(max_length=32, null=True, unique=True)
    """Set on the rules that come with Odradek: they can be switched off, not deleted."""

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Alert(models.Model):
    """One rule about one target, from the first sign to the end; kept as history for a year."""

    class State(models.TextChoices):
        PENDING = "pending", "Pending"
        FIRING = "firing", "Firing"
        RESOLVED = "resolved", "Resolved"

    rule = models.ForeignKey(AlertRule, null=True, on_delete=models.SET_NULL, related_name="alerts")
    rule_name = models.CharField(max_length=120)
    kind = models.CharField(max_length=32)
    severity = models.CharField(max_length=16, choices=Severity)
    target = models.CharField(max_length=300)
    state = models.CharField(max_length=16, choices=State)
    text = models.CharField(max_length=500)
    """What is so, in words; the last known while it lasts."""
    value = models.FloatField(null=True)
    since = models.DateTimeField()
    seen_at = models.DateTimeField()
    """When it was last seen to be so."""
    fired_at = models.DateTimeField(null=True)
    clear_since = models.DateTimeField(null=True)
    """Good again since then, but not for long enough."""
    resolved_at = models.DateTimeField(null=True)
    resolution = models.CharField(max_length=200, blank=True)
    is_flapping = models.BooleanField(default=False)
    told_at = models.DateTimeField(null=True)
    told_channels = models.JSONField(default=list)
    """Ids of the channels that were told of it, which are those that hear of its end."""

    class Meta:
        ordering = ("-since", "-id")
        indexes = [models.Index(fields=["state", "rule"]), models.Index(fields=["resolved_at"])]
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "target"],
                condition=Q(state__in=["pending", "firing"]),
                name="one_open_alert_of_a_rule_and_target",
            )
        ]


class AlertSilence(models.Model):
    """Nothing new is told of matching alerts until then; they still fire and stand in the history."""

    rule = models.ForeignKey(AlertRule, null=True, blank=True, on_delete=models.CASCADE)
    """None: every rule."""
    targets = models.TextField(default="*")
    reason = models.CharField(max_length=300)
    until = models.DateTimeField(db_index=True)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_by_name = models.CharField(max_length=150)

    class Meta:
        ordering = ("until",)


class AlertDelivery(models.Model):
    """One message to one channel. A row is sent by whoever claims it; it may be sent twice when a
    process dies between the receiver's answer and its own note of it: ``uid`` stays the same."""

    class State(models.TextChoices):
        QUEUED = "queued", "Queued"
        SENT = "sent", "Sent"
        FAILED = "failed", "Failed"
        DROPPED = "dropped", "Dropped"
        """The channel's queue was full."""

    class Event(models.TextChoices):
        FIRING = "firing", "Firing"
        REPEATED = "repeated", "Still firing"
        RESOLVED = "resolved", "Resolved"
        TEST = "test", "Test"

    channel = models.ForeignKey(AlertChannel, on_delete=models.CASCADE, related_name="deliveries")
    uid = models.CharField(max_length=36, unique=True)
    event = models.CharField(max_length=16, choices=Event)
    rule_name = models.CharField(max_length=120, blank=True)
    body = models.JSONField()
    state = models.CharField(max_length=16, choices=State, default=State.QUEUED)
    attempts = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField()
    claimed_until = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_index=True)
    finished_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=500, blank=True)
    """What the last attempt came to, in words."""
    last_failure = models.CharField(max_length=500, blank=True)
    """Stays when a later attempt succeeds."""

    class Meta:
        ordering = ("-created_at", "-id")
        indexes = [models.Index(fields=["state", "next_at"])]
