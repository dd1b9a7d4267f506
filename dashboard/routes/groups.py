"""Addresses: consumer groups. A group's name can hold anything, so it travels as ``?id=``."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views import group_reset, groups

urlpatterns: list[URLPattern | URLResolver] = [
    path("groups/", groups.group_list, name="groups"),
    path("groups/groups.csv", groups.group_csv, name="groups_csv"),
    path("groups/detail", groups.group_detail, name="group"),
    path("groups/reset", group_reset.group_reset, name="group_reset"),
    path("groups/delete", groups.group_delete, name="group_delete"),
    path("groups/delete-offsets", groups.group_delete_offsets, name="group_delete_offsets"),
]
