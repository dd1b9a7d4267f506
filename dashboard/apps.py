"""Django's view of the dashboard."""

from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


def _make_default_rules(**_: Any) -> None:
    from dashboard.alerting.defaults import make_default_rules

    make_default_rules()


class DashboardConfig(AppConfig):
    name = "dashboard"
    verbose_name = "Odradek"

    def ready(self) -> None:
        from dashboard import signals

        signals.connect()
        post_migrate.connect(_make_default_rules, sender=self)
