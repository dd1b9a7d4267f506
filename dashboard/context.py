"""What every template can use: navigation, the chosen zone, what the cluster is called."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from dashboard.permissions import Permission, may
from dashboard.selectors import alerts
from dashboard.snapshots import shelf


class NavigationItem(NamedTuple):
    url_name: str
    label: str
    key: str
    """After ``g``: the keys that lead to it."""
    permission: Permission
    section: str
    """First part of the path of every page that belongs to it."""


NAVIGATION = (
    NavigationItem("overview", "Overview", "o", Permission.SEE, ""),
    NavigationItem("topics", "Topics", "t", Permission.SEE, "topics"),
    NavigationItem("tail", "Live tail", "l", Permission.READ_RECORDS, "tail"),
    NavigationItem("groups", "Groups", "g", Permission.SEE, "groups"),
    NavigationItem("transactions", "Transactions", "x", Permission.SEE, "transactions"),
    NavigationItem("brokers", "Brokers", "b", Permission.SEE, "brokers"),
    NavigationItem("problems", "Problems", "p", Permission.SEE, "problems"),
    NavigationItem("alerts", "Alerts", "a", Permission.SEE, "alerts"),
    NavigationItem("reports", "Reports", "r", Permission.SEE, "reports"),
    NavigationItem("jobs", "Jobs", "j", Permission.SEE, "jobs"),
    NavigationItem("retention", "Retention", "n", Permission.SEE, "retention"),
    NavigationItem("storage", "Storage", "s", Permission.SEE, "storage"),
    NavigationItem("exports", "Exports", "e", Permission.EXPORT_RECORDS, "exports"),
    NavigationItem("audit", "Audit", "d", Permission.SEE_AUDIT, "audit"),
    NavigationItem("users", "Users", "u", Permission.MANAGE_PEOPLE, "users"),
)


def dashboard(request: HttpRequest) -> dict[str, Any]:
    user = getattr(request, "user", None)
    snapshot = shelf.peek()
    theme = getattr(user, "theme", None) or request.COOKIES.get("odradek_theme", "auto")
    return {
        "theme": theme if theme in ("light", "dark") else "auto",
        "zone_name": timezone.get_current_timezone_name(),
        "zone_choice": getattr(user, "time_zone", "browser"),
        "version": settings.ODRADEK_VERSION,
        "is_cluster_silent": snapshot is None or snapshot.failure is not None,
        "navigation": navigation(request, user),
        "may": _Allowed(user),
        "firing_alerts": SimpleLazyObject(alerts.firing),
    }


def navigation(request: HttpRequest, user: Any) -> list[dict[str, Any]]:
    """The pages that this person may see, for the bar at the side and the box that goes anywhere."""
    if not getattr(user, "is_authenticated", False):
        return []
    section = request.path_info.strip("/").partition("/")[0]
    items = []
    for item in NAVIGATION:
        if not may(user, item.permission):
            continue
        try:
            url = reverse(item.url_name)
        except NoReverseMatch:
            continue
        items.append(
            {
                "url": url,
                "label": item.label,
                "icon": item.url_name,
                "key": item.key,
                "is_here": section == item.section,
                "count": alerts.firing_count.get() if item.url_name == "alerts" else 0,
            }
        )
    return items


class _Allowed:
    """``{% if may.change_topics %}``: the names of Permission, in lower case."""

    def __init__(self, user: Any) -> None:
        self._user = user

    def __getitem__(self, name: str) -> bool:
        return may(self._user, Permission[name.upper()])
