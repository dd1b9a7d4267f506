"""Tokens of the REST API: made, shown once, revoked; and whose token a request shows."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets

from django.db.models import Q, QuerySet
from django.utils import timezone

from dashboard.models import ApiToken, Role, User
from dashboard.services import audit
from dashboard.services.audit import Actor

PREFIX = "odk_"
"""Secret scanners find tokens by it."""
MAX_TOKENS = 50
"""Of one person that are in force."""
_HINT_LENGTH = 8
_SEEN_EVERY = dt.timedelta(minutes=1)
"""Using a token writes a row so often at most."""
_RANKS = list(Role.values)


class TokenRefused(Exception):
    """The message is for people."""


def make(
    *, actor: Actor, owner: User, name: str, role: str, expires_at: dt.datetime | None
) -> tuple[ApiToken, str]:
    """The row, and the token itself: nobody can look it up later."""
    with audit.change(actor, "token.make", f"{owner.username}: {name}") as change:
        change.after = {
            "role": role,
            "expires": expires_at.isoformat() if expires_at is not None else "never",
        }
        if role not in _RANKS or _RANKS.index(role) > _RANKS.index(owner.role):
            raise TokenRefused(f"A token of {owner.username} can at most be {owner.role}.")
        if expires_at is not None and expires_at <= timezone.now():
            raise TokenRefused("A token cannot expire before it is made.")
        if in_force(owner).count() >= MAX_TOKENS:
            raise TokenRefused(f"{owner.username} has {MAX_TOKENS} tokens: revoke one first.")
        text = PREFIX + secrets.token_urlsafe(32)
        token = ApiToken.objects.create(
            owner=owner,
            name=name,
            role=role,
            digest=_digest(text),
            hint=text[:_HINT_LENGTH],
            expires_at=expires_at,
        )
    return token, text


def revoke(*, actor: Actor, token: ApiToken) -> None:
    """It is refused from now on; the row stays for what it did."""
    with audit.change(actor, "token.revoke", f"{token.owner.username}: {token.name}"):
        ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now())


def in_force(owner: User) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(
        Q(expires_at=None) | Q(expires_at__gt=timezone.now()), owner=owner, revoked_at=None
    )


def holder(text: str, address: str) -> tuple[User, ApiToken] | None:
    """Whose token this is, the role narrowed to the token's; None when it is not in force."""
    if not text.startswith(PREFIX) or len(text) > 100:
        return None
    token = ApiToken.objects.select_related("owner").filter(digest=_digest(text)).first()
    now = timezone.now()
    if token is None or token.revoked_at is not None:
        return None
    if token.expires_at is not None and token.expires_at <= now:
        return None
    owner = token.owner
    if not owner.is_active:
        return None
    if token.last_used_at is None or now - token.last_used_at > _SEEN_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now, last_address=address)
    # The object stands for this request alone: services save only the fields that they change.
    owner.role = min(owner.role, token.role, key=_RANKS.index)
    return owner, token


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
