"""Ticks against real rows: what is told, once each, whoever evaluates."""

import datetime as dt
from collections.abc import Callable

import pytest
from django.utils import timezone

from dashboard import leases
from dashboard.alerting import deliveries, evaluator, housekeeping
from dashboard.alerting.defaults import make_default_rules
from dashboard.alerting.kinds import KINDS
from dashboard.alerting.machine import MAX_OPEN, OVERFLOW
from dashboard.alerting.sources import Sources, from_ms
from dashboard.models import (
    Alert,
    AlertChannel,
    AlertDelivery,
    AlertRule,
    AlertSilence,
    Lease,
    User,
)
from dashboard.services import alerts
from dashboard.services.audit import Actor
from tests.dashboard.alerting.conftest import START_MS, Evaluation, group, snapshot

pytestmark = pytest.mark.django_db
ACTOR = Actor("olga", "page")


def test_fires_once_and_resolves_once(evaluation: Evaluation) -> None:
    for _ in range(3):
        evaluation.see("billing")
    for _ in range(3):
        evaluation.see()

    assert evaluation.told == [("firing", ["billing"]), ("resolved", ["billing"])]
    assert evaluation.states == {"billing": "resolved"}


def test_what_happens_at_once_is_one_message(evaluation: Evaluation) -> None:
    evaluation.see("a", "b", "c")
    evaluation.see("c")

    assert evaluation.told == [("firing", ["a", "b", "c"]), ("resolved", ["a", "b"])]
    body = AlertDelivery.objects.earliest("pk").body
    assert body["text"].splitlines()[0].startswith("FIRING (warning): rule")
    assert len(body["text"].splitlines()) == 4


def test_a_pending_alert_survives_a_restart(make_rule: Callable[..., AlertRule]) -> None:
    """The rows are the only memory there is: each tick is a restart."""
    evaluation = Evaluation(make_rule(for_seconds=120))
    evaluation.see("g")
    assert evaluation.states == {"g": "pending"}
    evaluation.see("g")
    evaluation.see("g")

    assert evaluation.states == {"g": "firing"}
    assert Alert.objects.get().since == from_ms(START_MS + 60_000)


def test_a_withdrawn_alert_leaves_no_row(make_rule: Callable[..., AlertRule]) -> None:
    evaluation = Evaluation(make_rule(for_seconds=120))
    evaluation.see("g")
    evaluation.see()

    assert evaluation.states == {}


def test_repeated_by_the_hour(evaluation: Evaluation) -> None:
    for _ in range(125):
        evaluation.see("g")

    assert [event for event, _ in evaluation.told] == ["firing", "repeated", "repeated"]


def test_who_lost_the_lease_writes_nothing(evaluation: Evaluation) -> None:
    Lease.objects.create(name=leases.ALERTS, holder="other:2", until=timezone.now())
    seen = snapshot(START_MS, group("g", 120_000))

    with pytest.raises(evaluator.LeaseLost):
        evaluator.evaluate(Sources(START_MS, seen), "me:1")

    assert evaluation.states == {}
    assert evaluation.told == []


