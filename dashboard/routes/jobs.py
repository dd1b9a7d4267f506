"""Addresses: jobs, their schedules and runs."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views.jobs import runs, schedules

urlpatterns: list[URLPattern | URLResolver] = [
    path("jobs/", schedules.listing, name="jobs"),
    path("jobs/runs/", runs.listing, name="job_runs"),
    path("jobs/runs/<int:run_id>/", runs.detail, name="job_run"),
    path("jobs/runs/<int:run_id>/log/", runs.log, name="job_run_log"),
    path("jobs/runs/<int:run_id>/cancel/", runs.cancel, name="job_run_cancel"),
    path("jobs/schedules/new/", schedules.create, name="schedule_create"),
    path("jobs/schedules/preview/", schedules.preview, name="schedule_preview"),
    path("jobs/schedules/<int:pk>/", schedules.change, name="schedule"),
    path("jobs/schedules/<int:pk>/run/", schedules.run, name="schedule_run"),
    path("jobs/schedules/<int:pk>/switch/", schedules.switch, name="schedule_switch"),
    path("jobs/schedules/<int:pk>/delete/", schedules.delete, name="schedule_delete"),
]
