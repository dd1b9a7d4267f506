"""Addresses: brokers, and what is wrong with partitions."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views import brokers, problems

urlpatterns: list[URLPattern | URLResolver] = [
    path("brokers/", brokers.brokers, name="brokers"),
    path("brokers/<int:broker_id>/", brokers.broker, name="broker"),
    path("brokers/<int:broker_id>/settings/<str:key>", brokers.setting, name="broker_setting"),
    path("problems/", problems.problems, name="problems"),
]
