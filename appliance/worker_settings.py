"""The worker's settings: the appliance's, without what only pages need (a third of the memory)."""

from __future__ import annotations

from appliance.settings import *  # noqa: F403

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "axes",
    "django_celery_beat",
    "dashboard",
]
MIDDLEWARE = []
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
SILENCED_SYSTEM_CHECKS = ["axes.W002", "axes.W003", "axes.E001", "admin.E410"]
LOGGING["loggers"]["celery"] = {"level": "WARNING"}  # type: ignore[index]  # noqa: F405
