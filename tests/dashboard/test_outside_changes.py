"""What others change on the cluster, told apart from what was changed here; on real brokers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from broker.clock import SystemClock
from dashboard import outside_changes
from dashboard.cluster import DEFAULT_BROKER, ConfigChange, ConfigOperation
from dashboard.collector import Collector
from dashboard.gateway import Gateway
from dashboard.models import AuditEntry
from dashboard.outside_changes import OutsideChanges
from dashboard.services import audit
from dashboard.snapshots import SnapshotShelf

pytestmark = pytest.mark.django_db
ADA = audit.Actor("ada", AuditEntry.Source.PAGE)


@dataclass
class Hand:
    """A clock that a test moves."""

    now_ms: int

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class Watch:
    """Looks at a real cluster whenever a test says so; ten seconds apart as it believes."""

    def __init__(self, gateway: Gateway, start_ms: int) -> None:
        self.gateway = gateway
        self.clock = Hand(start_ms)
        self.changes = OutsideChanges(self.clock)
        self.collector = Collector(
            lambda: gateway, SnapshotShelf(), self.clock, [self.changes.look]
        )

    def look(self) -> None:
        self.clock.now_ms += 10_000
        assert self.collector.tick()
        self.collector.follow()

    def told(self, target: str) -> list[tuple[str, Any, Any]]:
        """What was written down, after it has waited long enough."""
        self.look()
        entries = AuditEntry.objects.filter(target=target, source="outside").order_by("pk")
        return [(entry.action, entry.before, entry.after) for entry in entries]


@pytest.fixture
def watch(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    monkeypatch.setattr(outside_changes, "TOPICS_PER_LOOK", 10_000)
    # Here it would be the connection that the test's transaction is in.
    monkeypatch.setattr(outside_changes, "close_old_connections", lambda: None)
    watch = Watch(gateway, SystemClock().wall_ms() - 60_000)
    watch.look()
    yield watch
    watch.collector.close()


def test_a_life_of_a_topic_elsewhere_is_told(
    watch: Watch, new_topic_name: Callable[[], str]
) -> None:
    gateway, name = watch.gateway, new_topic_name()
    gateway.create_topics([name], partitions=1, replication_factor=1)
    watch.look()
    gateway.create_partitions(name, 3)
    gateway.alter_topic_configs(
        {name: [ConfigChange("retention.ms", ConfigOperation.SET, "86400000")]}
    )
    watch.look()
    gateway.delete_topics([name])
    watch.look()

    told = watch.told(name)

    assert [action for action, _, _ in told] == [
        "topic.create",
        "topic.partitions",
        "topic.settings",
        "topic.delete",
    ]
    assert told[0][2]["partitions"] == 1
    assert told[1][1:] == ({"partitions": 1}, {"partitions": 3})
    assert told[2][1:] == ({"retention.ms": None}, {"retention.ms": "86400000"})
    assert told[0][2]["topic_id"]
    assert told[3][1]["topic_id"] == told[0][2]["topic_id"]


def test_a_topic_made_again_between_two_looks_is_told_as_both(
    watch: Watch, new_topic_name: Callable[[], str]
) -> None:
    gateway, name = watch.gateway, new_topic_name()
    gateway.create_topics([name], partitions=1, replication_factor=1)
    watch.look()
    gateway.delete_topics([name])
    gateway.create_topics([name], partitions=1, replication_factor=1)
    watch.look()

    told = watch.told(name)

    assert [action for action, _, _ in told] == ["topic.create", "topic.delete", "topic.create"]


def test_what_was_done_here_is_not_told_again(
    watch: Watch, new_topic_name: Callable[[], str]
) -> None:
    """The entry may be written after the change was seen: another process of ours did it."""
    gateway, name = watch.gateway, new_topic_name()
    gateway.create_topics([name], partitions=1, replication_factor=1)
    watch.look()
    audit.record(ADA, "topic.create", name)
    gateway.alter_topic_configs(
        {name: [ConfigChange("retention.ms", ConfigOperation.SET, "86400000")]}
    )
    watch.look()
    audit.record(ADA, "topic.settings", name, after={"retention.ms": "86400000"})
    gateway.delete_topics([name])
    audit.record(ADA, "topic.delete", name, failure="TIMED_OUT: nobody knows")
    watch.look()

    assert watch.told(name) == []


def test_a_refused_change_here_hides_nothing(
    watch: Watch, new_topic_name: Callable[[], str]
) -> None:
    name = new_topic_name()
    watch.gateway.create_topics([name], partitions=1, replication_factor=1)
    audit.record(ADA, "topic.create", name, failure="TOPIC_ALREADY_EXISTS: there is one")
    watch.look()

    assert [action for action, _, _ in watch.told(name)] == ["topic.create"]


def test_of_two_settings_only_the_one_that_was_not_set_here_is_told(
    watch: Watch, new_topic_name: Callable[[], str]
) -> None:
    gateway, name = watch.gateway, new_topic_name()
    gateway.create_topics([name], partitions=1, replication_factor=1)
    audit.record(ADA, "topic.create", name)
    watch.look()
    gateway.alter_topic_configs(
        {
            name: [
                ConfigChange("retention.ms", ConfigOperation.SET, "86400000"),
                ConfigChange("segment.bytes", ConfigOperation.SET, "1048576"),
            ]
        }
    )
    audit.record(ADA, "topic.settings", name, after={"retention.ms": "86400000"})
    watch.look()

    assert watch.told(name) == [
        ("topic.settings", {"segment.bytes": None}, {"segment.bytes": "1048576"})
    ]


def test_settings_are_asked_for_in_turn(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = OutsideChanges(Hand(0))
    monkeypatch.setattr(outside_changes, "TOPICS_PER_LOOK", 2)

    turns = [changes._next_topics(names) for names in (list("abc"), list("abcd"), list("bcd"))]

    assert turns == [["a", "b"], ["c", "d"], ["b", "c"]]


def test_a_flood_shares_an_entry(watch: Watch) -> None:
    for number in range(outside_changes.ONE_BY_ONE + 1):
        watch.changes._find("topic.create", f"t{number}", None, {"partitions": 1}, 0)
    watch.look()

    (entry,) = AuditEntry.objects.filter(source="outside")
    assert (entry.target, entry.after["count"]) == ("101 at once", 101)


def test_a_setting_of_a_broker_changed_elsewhere_is_told_and_one_from_here_is_not(
    watch: Watch,
) -> None:
    def set_on_all(key: str, value: str | None) -> None:
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        change = ConfigChange(key, operation, value)
        assert watch.gateway.alter_broker_configs(DEFAULT_BROKER, [change]) is None

    try:
        set_on_all("log.cleaner.threads", "2")
        set_on_all("log.retention.ms", "86400000")
        audit.record(
            ADA,
            "broker.settings",
            "all brokers: log.retention.ms",
            after={"log.retention.ms": "86400000"},
        )
        watch.look()

        assert watch.told("all brokers: log.retention.ms") == []
        assert watch.told("all brokers: log.cleaner.threads") == [
            ("broker.settings", {"log.cleaner.threads": None}, {"log.cleaner.threads": "2"})
        ]
    finally:
        set_on_all("log.cleaner.threads", None)
        set_on_all("log.retention.ms", None)
