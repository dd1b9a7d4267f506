"""Shuts out who guesses passwords, by user and address, and says until when.

django-axes counts failed sign-ins of the last 15 minutes. Ten of one name from one address shut that
pair out: others can still use the name elsewhere, so nobody can shut somebody else out from afar. A
hundred from one address, whatever the names, shut the address out: one password tried on many names is
guessing too. Trying while shut out changes nothing, so the time that the page names is true.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from axes.handlers.database import AxesDatabaseHandler
from axes.models import AccessAttempt
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from dashboard.addresses import lockout_address

ADDRESS_FACTOR = 10
"""So many times the failures of a pair shut out the address."""

Failure = tuple[dt.datetime, int]
"""When the last one was, and how many."""


@dataclass(frozen=True, slots=True)
class Lock:
    """Without ``username``: the whole address."""

    username: str | None
    address: str | None
    failures: int
    until: dt.datetime


class LockoutHandler(AxesDatabaseHandler):  # type: ignore[misc]  # axes has no types
    def get_failures(self, request: HttpRequest, credentials: dict[str, Any] | None = None) -> int:
        of_pair: int = super().get_failures(request, credentials)
        of_address = sum(count for _, count in _failures(ip_address=lockout_address(request)))
        return max(of_pair, of_address // ADDRESS_FACTOR)


def locked_out_page(
    request: HttpRequest, response: HttpResponse | None, credentials: dict[str, Any] | None
) -> HttpResponse:
    """What somebody who is shut out sees instead of another try."""
    username = (credentials or {}).get("username") or request.POST.get("username", "")
    lock = lock_of(username, lockout_address(request))
    until = lock.until if lock is not None else timezone.now() + settings.AXES_COOLOFF_TIME
    page = render(
        request,
        "dashboard/locked_out.html",
        {"until": until, "is_address": lock is not None and lock.username is None},
        status=429,
    )
    page["Retry-After"] = str(max(1, int((until - timezone.now()).total_seconds()) + 1))
    return page


def lock_of(username: str, address: str | None) -> Lock | None:
    """What shuts this name from this address out; None when nothing does."""
    limit = settings.AXES_FAILURE_LIMIT
    found = [
        _lock(username, address, _failures(username=username, ip_address=address), limit),
        _lock(None, address, _failures(ip_address=address), limit * ADDRESS_FACTOR),
    ]
    return max((lock for lock in found if lock), key=lambda lock: lock.until, default=None)


def locks() -> list[Lock]:
    """All that hold now; the one that ends first comes first."""
    limit = settings.AXES_FAILURE_LIMIT
    by_pair: dict[tuple[str | None, str | None], list[Failure]] = {}
    by_address: dict[str | None, list[Failure]] = {}
    rows = AccessAttempt.objects.filter(attempt_time__gte=_threshold()).values_list(
        "username", "ip_address", "attempt_time", "failures_since_start"
    )
    for username, address, at, count in rows:
        by_pair.setdefault((username, address), []).append((at, count))
        by_address.setdefault(address, []).append((at, count))
    found = [
        _lock(username, address, failures, limit)
        for (username, address), failures in by_pair.items()
    ]
    found += [
        _lock(None, address, failures, limit * ADDRESS_FACTOR)
        for address, failures in by_address.items()
    ]
    return sorted((lock for lock in found if lock), key=lambda lock: lock.until)


def release(*, username: str | None, address: str | None) -> int:
    """Forget the failures of a name everywhere, of an address, or of one pair; how many rows."""
    assert username is not None or address is not None
    attempts = AccessAttempt.objects.all()
    if username is not None:
        attempts = attempts.filter(username=username)
    if address is not None:
        attempts = attempts.filter(ip_address=address)
    count: int = attempts.delete()[0]
    return count


def _threshold() -> dt.datetime:
    cool_off: dt.timedelta = settings.AXES_COOLOFF_TIME
    return timezone.now() - cool_off


def _failures(**kwargs: Any) -> list[Failure]:
    return list(
        AccessAttempt.objects.filter(attempt_time__gte=_threshold(), **kwargs).values_list(
            "attempt_time", "failures_since_start"
        )
    )


def _lock(
    username: str | None, address: str | None, failures: Iterable[Failure], limit: int
) -> Lock | None:
    """It ends when enough of the oldest failures are forgotten."""
    left = total = sum(count for _, count in failures)
    for at, count in sorted(failures):
        left -= count
        if total >= limit > left:
            return Lock(username, address, total, at + settings.AXES_COOLOFF_TIME)
    return None
