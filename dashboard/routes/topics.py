"""Addresses: topics. What is no topic's name begins with ``~``, which no name has."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views.topics import creating, danger, detail, listing, producing, settings

urlpatterns: list[URLPattern | URLResolver] = [
    path("topics/", listing.topics, name="topics"),
    path("topics/~csv/", listing.topics_csv, name="topics_csv"),
    path("topics/~create/", creating.create, name="topic_create"),
    path("topics/~names/", creating.suggest, name="topic_names"),
    path("topics/~delete/", danger.delete, name="topics_delete"),
    path("topics/~empty/", danger.empty, name="topics_empty"),
    path("topics/<str:name>/", detail.partitions, name="topic"),
    path("topics/<str:name>/favourite/", detail.favourite, name="topic_favourite"),
    path("topics/<str:name>/groups/", detail.groups, name="topic_groups"),
    path("topics/<str:name>/settings/", settings.settings, name="topic_settings"),
    path("topics/<str:name>/settings/<str:key>/", settings.setting, name="topic_setting"),
    path("topics/<str:name>/produce/", producing.produce, name="topic_produce"),
    path("topics/<str:name>/connect/", detail.snippets, name="topic_snippets"),
    path("topics/<str:name>/danger/", danger.danger, name="topic_danger"),
    path("topics/<str:name>/partitions/", danger.partitions, name="topic_partitions_add"),
]
