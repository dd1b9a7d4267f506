"""Resets, planned and carried out; deletions. On our broker and on Apache Kafka."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer

from broker.model.ids import TopicPartition
from dashboard.gateway import Gateway
from dashboard.models import AuditEntry
from dashboard.offset_range import Anchor, Bound
from dashboard.resetting import Kind, Target
from dashboard.selectors.group_reset import (
    PlannedMove,
    ResetPlan,
    ResetRequest,
    plan_reset,
    planned,
)
from dashboard.services import audit
from dashboard.services import groups as service
from tests.support import processes
from tests.support.fixtures import Broker

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]
NewName = Callable[[], str]
ACTOR = audit.Actor("olga", AuditEntry.Source.PAGE)
EARLIEST = Target(Kind.PLACE, Bound(Anchor.START))
LATEST = Target(Kind.PLACE, Bound(Anchor.END))
HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


@pytest.fixture
def topic(gateway: Gateway, broker: Broker, new_topic_name: NewName) -> str:
    """Two partitions: ten records, one an hour; and three. Old ones, which retention has to leave."""
    name = new_topic_name()
    gateway.create_topics([name], partitions=2, configs={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(name, b"x", partition=0, timestamp=START_MS + number * HOUR_MS)
    for _ in range(3):
        producer.produce(name, b"x", partition=1, timestamp=START_MS)
    assert producer.flush(30) == 0
    return name


@pytest.fixture
def group(gateway: Gateway, topic: str) -> str:
    """At 4 of the first partition; nothing is committed for the second."""
    gateway.groups.alter_offsets(f"{topic} group", {TopicPartition(topic, 0): 4})
    return f"{topic} group"


@pytest.fixture
def active(broker: Broker, topic: str, group: str) -> Iterator[str]:
    """The group with a member."""
    member = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "night-shift"}
    )
    assigned: list[object] = []
    member.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))

    def is_member() -> bool:
        member.poll(0.1)
        return bool(assigned)

    processes.wait_until(is_member, 60, "an assignment")
    yield group
    member.close()


def committed(gateway: Gateway, group: str) -> dict[int, int]:
    found = gateway.groups.committed([group])[group]
    assert isinstance(found, dict)
    return {key.partition: at.offset for key, at in found.items()}


def moves(plan: ResetPlan) -> dict[int, tuple[int | None, int, int, int]]:
    """By partition: old, new, replayed, skipped."""
    return {m.key.partition: (m.prior, m.new, m.replayed, m.skipped) for m in plan.moves}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (EARLIEST, (4, 0, 4, 0)),
        (LATEST, (4, 10, 0, 6)),
        (Target(Kind.PLACE, Bound(Anchor.OFFSET, 7)), (4, 7, 0, 3)),
        (Target(Kind.PLACE, Bound(Anchor.OFFSET, 99)), (4, 10, 0, 6)),
        (Target(Kind.PLACE, Bound(Anchor.TIME, START_MS + HOUR_MS - 1)), (4, 1, 3, 0)),
        (Target(Kind.PLACE, Bound(Anchor.TIME, START_MS + 99 * HOUR_MS)), (4, 10, 0, 6)),
        (Target(Kind.SHIFT, count=-3), (4, 1, 3, 0)),
        (Target(Kind.SHIFT, count=2), (4, 6, 0, 2)),
        (Target(Kind.SHIFT, count=-50), (4, 0, 4, 0)),
    ],
)
def test_every_target_has_a_preview(
    gateway: Gateway, group: str, target: Target, expected: tuple[int, ...]
) -> None:
    plan = plan_reset(gateway, ResetRequest(group, target))

    assert moves(plan) == {0: expected}
    assert plan.is_possible
    assert (plan.replayed, plan.skipped) == expected[2:]
    assert committed(gateway, group) == {0: 4}


def test_scopes_choose_partitions(gateway: Gateway, group: str, topic: str) -> None:
    def planned_for(**scope: object) -> dict[int, tuple[int | None, int, int, int]]:
        return moves(plan_reset(gateway, ResetRequest(group, LATEST, **scope)))  # type: ignore[arg-type]

    assert planned_for() == {0: (4, 10, 0, 6)}
    assert planned_for(topic=topic) == {0: (4, 10, 0, 6), 1: (None, 3, 0, 0)}
    assert planned_for(topic=topic, partitions=frozenset({1})) == {1: (None, 3, 0, 0)}
    missing = plan_reset(
        gateway, ResetRequest(group, LATEST, topic=topic, partitions=frozenset({1, 7}))
    )
    assert not missing.is_possible
    assert f"There is no {topic}-7: the topic has 2 partitions." in missing.errors
    none = plan_reset(gateway, ResetRequest(group, LATEST, topic=f"{topic}-none"))
    assert none.errors
    assert not none.is_possible


def test_a_group_goes_where_another_is(gateway: Gateway, group: str, topic: str) -> None:
    other = f"{topic} other"
    keys = [TopicPartition(topic, index) for index in range(2)]
    gateway.groups.alter_offsets(other, {keys[0]: 9, keys[1]: 1})

    plan = plan_reset(gateway, ResetRequest(group, Target(Kind.GIVEN), source=other))

    assert moves(plan) == {0: (4, 9, 0, 5), 1: (None, 1, 0, 0)}
    nobody = plan_reset(gateway, ResetRequest(group, Target(Kind.GIVEN), source=f"{topic} nobody"))
    assert "committed nothing that could be copied" in nobody.errors[0]
    assert not nobody.is_possible


def test_a_preview_is_carried_out_as_it_was_seen(gateway: Gateway, group: str, topic: str) -> None:
    plan = plan_reset(gateway, ResetRequest(group, EARLIEST, topic=topic))
    name, found = planned(plan.signed())
    assert name == group

    assert service.reset_offsets(gateway=gateway, actor=ACTOR, group=group, moves=found) == 2

    assert committed(gateway, group) == {0: 0, 1: 0}
    entry = AuditEntry.objects.get(action="group.reset")
    assert entry.target == group
    assert entry.before == {f"{topic}-0": "4", f"{topic}-1": None}
    assert entry.after == {f"{topic}-0": "0", f"{topic}-1": "0"}
    assert not entry.failure


def test_a_plan_of_somebody_else_is_refused(gateway: Gateway, group: str) -> None:
    signed = plan_reset(gateway, ResetRequest(group, EARLIEST)).signed()

    with pytest.raises(ValueError, match="does not come from here"):
        planned(signed[:-3] + "xyz")
    with pytest.raises(ValueError, match="does not come from here"):
        planned("")


def test_what_moved_since_the_preview_is_seen(gateway: Gateway, group: str, topic: str) -> None:
    _, found = planned(plan_reset(gateway, ResetRequest(group, EARLIEST)).signed())
    gateway.groups.alter_offsets(group, {TopicPartition(topic, 0): 5})

    with pytest.raises(service.Refused, match=f"{topic}-0 has changed since the preview"):
        service.reset_offsets(gateway=gateway, actor=ACTOR, group=group, moves=found)

    assert committed(gateway, group) == {0: 5}
    assert "has changed" in AuditEntry.objects.get(action="group.reset").failure


def test_a_log_that_was_cut_since_the_preview_is_seen(
    gateway: Gateway, group: str, topic: str
) -> None:
    _, found = planned(plan_reset(gateway, ResetRequest(group, EARLIEST)).signed())
    gateway.delete_records({TopicPartition(topic, 0): 2})

    with pytest.raises(service.Refused, match="no longer holds 0"):
        service.reset_offsets(gateway=gateway, actor=ACTOR, group=group, moves=found)


def test_records_that_are_gone_are_not_counted_as_replayed(
    gateway: Gateway, group: str, topic: str
) -> None:
    gateway.delete_records({TopicPartition(topic, 0): 6})

    assert moves(plan_reset(gateway, ResetRequest(group, EARLIEST))) == {0: (4, 6, 0, 0)}
    assert moves(plan_reset(gateway, ResetRequest(group, LATEST))) == {0: (4, 10, 0, 4)}


def test_an_active_group_is_refused_with_its_members_names(
    gateway: Gateway, active: str, topic: str
) -> None:
    plan = plan_reset(gateway, ResetRequest(active, EARLIEST))
    assert not plan.is_possible
    assert plan.member_count == 1
    assert plan.members[0].startswith("night-shift on 127.0.0.1")

    moves = {TopicPartition(topic, 0): PlannedMove(4, 0)}
    with pytest.raises(service.Refused, match="1 member: night-shift on 127"):
        service.reset_offsets(gateway=gateway, actor=ACTOR, group=active, moves=moves)
    with pytest.raises(service.Refused, match="night-shift"):
        service.delete_group(gateway=gateway, actor=ACTOR, group=active)
    with pytest.raises(service.Refused, match="stop them first"):
        service.delete_offsets(gateway=gateway, actor=ACTOR, group=active, topic=topic)
    assert committed(gateway, active)[0] == 4
    assert AuditEntry.objects.exclude(failure="").count() == 3


def test_a_group_that_is_not_there_yet_comes_to_be(gateway: Gateway, topic: str) -> None:
    name = f"{topic} new"
    plan = plan_reset(gateway, ResetRequest(name, EARLIEST, topic=topic))
    assert plan.is_new_group
    assert plan.is_possible
    nothing = plan_reset(gateway, ResetRequest(name, EARLIEST))
    assert "committed nothing" in nothing.errors[0]

    _, found = planned(plan.signed())
    service.reset_offsets(gateway=gateway, actor=ACTOR, group=name, moves=found)

    assert committed(gateway, name) == {0: 0, 1: 0}


def test_offsets_of_a_topic_are_forgotten(gateway: Gateway, group: str, topic: str) -> None:
    assert service.delete_offsets(gateway=gateway, actor=ACTOR, group=group, topic=topic) == 1

    assert committed(gateway, group) == {}
    entry = AuditEntry.objects.get(action="group.delete_offsets")
    assert entry.before == {f"{topic}-0": "4"}
    with pytest.raises(service.Refused, match="committed nothing for"):
        service.delete_offsets(gateway=gateway, actor=ACTOR, group=group, topic=topic)


def test_a_group_is_deleted(gateway: Gateway, group: str, topic: str) -> None:
    service.delete_group(gateway=gateway, actor=ACTOR, group=group)

    assert committed(gateway, group) == {}
    assert AuditEntry.objects.get(action="group.delete").before == {f"{topic}-0": "4"}
    with pytest.raises(service.Refused, match="no such group"):
        service.delete_group(gateway=gateway, actor=ACTOR, group=group)
