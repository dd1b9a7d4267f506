"""Addresses: alerts."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboard.views.alerts import channels, pages, rules, silences

urlpatterns: list[URLPattern | URLResolver] = [
    path("alerts/", pages.index, name="alerts"),
    path("alerts/open/", pages.open_part, name="alerts_open"),
    path("alerts/history/", pages.history, name="alert_history"),
    path("alerts/deliveries/", pages.deliveries, name="alert_deliveries"),
    path("alerts/deliveries/<int:pk>/", pages.delivery, name="alert_delivery"),
    path("alerts/odradek-alerts.yml", pages.prometheus_rules, name="alert_prometheus"),
    path("alerts/rules/new/", rules.create, name="alert_rule_create"),
    path("alerts/rules/<int:pk>/", rules.change, name="alert_rule"),
    path("alerts/rules/<int:pk>/switch/", rules.switch, name="alert_rule_switch"),
    path("alerts/rules/<int:pk>/delete/", rules.delete, name="alert_rule_delete"),
    path("alerts/channels/new/", channels.create, name="alert_channel_create"),
    path("alerts/channels/<int:pk>/", channels.change, name="alert_channel"),
    path("alerts/channels/<int:pk>/test/", channels.test, name="alert_channel_test"),
    path("alerts/channels/<int:pk>/secret/", channels.renew_secret, name="alert_channel_secret"),
    path("alerts/channels/<int:pk>/delete/", channels.delete, name="alert_channel_delete"),
    path("alerts/silences/new/", silences.create, name="alert_silence_create"),
    path("alerts/silences/<int:pk>/end/", silences.end, name="alert_silence_end"),
]
