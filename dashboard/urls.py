"""All pages, by area."""

from __future__ import annotations

from importlib import import_module

from django.urls import URLPattern, URLResolver

AREAS = (
    "health", "overview", "topics", "messages", "tail", "groups", "transactions", "brokers", "alerts", "people",
    "exports", "reports", "jobs", "upkeep", "api",
)  # fmt: skip

urlpatterns: list[URLPattern | URLResolver] = [
    pattern for area in AREAS for pattern in import_module(f"dashboard.routes.{area}").urlpatterns
]
