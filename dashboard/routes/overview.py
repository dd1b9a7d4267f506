"""Addresses: the first page, and history for charts."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views import jump, overview, samples

urlpatterns: list[URLPattern | URLResolver] = [
    path("", overview.overview, name="overview"),
    path("jump/", jump.jump, name="jump"),
    path("samples", samples.history, name="samples"),
]
