"""Addresses: the live tail. Its socket is below them, see ``dashboard.routing``."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views import tail

urlpatterns: list[URLPattern | URLResolver] = [
    path("tail/", tail.tail, name="tail"),
    path("tail/topics/", tail.topics, name="tail_topics"),
]
