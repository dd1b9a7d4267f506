"""Alert rules and silences by the API: read, changed, refused, audited."""

import datetime as dt
from typing import Any

import pytest
from django.utils import timezone

from dashboard.alerting.defaults import make_default_rules
from dashboard.models import AlertChannel, AlertRule, AlertSilence, AuditEntry
from dashboard.times import to_ms
from tests.dashboard.conftest import Ask

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def default_rules() -> None:
    make_default_rules()


def test_the_life_of_a_rule(ask: Ask) -> None:
    channel = AlertChannel.objects.create(name="ops", kind="webhook", url="https://a.example")
    status, made = ask(
        "operator",
        "POST",
        "alert-rules",
        {
            "kind": "group_lag",
            "name": "Orders lag",
            "targets": "orders-*",
            "parameters": {"lag_seconds": 30},
            "is_for_all_channels": False,
            "channels": [channel.pk],
        },
    )
    assert status == 201
    assert made["parameters"] == {"lag_seconds": 30}
    assert made["for_seconds"] == 300  # what the kind begins with
    assert made["channels"] == [{"id": channel.pk, "name": "ops"}]

    status, changed = ask(
        "operator", "PATCH", f"alert-rules/{made['id']}", {"for_seconds": 60, "is_on": False}
    )
    assert status == 200
    assert {name for name in made if made[name] != changed[name]} == {"for_seconds", "is_on"}
    assert ask("viewer", "GET", f"alert-rules/{made['id']}") == (200, changed)
    listed = ask("viewer", "GET", "alert-rules")[1]["rules"]
    assert len(listed) == AlertRule.objects.count()

    assert ask("operator", "DELETE", f"alert-rules/{made['id']}") == (200, {"done": True})
    assert ask("viewer", "GET", f"alert-rules/{made['id']}")[0] == 404
    entries = AuditEntry.objects.filter(target="Orders lag").order_by("pk")
    assert [(one.action, one.source, one.actor_name) for one in entries] == [
        (f"alert_rule.{verb}", "api", "operator") for verb in ("create", "change", "delete")
    ]


