"""Addresses: the REST API, its schema and the page that explains it.

The API is put together when something below its prefix is first asked for: its shapes take 20 MB and half a
second of a start, which a node that only people look at does without.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponseBase
from django.urls import URLPattern, URLResolver, path
from django.urls.resolvers import RoutePattern


class LaterResolver(URLResolver):
    """Looks into its module when an address of it is resolved or made, not when others are."""

    _populated: bool  # of Django's, which its types leave out

    def _populate(self) -> None:
        """Asked by the resolver above, which wants no more of a namespace than its prefix."""

    @property
    def reverse_dict(self) -> Any:
        self._look()
        return super().reverse_dict

    @property
    def namespace_dict(self) -> Any:
        self._look()
        return super().namespace_dict

    @property
    def app_dict(self) -> Any:
        self._look()
        return super().app_dict

    def _look(self) -> None:
        if not self._populated:
            super()._populate()


@login_not_required
def docs(request: HttpRequest) -> HttpResponseBase:
    """Has a name outside of the API, for every page links to it."""
    from dashboard.api.patterns import docs as page

    answer: HttpResponseBase = page(request)
    return answer


urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/docs", docs, name="api_docs"),
    LaterResolver(
        RoutePattern("api/v1/"), "dashboard.api.patterns", app_name="api", namespace="api"
    ),
]
