"""People, their role, and which topics' records they may read and export."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils.crypto import salted_hmac


class Role(models.TextChoices):
    """Each role may do what the one before it may."""

    VIEWER = "viewer", "Viewer"
    OPERATOR = "operator", "Operator"
    ADMIN = "admin", "Admin"


class User(AbstractUser):
    """Patterns are globs (``orders-*``), separated by commas or blanks; ``*`` is every topic."""

    role = models.CharField(max_length=16, choices=Role, default=Role.VIEWER)
    readable_topics = models.TextField(default="*", blank=True)
    exportable_topics = models.TextField(default="*", blank=True)
    must_change_password = models.BooleanField(default=False)
    session_epoch = models.PositiveIntegerField(default=0)
    """Raised to end all sessions: ``services.users`` does, when role or activity change."""
    time_zone = models.CharField(max_length=64, default="browser")
    """``browser``, ``UTC`` or a name of the IANA database."""
    theme = models.CharField(max_length=8, default="auto")
    """``auto``, ``light`` or ``dark``."""
    favourite_topics = models.JSONField(default=list, blank=True)
    """Names, the newest last; ``services.favourites`` bounds them."""

    class Meta:
        swappable = "AUTH_USER_MODEL"

    def _get_session_auth_hash(self, secret: str | bytes | None = None) -> str:
        """A session is good for one password and one epoch: Django and Channels compare this."""
        return salted_hmac(
            "dashboard.User.session",
            f"{self.session_epoch}:{self.password}",
            secret=secret,
            algorithm="sha256",
        ).hexdigest()
