"""Sign-ins into the audit log: those that went well, those that failed, and lockouts.

A try while shut out is not counted and not written down: who guesses must not fill the log either.
"""

from __future__ import annotations

from typing import Any

from axes.signals import user_locked_out
from django.conf import settings
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.http import HttpRequest

from dashboard.addresses import client_address
from dashboard.models import AuditEntry, User
from dashboard.services import audit
from dashboard.services.first_admin import forget_password_of

SIGN_IN = "user.sign_in"
SIGN_OUT = "user.sign_out"
LOCKOUT = "user.lockout"


def connect() -> None:
    """Called once, when all apps are there."""
    user_logged_in.connect(_signed_in, dispatch_uid="audit")
    user_logged_in.connect(_forget_initial_password, dispatch_uid="initial-password")
    user_logged_out.connect(_signed_out, dispatch_uid="audit")
    user_login_failed.connect(_failed, dispatch_uid="audit")
    user_locked_out.connect(_locked_out, dispatch_uid="audit")


def _actor(request: HttpRequest, user: User | None, name: str) -> audit.Actor:
    return audit.Actor(
        name[:150] or "nobody", AuditEntry.Source.PAGE, user, client_address(request)
    )


def _signed_in(request: HttpRequest | None, user: User, **_: Any) -> None:
    if request is not None:
        audit.record(_actor(request, user, user.username), SIGN_IN, user.username)


def _forget_initial_password(user: User, **_: Any) -> None:
    """Whoever signs in with the made password is made to change it: the file has served."""
    if user.must_change_password:
        forget_password_of(user, settings.DATA_DIR)


def _signed_out(request: HttpRequest | None, user: User | None, **_: Any) -> None:
    if request is not None and user is not None:
        audit.record(_actor(request, user, user.username), SIGN_OUT, user.username)


def _failed(credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    if request is None or not _was_counted(request):
        return
    name = str(credentials.get("username") or "")
    audit.record(_actor(request, None, name), SIGN_IN, name, failure="Name or password was wrong.")


def _locked_out(request: HttpRequest, username: str | None, ip_address: str, **_: Any) -> None:
    if not _was_counted(request):
        return
    name = username or ""
    failures = getattr(request, "axes_failures_since_start", 0)
    audit.record(
        _actor(request, None, name),
        LOCKOUT,
        name,
        after={"address": ip_address, "failures": failures},
        failure="Too many failed sign-ins.",
    )


def _was_counted(request: HttpRequest) -> bool:
    """django-axes leaves it None while the client is shut out."""
    return getattr(request, "axes_failures_since_start", None) is not None
