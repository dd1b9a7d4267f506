"""Addresses: probes, figures, the broker's start."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views import health

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("broker-start", health.broker_start, name="broker_start"),
]
