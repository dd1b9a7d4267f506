"""Oneself, users and the audit log."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from ninja import Query, Router, Schema, Status
from pydantic import Field

from dashboard.api.auth import actor_of, may, person
from dashboard.api.shapes import (
    Done,
    Int64,
    Limit,
    PageNumber,
    moment_of,
    responses,
    time_parameter,
)
from dashboard.models import AuditEntry, Role, User
from dashboard.permissions import PERMISSIONS, Permission
from dashboard.selectors import audit as audit_selector
from dashboard.selectors.audit import AuditSearch
from dashboard.services import users as service

router = Router(tags=["People"])
RoleName = Literal["viewer", "operator", "admin"]
Patterns = Annotated[str, Field(max_length=4000, description="Globs separated by commas.")]


class MeOut(Schema):
    """``role`` is what counts here: that of the token, where one was shown."""

    username: str
    role: str
    permissions: list[str]
    readable_topics: str
    exportable_topics: str


class UserOut(Schema):
    id: int
    username: str
    role: str
    readable_topics: str
    exportable_topics: str
    is_active: bool
    must_change_password: bool
    last_login_ms: Int64 | None
    last_login_time: str | None


class UsersOut(Schema):
    users: list[UserOut]


class NewUser(Schema):
    username: str = Field(min_length=1, max_length=150)
    role: RoleName = "viewer"
    readable_topics: Patterns = "*"
    exportable_topics: Patterns = "*"


class MadeUser(UserOut):
    password: str = Field(description="Shown once; has to be changed at the first sign-in.")


class UserChange(Schema):
    """What is left out stays."""

    role: RoleName | None = None
    readable_topics: Patterns | None = None
    exportable_topics: Patterns | None = None
    is_active: bool | None = None


class MadePassword(Schema):
    password: str


class AuditEntryOut(Schema):
    """``failure``: why it was refused; empty when it was done."""

    id: int
    at_ms: Int64
    at_time: str
    actor: str
    address: str
    source: str
    action: str
    target: str
    failure: str


class AuditDetailOut(AuditEntryOut):
    before: Any
    after: Any


class AuditOut(Schema):
    page: int
    has_next: bool
    entries: list[AuditEntryOut]


@router.get("/me", auth=may(Permission.SEE), response=responses(MeOut))
def get_me(request: HttpRequest):  # type: ignore[no-untyped-def]
    """Who this is, and what he may."""
    user = person(request)
    allowed = PERMISSIONS.get(user.role, frozenset())
    return {
        "username": user.username,
        "role": user.role,
        "permissions": sorted(permission.name.lower() for permission in allowed),
        "readable_topics": "*" if user.role == Role.ADMIN else user.readable_topics,
        "exportable_topics": "*" if user.role == Role.ADMIN else user.exportable_topics,
    }


@router.get("/users", auth=may(Permission.MANAGE_PEOPLE), response=responses(UsersOut))
def list_users(request: HttpRequest, search: str = ""):  # type: ignore[no-untyped-def]
    found = User.objects.filter(username__icontains=search).order_by("username")[:1000]
    return {"users": [_user(user) for user in found]}


@router.post("/users", auth=may(Permission.MANAGE_PEOPLE), response=responses(MadeUser, 201))
def add_user(request: HttpRequest, new: NewUser):  # type: ignore[no-untyped-def]
    user, password = service.add(actor=actor_of(request), **new.model_dump())
    return Status(201, {**_user(user), "password": password})


@router.get("/users/{int:user_id}", auth=may(Permission.MANAGE_PEOPLE), response=responses(UserOut))
def get_user(request: HttpRequest, user_id: int):  # type: ignore[no-untyped-def]
    return _user(get_object_or_404(User, pk=user_id))


@router.patch(
    "/users/{int:user_id}", auth=may(Permission.MANAGE_PEOPLE), response=responses(UserOut)
)
def change_user(request: HttpRequest, user_id: int, wanted: UserChange):  # type: ignore[no-untyped-def]
    """Another role, or being shut off, ends the user's sessions."""
    user = get_object_or_404(User, pk=user_id)
    return _user(
        service.change(actor=actor_of(request), user=user, **wanted.model_dump(exclude_none=True))
    )


@router.delete("/users/{int:user_id}", auth=may(Permission.MANAGE_PEOPLE), response=responses(Done))
def delete_user(request: HttpRequest, user_id: int):  # type: ignore[no-untyped-def]
    service.delete(actor=actor_of(request), user=get_object_or_404(User, pk=user_id))
    return {}


@router.post(
    "/users/{int:user_id}/password",
    auth=may(Permission.MANAGE_PEOPLE),
    response=responses(MadePassword),
)
def reset_user_password(request: HttpRequest, user_id: int):  # type: ignore[no-untyped-def]
    """A made password, shown once; all sessions of the user end."""
    user = get_object_or_404(User, pk=user_id)
    return {"password": service.reset_password(actor=actor_of(request), user=user)}


@router.get("/audit", auth=may(Permission.SEE_AUDIT), response=responses(AuditOut))
def list_audit(  # type: ignore[no-untyped-def]
    request: HttpRequest,
    limit: Limit,
    page: PageNumber,
    search: Annotated[str, Query("", max_length=200)] = "",
    who: str = "",
    action: str = "",
    target: str = "",
    source: Annotated[str, Query("", pattern=f"^({'|'.join(AuditEntry.Source.values)})?$")] = "",
    since: Annotated[str, Query("", max_length=40)] = "",
    until: Annotated[str, Query("", max_length=40)] = "",
    refused: bool = False,
):
    """Newest first. Times are RFC 3339 or milliseconds."""
    wanted = AuditSearch(
        search,
        who,
        action,
        target,
        source,
        time_parameter("since", since),
        time_parameter("until", until),
        refused,
    )
    found = audit_selector.page(wanted, page, limit)
    return {
        "page": found.number,
        "has_next": found.has_next,
        "entries": [_entry(entry) for entry in found.entries],
    }


@router.get(
    "/audit/{int:entry_id}", auth=may(Permission.SEE_AUDIT), response=responses(AuditDetailOut)
)
def get_audit_entry(request: HttpRequest, entry_id: int):  # type: ignore[no-untyped-def]
    entry = get_object_or_404(AuditEntry, pk=entry_id)
    return {**_entry(entry), "before": entry.before, "after": entry.after}


def _user(user: User) -> dict[str, Any]:
    same = ("id", "username", "role", "readable_topics", "exportable_topics", "is_active")
    return {
        **{name: getattr(user, name) for name in same},
        "must_change_password": user.must_change_password,
        **moment_of("last_login", user.last_login),
    }


def _entry(entry: AuditEntry) -> dict[str, Any]:
    return {
        "id": entry.pk,
        **moment_of("at", entry.at),
        "actor": entry.actor_name,
        "address": entry.address,
        "source": entry.source,
        "action": entry.action,
        "target": entry.target,
        "failure": entry.failure,
    }
