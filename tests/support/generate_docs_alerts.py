"""docs/odradek-alerts.yml: the rules that come with Odradek, for Prometheus."""

import os


def render() -> str:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    import django
    from django.apps import apps

    if not apps.ready:
        django.setup()
    from dashboard.alerting.defaults import default_values
    from dashboard.alerting.kinds import KINDS
    from dashboard.alerting.prometheus import rule_file
    from dashboard.models import AlertRule

    rules = [AlertRule(name=kind.label, **default_values(kind)) for kind in KINDS.values()]
    return rule_file(rule for rule in rules if rule.is_on)
