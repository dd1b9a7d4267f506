"""A token of the REST API: what a program shows instead of a password. Only its hash is kept."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from dashboard.models.user import Role


class ApiToken(models.Model):
    """Never more than its owner may: the smaller of the two roles counts."""

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens"
    )
    name = models.CharField(max_length=100)
    role = models.CharField(max_length=16, choices=Role, default=Role.VIEWER)
    digest = models.CharField(max_length=64, unique=True)
    """SHA-256 of the token, in hex: it has 256 random bits, so that no slow hash is needed."""
    hint = models.CharField(max_length=16)
    """Its first characters, by which a person tells it from others."""
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    last_address = models.CharField(max_length=64, blank=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-created_at", "-id")
