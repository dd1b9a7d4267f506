"""What every page needs to know about the person: time zone, and a password that has to be changed."""

from __future__ import annotations

import contextlib
import zoneinfo
from collections.abc import Callable
from urllib.parse import unquote

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone

from dashboard.models import User

BROWSER_ZONE_COOKIE = "odradek_zone"
"""The browser's own zone, told by its script: used when the person chose ``browser``."""
OPEN_WITH_OLD_PASSWORD = frozenset({"password_change", "logout", "preferences"})


class DashboardMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with timezone.override(zone_of(request)):
            return self._get_response(request)

    def process_view(self, request: HttpRequest, *_: object) -> HttpResponse | None:
        user = request.user
        if not (isinstance(user, User) and user.must_change_password):
            return None
        match = request.resolver_match
        name = match.url_name if match else None
        if name in OPEN_WITH_OLD_PASSWORD or (match and match.namespace == "api"):
            # The API refuses by itself, in its own shape.
            return None
        return redirect(reverse("password_change"))


def zone_of(request: HttpRequest) -> zoneinfo.ZoneInfo:
    """The chosen zone; UTC when the browser has not told its own yet."""
    name = getattr(request.user, "time_zone", "browser")
    if name == "browser":
        name = unquote(request.COOKIES.get(BROWSER_ZONE_COOKIE, "UTC"))
    with contextlib.suppress(zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return zoneinfo.ZoneInfo(name)
    return zoneinfo.ZoneInfo("UTC")
