"""Offsets that are committed within a transaction take effect with its end."""

from __future__ import annotations

import pytest

from broker.coordinator.group.requests import AskedTopic, FetchedTopic
from broker.coordinator.result import Producer
from broker.model.error_code import ErrorCode
from broker.model.ids import ZERO_TOPIC_ID
from tests.broker.coordinator.build import GroupWorld

NONE = ErrorCode.NONE
T0, T1 = ("t", 0), ("t", 1)
PRODUCER = Producer(7, 0)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def stable_code(world: GroupWorld) -> ErrorCode:
    """What a consumer is told that insists on stable offsets."""
    found: list[ErrorCode] = []

    def done(error: ErrorCode, topics: list[FetchedTopic]) -> None:
        found.append(topics[0].offsets[0].error if error is NONE else error)

    world.groups.fetch("g", [AskedTopic("t", ZERO_TOPIC_ID, [0])], True, done)  # type: ignore[arg-type]
    return found[0]


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("restarts", [False, True])
def test_offsets_take_effect_with_the_commit_only(is_commit: bool, restarts: bool) -> None:
    world = GroupWorld()
    world.commit("g", {T0: 5})
    assert world.commit_in_transaction("g", {T0: 9, T1: 3}, PRODUCER) == [NONE, NONE]
    if restarts:
        world.restart()
    assert world.fetch("g", T0, T1) == {T0: 5, T1: -1}
    assert stable_code(world) is UNSTABLE
    assert world.end_transaction(PRODUCER, is_commit) is NONE
    expected = {T0: 9, T1: 3} if is_commit else {T0: 5, T1: -1}
    assert world.fetch("g", T0, T1) == expected
    assert stable_code(world) is NONE
    world.restart()
    assert world.fetch("g", T0, T1) == expected


def test_another_producers_end_is_none_of_it() -> None:
    world = GroupWorld()
    world.commit_in_transaction("g", {T0: 9}, PRODUCER)
    assert world.end_transaction(Producer(8, 0), True) is NONE
    assert stable_code(world) is UNSTABLE


def test_a_marker_that_is_refused_ends_nothing() -> None:
    world = GroupWorld()
    world.commit_in_transaction("g", {T0: 9}, PRODUCER)
    world.log.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    assert world.end_transaction(PRODUCER, True) is ErrorCode.KAFKA_STORAGE_ERROR
    assert stable_code(world) is UNSTABLE
    world.log.refusal = None
    assert world.end_transaction(PRODUCER, True) is NONE
    assert world.fetch("g", T0) == {T0: 9}


def test_who_may_commit() -> None:
    """Kafka's rules: a member must be one, at its generation; clients of old name none at all."""
    world = GroupWorld()
    (member,) = world.stable(1)
    name, generation = member.member_id, member.generation_id

    def told(member_id: str, generation_id: int) -> ErrorCode | list[ErrorCode]:
        return world.commit_in_transaction("g", {T0: 9}, PRODUCER, member_id, generation_id)

    assert told(name, generation) == [NONE]
    assert told("", -1) == [NONE]
    assert told(name, generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert told("stranger", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit_in_transaction("other", {T0: 9}, PRODUCER, "", 1) is (
        ErrorCode.ILLEGAL_GENERATION
    )
    assert world.commit_in_transaction("", {T0: 9}, PRODUCER) is ErrorCode.INVALID_GROUP_ID
    # While the group rebalances its offsets may be committed all the same.
    world.member("c9").join()
    assert told(name, generation) == [NONE]


@pytest.mark.parametrize("restarts", [False, True])
def test_offsets_of_a_topic_that_was_deleted_amid_the_transaction_go(restarts: bool) -> None:
    world = GroupWorld()
    world.commit("g", {T0: 5})
    other = ("other", 0)
    assert world.commit_in_transaction("g", {T0: 9, T1: 3, other: 1}, PRODUCER) == [NONE] * 3
    (hosted,) = world.groups.runtime.all_hosted()
    world.groups.runtime.perform(
        hosted, lambda shard: shard.forget_topics("g", lambda topic, _: topic == "t")
    )
    if restarts:
        world.restart()
    assert world.end_transaction(PRODUCER, True) is NONE
    assert world.fetch("g") == {other: 1}
    world.restart()
    assert world.fetch("g") == {other: 1}
