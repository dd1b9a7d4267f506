"""Addresses: brokers, and what is wrong with partitions."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views import brokers, moves, problems

urlpatterns: list[URLPattern | URLResolver] = [
    path("brokers/", brokers.brokers, name="brokers"),
    path("brokers/<int:broker_id>/", brokers.broker, name="broker"),
    path("brokers/<int:broker_id>/settings/<str:key>", brokers.setting, name="broker_setting"),
    path("brokers/moves/", moves.moves, name="moves"),
    path("brokers/moves/plan", moves.plan, name="moves_plan"),
    path("brokers/moves/cancel", moves.cancel, name="moves_cancel"),
    path("brokers/moves/elect", moves.elect, name="leaders_elect"),
    path("problems/", problems.problems, name="problems"),
]
