"""What was changed, by whom: one row a change, kept as it was written."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class AuditEntry(models.Model):
    """``actor_name`` stays when the user is deleted. ``before`` and ``after`` hold what changed."""

    class Source(models.TextChoices):
        PAGE = "page", "Dashboard"
        API = "api", "API"
        COMMAND = "command", "Command line"
        OUTSIDE = "outside", "Outside"
        SYSTEM = "system", "Odradek itself"

    at = models.DateTimeField(db_index=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    actor_name = models.CharField(max_length=150)
    address = models.CharField(max_length=64, blank=True)
    source = models.CharField(max_length=16, choices=Source)
    action = models.CharField(max_length=64, db_index=True)
    """``topic.create``, ``group.reset``: kind of the target, then the verb."""
    target = models.CharField(max_length=512, db_index=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    failure = models.TextField(blank=True)
    """Why it was refused; empty when it was done."""

    class Meta:
        ordering = ("-at", "-id")
