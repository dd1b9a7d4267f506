"""Who calls the API and whether he may: a bearer token, or the session of a browser with its CSRF token.

Every operation names its permission: ``auth=may(Permission.SEE)``.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja.errors import AuthenticationError, AuthorizationError, HttpError
from ninja.security import APIKeyCookie, HttpBearer
from ninja.utils import check_csrf

from dashboard import permissions
from dashboard.addresses import client_address
from dashboard.bad_tokens import LIMIT, bad_tokens
from dashboard.models import AuditEntry, User
from dashboard.permissions import Permission
from dashboard.services import api_tokens, audit


class Token(HttpBearer):
    """``Authorization: Bearer odk_…``; one that is not in force is refused, whatever else is there."""

    def __init__(self, permission: Permission) -> None:
        super().__init__()
        self.permission = permission

    def __call__(self, request: HttpRequest) -> Any:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        return self.authenticate(request, token.strip())

    def authenticate(self, request: HttpRequest, token: str) -> User:
        address = client_address(request)
        found = api_tokens.holder(token, address)
        if found is None:
            _note_failure(address)
            raise AuthenticationError(401, "This token is unknown, revoked or expired.")
        user, _ = found
        request.user = user
        _check(user, self.permission)
        return user


class Session(APIKeyCookie):
    """The dashboard's own session; what changes something needs ``X-CSRFToken``."""

    def __init__(self, permission: Permission) -> None:
        from django.conf import settings

        self.param_name = settings.SESSION_COOKIE_NAME
        super().__init__(csrf=True)
        self.permission = permission

    def __call__(self, request: HttpRequest) -> Any:
        return self.authenticate(request, None)

    def authenticate(self, request: HttpRequest, key: str | None) -> User | None:
        user = request.user
        if not isinstance(user, User):
            return None
        if check_csrf(request):
            raise AuthorizationError(403, "A session needs X-CSRFToken; programs use a token.")
        _check(user, self.permission)
        return user


def _check(user: User, permission: Permission) -> None:
    if user.must_change_password:
        raise AuthorizationError(403, "The password has to be changed first, in a browser.")
    permissions.check(user, permission)


def _note_failure(address: str) -> None:
    """Raises HttpError instead of the refusal when there were too many."""
    count = bad_tokens.note(address)
    if count == LIMIT:
        nobody = audit.Actor("nobody", AuditEntry.Source.API, address=address)
        audit.record(
            nobody, "token.guess", address, failure=f"{LIMIT} tokens that are not in force"
        )
    if count >= LIMIT:
        raise HttpError(429, "Too many tokens from this address were not in force.")


def may(permission: Permission) -> list[Any]:
    """What an operation asks of its caller."""
    return [Token(permission), Session(permission)]


def actor_of(request: HttpRequest) -> audit.Actor:
    return audit.actor_of(request, AuditEntry.Source.API)


def person(request: HttpRequest) -> User:
    assert isinstance(request.user, User)
    return request.user
