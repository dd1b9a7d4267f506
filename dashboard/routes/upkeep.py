"""Addresses: what retention and compaction do, and what the appliance stores of its own."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views import retention, storage

urlpatterns: list[URLPattern | URLResolver] = [
    path("retention/", retention.listing, name="retention"),
    path("retention/~run/", retention.run, name="retention_run"),
    path("retention/<str:name>/", retention.of_topic, name="retention_topic"),
    path("storage/", storage.storage, name="storage"),
]
