"""The Alerts pages: what fires and fired, rules, channels, silences."""

from dashboard.views.alerts import channels, pages, rules, silences

__all__ = ["channels", "pages", "rules", "silences"]