def test_a_tick_by_figures_that_were_changed_meanwhile_writes_nothing(
    evaluation: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = evaluator.observe

    def changed_meanwhile(*arguments: object) -> object:
        alerts.switch_rule(actor=ACTOR, rule=AlertRule.objects.get(is_on=True), is_on=False)
        return real(*arguments)

    monkeypatch.setattr(evaluator, "observe", changed_meanwhile)
    evaluation.see("g")

    assert evaluation.states == {}


def test_a_rule_that_is_switched_off_ends_its_alerts_at_once(evaluation: Evaluation) -> None:
    evaluation.see("g")
    alerts.switch_rule(actor=ACTOR, rule=evaluation.rule, is_on=False)

    assert evaluation.told == [("firing", ["g"]), ("resolved", ["g"])]
    assert Alert.objects.get().resolution == "the rule was switched off"
    evaluation.see("g")
    assert len(evaluation.told) == 2


def test_a_deleted_rule_leaves_its_history(evaluation: Evaluation) -> None:
    evaluation.see("g")
    name = evaluation.rule.name
    alerts.delete_rule(actor=ACTOR, rule=evaluation.rule)

    kept = Alert.objects.get()
    assert (kept.rule, kept.rule_name, kept.state) == (None, name, "resolved")
    assert [event for event, _ in evaluation.told] == ["firing", "resolved"]


def test_rules_that_come_with_odradek_are_made_once_and_cannot_be_deleted() -> None:
    make_default_rules()
    assert AlertRule.objects.exclude(default_key=None).count() == len(KINDS)
    with pytest.raises(alerts.AlertRefused):
        alerts.delete_rule(actor=ACTOR, rule=AlertRule.objects.get(default_key="group_lag"))


def test_a_silence_holds_back_until_it_ends(evaluation: Evaluation) -> None:
    silence = AlertSilence.objects.create(
        rule=evaluation.rule, targets="b*", reason="r", until=from_ms(START_MS + 600_000)
    )
    evaluation.see("billing", "orders")
    assert evaluation.told == [("firing", ["orders"])]

    silence.delete()
    evaluation.see("billing", "orders")
    assert evaluation.told == [("firing", ["orders"]), ("firing", ["billing"])]


def test_only_the_rules_channels_are_told_and_those_hear_of_the_end(evaluation: Evaluation) -> None:
    first = AlertChannel.objects.get()
    second = AlertChannel.objects.create(name="second", kind="email", recipients="a@b.c")
    evaluation.rule.is_for_all_channels = False
    alerts.save_rule(actor=ACTOR, rule=evaluation.rule, channels=[second])
    evaluation.see("g")
    alerts.save_rule(actor=ACTOR, rule=evaluation.rule, channels=[first])
    evaluation.see()

    told = AlertDelivery.objects.order_by("pk").values_list("event", "channel__name")
    assert list(told) == [("firing", "second"), ("resolved", "second")]


def test_a_channel_that_is_off_is_not_told(evaluation: Evaluation) -> None:
    AlertChannel.objects.update(is_on=False)
    evaluation.see("g")

    assert evaluation.told == []


def test_a_full_queue_drops_what_comes_and_says_so(
    evaluation: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "MAX_QUEUED", 3)
    for _ in range(3):
        evaluation.see("g")
        evaluation.see()

    rows = AlertDelivery.objects.order_by("pk")
    assert [row.state for row in rows] == ["queued"] * 3 + ["dropped"] * 3
    assert rows.last().outcome == "3 messages wait for this channel already"  # type: ignore[union-attr]


def test_very_many_targets_are_bounded_in_rows_and_messages(evaluation: Evaluation) -> None:
    evaluation.see(*(f"g{number}" for number in range(1000)))

    assert Alert.objects.count() == MAX_OPEN + 1
    (row,) = AlertDelivery.objects.all()
    assert len(row.body["alerts"]) == MAX_OPEN + 1
    assert "and 81 more" in row.body["text"]
    assert Alert.objects.get(target=OVERFLOW).value == 900


def test_a_flapping_group_is_told_a_bounded_number_of_times(evaluation: Evaluation) -> None:
    for _ in range(20):
        evaluation.see("g", after_s=30)
        evaluation.see(after_s=30)

    assert [event for event, _ in evaluation.told] == ["firing", "resolved"] * 3 + ["firing"]
    assert Alert.objects.get(state="firing").is_flapping


def test_one_broken_rule_does_not_stop_the_others(
    evaluation: Evaluation,
    make_rule: Callable[..., AlertRule],
    caplog: pytest.LogCaptureFixture,
) -> None:
    make_rule(name="a broken one", parameters={"lag_seconds": "x"})
    evaluation.see("g")

    assert evaluation.states == {"g": "firing"}
    assert "a broken one" in caplog.text


def test_hostile_names_stay_one_line(evaluation: Evaluation) -> None:
    evaluation.see("evil\r\nBcc: x@y\x1b[31m" + "x" * 500)

    (row,) = AlertDelivery.objects.all()
    assert len(row.body["text"].splitlines()) == 2
    assert len(row.body["alerts"][0]["target"]) == 300


def test_the_tables_are_bounded(evaluation: Evaluation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "MAX_HISTORY", 5)
    monkeypatch.setattr(housekeeping, "MAX_DELIVERIES", 4)
    for _ in range(8):
        evaluation.see("g", after_s=4000)
        evaluation.see(after_s=4000)
    AlertDelivery.objects.update(state="sent", finished_at=from_ms(evaluation.now_ms))
    housekeeping.prune(from_ms(evaluation.now_ms))
    assert (Alert.objects.count(), AlertDelivery.objects.count()) == (5, 4)

    housekeeping.prune(from_ms(evaluation.now_ms) + dt.timedelta(days=366))
    assert (Alert.objects.count(), AlertDelivery.objects.count()) == (0, 0)


def test_secrets_and_paths_of_addresses_are_not_audited() -> None:
    admin = User.objects.create_user("ada", role="admin")
    channel = AlertChannel(name="slack", kind="webhook", url="https://hooks.example/T0/B0/xyzzy")
    secret = alerts.save_channel(actor=Actor("ada", "page", admin), channel=channel)
    assert secret is not None

    from dashboard.models import AuditEntry

    (entry,) = AuditEntry.objects.filter(action="alert_channel.create")
    assert "xyzzy" not in str(entry.after)
    assert secret not in str(entry.after)


def test_only_an_admin_opens_the_way_to_private_addresses() -> None:
    operator = User.objects.create_user("olga", role="operator")
    channel = AlertChannel(name="c", kind="webhook", url="http://10.0.0.1/", may_reach_private=True)
    with pytest.raises(alerts.AlertRefused):
        alerts.save_channel(actor=Actor("olga", "page", operator), channel=channel)
