"""Addresses: reports."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views import reports

urlpatterns: list[URLPattern | URLResolver] = [
    path("reports/", reports.listing, name="reports"),
    path("reports/new/", reports.create, name="report_create"),
    path("reports/<str:name>/", reports.detail, name="report"),
    path("reports/<str:name>/change/", reports.change, name="report_change"),
    path("reports/<str:name>/run/", reports.start, name="report_start"),
    path("reports/<str:name>/forget/", reports.forget, name="report_forget"),
    path("reports/<str:name>/delete/", reports.delete, name="report_delete"),
    path("reports/<str:name>/runs/<int:run_id>/", reports.run, name="report_run"),
    path("reports/<str:name>/runs/<int:run_id>/chart", reports.chart, name="report_chart"),
    path("reports/<str:name>/runs/<int:run_id>/cancel/", reports.cancel, name="report_cancel"),
    path("reports/<str:name>/runs/<int:run_id>/<str:file>", reports.download, name="report_file"),
]
