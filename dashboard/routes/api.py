"""Addresses: the REST API, its schema and the page that explains it."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from dashboard.api import app

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", include((app.urls(), "api"), namespace="api")),
]
