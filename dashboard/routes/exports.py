"""Addresses: exports."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views import exports

urlpatterns: list[URLPattern | URLResolver] = [
    path("exports/", exports.listing, name="exports"),
    path("exports/<int:run_id>/file/", exports.download, name="export_file"),
    path("exports/<int:run_id>/cancel/", exports.cancel, name="export_cancel"),
    path("exports/<int:run_id>/delete/", exports.delete, name="export_delete"),
]