def test_a_rule_that_comes_with_odradek_is_switched_off_not_deleted(ask: Ask) -> None:
    rule = AlertRule.objects.get(default_key="disk_floor")
    status, said = ask("admin", "DELETE", f"alert-rules/{rule.pk}")
    assert (status, said["error"]["code"]) == (409, "conflict")
    status, said = ask("admin", "PATCH", f"alert-rules/{rule.pk}", {"is_on": False})
    assert (status, said["is_on"], said["is_built_in"]) == (200, False, True)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"parameters": {"lag_seconds": 0}}, "body.parameters.lag_seconds"),
        ({"parameters": {"hours": 1}}, "body.parameters.hours"),
        ({"channels": [999_999]}, "body.channels"),
        ({"name": "Broker does not answer"}, "body.name"),
        ({"for_seconds": -1}, "body.wanted.for_seconds"),
        ({"severity": "grave"}, "body.wanted.severity"),
        ({"name": "a\x00b"}, "body.name"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(
    ask: Ask, change: dict[str, Any], where: str
) -> None:
    rule = AlertRule.objects.get(default_key="group_lag")
    status, said = ask("operator", "PATCH", f"alert-rules/{rule.pk}", change)
    assert (status, said["error"]["details"][0]["where"]) == (422, where)
    rule.refresh_from_db()
    assert rule.parameters == {"lag_seconds": 60}


def test_the_life_of_a_silence(ask: Ask) -> None:
    rule = AlertRule.objects.get(default_key="group_lag")
    until_ms = to_ms(timezone.now() + dt.timedelta(hours=2))
    new = {"rule_id": rule.pk, "targets": "orders-*", "reason": "moving", "until_ms": until_ms}
    status, made = ask("operator", "POST", "silences", new)
    assert (status, made["until_ms"], made["created_by"]) == (201, until_ms, "operator")
    assert ask("viewer", "GET", "silences")[1]["silences"] == [made]
    assert ask("operator", "DELETE", f"silences/{made['id']}")[0] == 200
    assert ask("viewer", "GET", "silences")[1]["silences"] == []
    assert ask("operator", "DELETE", f"silences/{made['id']}")[0] == 404

    assert ask("operator", "POST", "silences", {**new, "rule_id": 999_999})[0] == 422
    assert ask("operator", "POST", "silences", {**new, "until_ms": 1})[0] == 409
    assert ask("operator", "POST", "silences", {**new, "until_ms": 10**15})[0] == 422
    assert AlertSilence.objects.count() == 1


def test_a_viewer_changes_nothing(ask: Ask) -> None:
    rule = AlertRule.objects.get(default_key="group_lag")
    for method, path, body in (
        ("POST", "alert-rules", {"kind": "group_lag", "name": "x"}),
        ("PATCH", f"alert-rules/{rule.pk}", {"is_on": False}),
        ("DELETE", f"alert-rules/{rule.pk}", None),
        ("POST", "silences", {"reason": "x", "until_ms": 10**13}),
        ("DELETE", "silences/1", None),
    ):
        assert ask("viewer", method, path, body)[0] == 403


def test_the_life_of_a_webhook(ask: Ask) -> None:
    url = "https://hooks.example/services/T0/very-secret"
    status, made = ask(
        "operator", "POST", "alert-channels", {"kind": "webhook", "name": "pager", "url": url}
    )
    assert status == 201
    path = f"alert-channels/{made['id']}"
    assert (made["address"], made["recipients"]) == ("https://hooks.example/…", [])
    assert made["secret"] == AlertChannel.objects.get(name="pager").secret

    status, changed = ask("operator", "PATCH", path, {"is_on": False})
    assert (status, changed["is_on"], changed["secret"]) == (200, False, None)
    assert AlertChannel.objects.get(name="pager").url == url, "what is left out stays"
    status, renewed = ask("operator", "POST", f"{path}/secret", {})
    assert (status, renewed["secret"]) == (200, AlertChannel.objects.get(name="pager").secret)
    assert renewed["secret"] != made["secret"]

    status, queued = ask("operator", "POST", f"{path}/test", {})
    assert (status, queued["state"], queued["event"]) == (201, "queued", "test")
    assert ask("operator", "GET", f"{path}/deliveries")[1]["deliveries"] == [queued]
    told = ask("operator", "GET", "alert-channels")[1]["channels"]
    assert [one["name"] for one in told] == ["pager"]
    assert "secret" not in str(told)
    assert ask("viewer", "GET", "alert-channels")[0] == 403
    assert ask("operator", "DELETE", path) == (200, {"done": True})
    assert ask("operator", "GET", path)[0] == 404
    entries = AuditEntry.objects.filter(target="pager").order_by("pk")
    assert [one.action.partition(".")[2] for one in entries] == [
        "create", "change", "secret", "test", "delete",
    ]  # fmt: skip
    assert not any(made["secret"] in f"{one.before}{one.after}" for one in entries)


def test_a_channel_is_checked_as_on_its_page(ask: Ask) -> None:
    webhook = {"kind": "webhook", "name": "inner", "url": "http://10.0.0.1/"}
    for role, wanted, where in (
        ("operator", {**webhook, "may_reach_private": True}, "may_reach_private"),
        ("operator", {**webhook, "url": "ftp://10.0.0.1/"}, "url"),
        ("operator", {"kind": "webhook", "name": "inner"}, "url"),
        ("operator", {**webhook, "recipients": ["a@example.org"]}, "recipients"),
        ("operator", {"kind": "email", "name": "mail", "recipients": ["a b"]}, "recipients"),
        ("operator", {"kind": "email", "name": "mail", "url": "http://a.example/"}, "url"),
    ):
        status, refused = ask(role, "POST", "alert-channels", wanted)
        assert (status, refused["error"]["details"][0]["where"]) == (422, f"body.{where}"), wanted
    assert not AlertChannel.objects.exists()

    status, made = ask("admin", "POST", "alert-channels", {**webhook, "may_reach_private": True})
    assert (status, made["may_reach_private"]) == (201, True)
    mail = {"kind": "email", "name": "mail", "recipients": ["a@example.org", "b@example.org"]}
    status, made = ask("operator", "POST", "alert-channels", mail)
    assert (status, made["recipients"], made["secret"]) == (201, mail["recipients"], None)
    assert ask("operator", "POST", f"alert-channels/{made['id']}/secret", {})[0] == 404
