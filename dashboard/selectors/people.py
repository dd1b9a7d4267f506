"""Users as the Users page lists them."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.paginator import Page, Paginator
from django.db.models import Q

from dashboard.lockout import Lock, locks
from dashboard.models import User

PAGE_SIZE = 50
SORTS = {
    "name": ("username",),
    "role": ("role", "username"),
    "last_login": ("last_login", "username"),
}


@dataclass(frozen=True, slots=True)
class UserPage:
    page: Page[User]
    locks: list[Lock]
    locked_names: frozenset[str]
    sort: str
    is_descending: bool


def users(*, search: str = "", sort: str = "name", page: int = 1) -> UserPage:
    """``sort`` is a key of SORTS, with a minus for descending."""
    is_descending, key = sort.startswith("-"), sort.removeprefix("-")
    if key not in SORTS:
        key, is_descending = "name", False
    order = [f"-{field}" if is_descending else field for field in SORTS[key]]
    found = User.objects.order_by(*order)
    if search:
        found = found.filter(Q(username__icontains=search) | Q(role__icontains=search))
    held = locks()
    return UserPage(
        Paginator(found, PAGE_SIZE).get_page(page),
        held,
        frozenset(lock.username for lock in held if lock.username),
        key,
        is_descending,
    )
