"""Addresses: records of a topic."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views import exports, saved_filters
from dashboard.views.messages import browsing, record

urlpatterns: list[URLPattern | URLResolver] = [
    path("filters/", saved_filters.save, name="saved_filter_save"),
    path("filters/<int:pk>/delete/", saved_filters.delete, name="saved_filter_delete"),
    path("topics/<str:name>/messages/", browsing.browse, name="topic_messages"),
    path("topics/<str:name>/messages/~check/", browsing.try_filter, name="messages_check"),
    path("topics/<str:name>/messages/~export/", exports.create, name="export_create"),
    path("topics/<str:name>/messages/<str:scan_id>/", browsing.poll, name="messages_scan"),
    path("topics/<str:name>/messages/<str:scan_id>/stop/", browsing.stop, name="messages_stop"),
    path("topics/<str:name>/<int:partition>/<int:offset>/", record.record, name="record"),
    path("topics/<str:name>/<int:partition>/<int:offset>/raw/", record.raw, name="record_raw"),
]
