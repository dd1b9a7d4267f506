"""What the Overview says of the cluster: its health counts what fires; who may come in is told."""

from dataclasses import replace

import pytest
from django.test import Client

from dashboard.models import Alert, Severity, User
from dashboard.selectors.alerts import OpenRow
from dashboard.selectors.health import health_of, open_listeners
from dashboard.snapshots import BrokerState, ClusterSnapshot, PartitionState, TopicState

BROKER = BrokerState(1, "127.0.0.1", 9092, None, True, 0, 0)
WELL = ClusterSnapshot(1, "id", 1, {1: BROKER}, {})


def row(severity: Severity, text: str, *, is_silenced: bool = False) -> OpenRow:
    return OpenRow(Alert(severity=severity, text=text), is_silenced)


def test_a_firing_critical_alert_makes_it_unhealthy_and_says_where_to_look() -> None:
    health = health_of(WELL, [row(Severity.CRITICAL, "The disk is full.")])

    assert (health.level, health.words) == ("bad", "Unhealthy")
    (reason,) = health.reasons
    assert reason.text == "1 critical alert fires: The disk is full."
    assert (reason.url, reason.link) == ("/alerts/", "Alerts")


def test_alerts_are_counted_by_severity_the_gravest_first() -> None:
    firing = [
        row(Severity.WARNING, "g lags", is_silenced=True),
        row(Severity.WARNING, "h lags"),
        row(Severity.CRITICAL, "t is offline", is_silenced=True),
    ]

    reasons = health_of(WELL, firing).reasons

    assert [(one.level, one.text) for one in reasons] == [
        ("bad", "1 critical alert fires, silenced: t is offline."),
        ("warn", "2 warning alerts fire, 1 silenced: g lags and 1 more."),
    ]


def test_what_is_for_information_leaves_it_healthy() -> None:
    assert health_of(WELL, [row(Severity.INFO, "by the way")]).words == "Healthy"


def test_before_the_first_snapshot_alerts_tell_already() -> None:
    assert health_of(None).words == "Not known yet"
    assert health_of(None, [row(Severity.WARNING, "w")]).words == "Not known yet"
    assert health_of(None, [row(Severity.CRITICAL, "c")]).words == "Unhealthy"


def topic(name: str, replicas: tuple[int, ...], *, is_internal: bool = True) -> TopicState:
    partition = PartitionState(0, replicas[0], 0, replicas, replicas)
    return TopicState(name, None, is_internal, (partition,))


def test_internal_topics_with_fewer_replicas_than_there_are_brokers_for_are_told() -> None:
    three = {number: replace(BROKER, broker_id=number) for number in (1, 2, 3)}
    topics = [
        topic("__consumer_offsets", (1, 2)),
        topic("__transaction_state", (1, 2, 3)),
        topic("orders", (1,), is_internal=False),
    ]
    cluster = ClusterSnapshot(1, "id", 1, three, {each.name: each for each in topics})

    (reason,) = health_of(cluster).reasons
    assert reason.level == "warn"
    assert reason.text.startswith("__consumer_offsets has fewer than 3 replicas")
    assert "odradek cluster join --execute" in reason.text

    gone = three | {3: replace(three[3], host="")}
    texts = [each.text for each in health_of(replace(cluster, brokers=gone)).reasons]
    assert texts == ["Broker 3 is not in the cluster."]
    alone = replace(cluster, brokers={1: BROKER}, topics={"__consumer_offsets": topics[0]})
    assert health_of(alone).words == "Healthy"


def test_listeners_that_let_anybody_in_from_elsewhere_are_named() -> None:
    elsewhere = ClusterSnapshot(1, "id", 1, {1: replace(BROKER, host="10.1.2.3")}, {})

    assert open_listeners(elsewhere, is_plain=True) == ("10.1.2.3:9092",)
    assert open_listeners(elsewhere, is_plain=False) == ()
    assert open_listeners(WELL, is_plain=True) == ()


@pytest.mark.django_db
def test_the_overview_says_that_anybody_may_come_in(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.force_login(User.objects.create_user("vera", role="viewer"))
    words = "Anybody who reaches this machine can read and write every topic."
    for host, is_said in (("10.1.2.3", True), ("127.0.0.1", False)):
        snapshot = ClusterSnapshot(1, "id", 1, {1: replace(BROKER, host=host)}, {})
        monkeypatch.setattr("dashboard.views.overview.look_now", lambda shown=snapshot: shown)

        assert (words in client.get("/").content.decode()) is is_said, host
