"""Who may do what: the one table of roles, and the guards that views, sockets and API share."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from enum import Enum
from functools import wraps
from typing import Any, TypeVar, cast

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse

from dashboard.models import Role, User

View = TypeVar("View", bound=Callable[..., HttpResponse])


class Permission(Enum):
    """The value says it in words, for the page that refuses."""

    SEE = "see the cluster"
    READ_RECORDS = "read records of this topic"
    EXPORT_RECORDS = "export records of this topic"
    PRODUCE = "produce records"
    CHANGE_TOPICS = "change topics"
    CHANGE_GROUPS = "change consumer groups"
    ABORT_TRANSACTIONS = "abort transactions"
    MOVE_PARTITIONS = "move partitions and elect leaders"
    CHANGE_ALERTS = "change alerts"
    RUN_JOBS = "run and schedule jobs"
    CHANGE_REPORTS = "change reports"
    CHANGE_BROKERS = "change brokers"
    MANAGE_PEOPLE = "manage users"
    SEE_AUDIT = "see the audit log"


_VIEWER = frozenset({Permission.SEE, Permission.READ_RECORDS, Permission.EXPORT_RECORDS})
_OPERATOR = _VIEWER | {
    Permission.PRODUCE,
    Permission.CHANGE_TOPICS,
    Permission.CHANGE_GROUPS,
    Permission.ABORT_TRANSACTIONS,
    Permission.MOVE_PARTITIONS,
    Permission.CHANGE_ALERTS,
    Permission.RUN_JOBS,
    Permission.CHANGE_REPORTS,
    Permission.SEE_AUDIT,
}
PERMISSIONS: dict[str, frozenset[Permission]] = {
    Role.VIEWER: _VIEWER,
    Role.OPERATOR: _OPERATOR,
    Role.ADMIN: frozenset(Permission),
}


def may(user: Any, permission: Permission, topic: str | None = None) -> bool:
    """Whether this user may; for records ``topic`` says whose."""
    if not getattr(user, "is_authenticated", False) or not user.is_active:
        return False
    known = cast(User, user)
    if permission not in PERMISSIONS.get(known.role, frozenset()):
        return False
    if topic is not None and known.role != Role.ADMIN:
        if permission is Permission.READ_RECORDS:
            return matches(known.readable_topics, topic)
        if permission is Permission.EXPORT_RECORDS:
            return matches(known.readable_topics, topic) and matches(known.exportable_topics, topic)
    return True


def matches(patterns: str, topic: str) -> bool:
    """Whether one of the globs, separated by commas or blanks, is this topic's name."""
    return any(fnmatch.fnmatchcase(topic, glob) for glob in re.split(r"[,\s]+", patterns) if glob)


def check(user: Any, permission: Permission, topic: str | None = None) -> None:
    """Raise PermissionDenied, with words for the page."""
    if not may(user, permission, topic):
        of_topic = f" ({topic})" if topic else ""
        raise PermissionDenied(f"Your role does not allow to {permission.value}{of_topic}.")


def requires(permission: Permission) -> Callable[[View], View]:
    """Guard of a view; views about records check the topic themselves, by ``check``."""

    def wrap(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            check(request.user, permission)
            return view(request, *args, **kwargs)

        return cast(View, guarded)

    return wrap
