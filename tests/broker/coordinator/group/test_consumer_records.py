"""Records of consumer groups: what is written is read back."""

from __future__ import annotations

import uuid

from broker.coordinator.group import consumer_records as records
from broker.coordinator.group.consumer import ConsumerGroup
from broker.coordinator.group.consumer_member import (
    ClassicMembership,
    ConsumerMember,
    MemberState,
)
from broker.coordinator.group.consumer_records import ResolvedPattern, TargetEpoch
from broker.coordinator.group.requests import Protocol

TOPIC = uuid.uuid4()
MEMBER = ConsumerMember(
    "m",
    "i",
    "rack",
    "client",
    "/127.0.0.1",
    frozenset({"t", "ü"}),
    "t.*",
    30_000,
    "range",
    ClassicMembership(10_000, (Protocol("range", b"\1\2"), Protocol("x", b""))),
    7,
    6,
    MemberState.UNREVOKED_PARTITIONS,
    {TOPIC: {0: 5, 3: 7}},
    {TOPIC: {1: 2}},
)


def test_a_group_is_read_back_as_it_was_written() -> None:
    group = ConsumerGroup("g")
    written = [
        records.epoch_record("g", 9, -5),
        records.member_record("g", MEMBER),
        records.target_epoch_record("g", TargetEpoch(8, 1_700_000_000_000)),
        records.target_record("g", "m", {TOPIC: frozenset({0, 2})}),
        records.current_record("g", MEMBER),
        records.pattern_record("g", "t.*", ResolvedPattern(frozenset({"t"}), 4, 5)),
    ]
    for key, value in written:
        group.replay(key, value)
    assert group.members == {"m": MEMBER}
    assert (group.group_epoch, group.metadata_hash) == (9, -5)
    assert (group.assignment_epoch, group.assignment_ms) == (8, 1_700_000_000_000)
    assert group.targets == {"m": {TOPIC: frozenset({0, 2})}}
    assert group.patterns == {"t.*": ResolvedPattern(frozenset({"t"}), 4, 5)}
    assert all(group.is_held(TOPIC, partition) for partition in (0, 1, 3))
    tombstones = [key for key, value in group.tombstones() if value is None]
    assert set(tombstones) == {key for key, _ in written}
    for key in tombstones:
        group.replay(key, None)
    assert not group.members
    assert not group.targets
    assert not group.patterns
    assert not group.is_held(TOPIC, 0)


def test_a_member_of_before_kafka_4_4_has_its_partitions_since_its_epoch() -> None:
    value = (
        b"\0\0" + b"\0\0\0\7" + b"\0\0\0\6" + b"\0"
        + b"\2" + TOPIC.bytes + b"\2" + b"\0\0\0\1" + b"\0"
        + b"\1" + b"\0"
    )  # fmt: skip
    found = records.read_current(value, ConsumerMember("m"))
    assert found.assigned == {TOPIC: {1: 7}}
    assert found.state is MemberState.STABLE
