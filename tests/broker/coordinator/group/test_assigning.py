"""Targets that take long are computed beside the loop, while the group goes on."""

from __future__ import annotations

import uuid

import pytest

from broker.coordinator.group.assigning import Question
from broker.coordinator.group.assignors import Candidate, assign_range, assign_uniform
from broker.model.error_code import ErrorCode
from tests.broker.coordinator.build import GroupWorld
from tests.broker.coordinator.group.consumers import Consumer, described, settle

NONE = ErrorCode.NONE
MANY = 3000


@pytest.fixture
def world() -> GroupWorld:
    world = GroupWorld(
        group_initial_rebalance_delay_ms="0", group_consumer_assignment_interval_ms="0"
    )
    world.topics = world.topics.having(t=MANY, u=4)
    return world


def test_what_is_big() -> None:
    topics = [uuid.UUID(int=number) for number in range(10)]

    def question(members: int, partitions: int, is_mixed: bool, is_range: bool = False) -> Question:
        candidates = {
            str(number): Candidate(
                None, frozenset(topics[: 5 if is_mixed and number % 2 else 10]), {}
            )
            for number in range(members)
        }
        counts = dict.fromkeys(topics, partitions)
        return Question(1, assign_range if is_range else assign_uniform, candidates, counts)

    assert not question(1000, 100, False).is_big
    assert question(1600, 100, False).is_big
    assert question(100, 100, True).is_big
    assert not question(100, 100, True, is_range=True).is_big
    assert not question(10, 100, True).is_big


def test_members_are_told_when_it_is_done(world: GroupWorld) -> None:
    a = Consumer(world, "a", "t")
    assert a.join() is NONE
    assert (a.count, described(world).state) == (0, "Assigning")
    assert a.beat() is NONE
    assert len(world.matcher.works) == 1, "once is enough"
    world.matcher.finish()
    assert described(world).assignment_epoch == described(world).group_epoch
    assert a.beat() is NONE
    assert a.count == MANY
    world.restart()
    assert described(world).state == "Stable"


def test_who_comes_and_goes_meanwhile(world: GroupWorld) -> None:
    a, b, c = (Consumer(world, name, "t") for name in "abc")
    a.join()
    b.join()
    world.matcher.finish()  # of a alone
    a.beat()
    assert a.count == MANY
    b.beat()  # asks anew, for both
    c.join()
    assert a.leave() is NONE
    world.matcher.finish()
    group = described(world)
    assert group.assignment_epoch < group.group_epoch
    assert {member.member_id for member in group.members} == {"b", "c"}
    b.beat()
    assert b.count == MANY // 2
    for _ in range(4):
        world.matcher.finish()
        b.beat()
        c.beat()
    assert settle(world, b, c) == [MANY // 2, MANY // 2]


def test_a_static_member_that_came_back_has_its_place(world: GroupWorld) -> None:
    a = Consumer(world, "a", "t", group_instance_id="one")
    b = Consumer(world, "b", "t", group_instance_id="two")
    a.join()
    b.join()
    world.matcher.finish()
    a.beat()  # asks for both
    assert a.leave(epoch=-2) is NONE
    again = Consumer(world, "again", "t", group_instance_id="one")
    assert again.join() is NONE
    for _ in range(4):
        world.matcher.finish()
        again.beat()
        b.beat()
    assert settle(world, again, b) == [MANY // 2, MANY // 2]


def test_a_group_that_is_gone_or_another_takes_nothing(world: GroupWorld) -> None:
    a = Consumer(world, "a", "t")
    a.join()
    assert a.leave() is NONE
    assert world.delete() is NONE
    world.matcher.finish()
    assert described(world).error is ErrorCode.GROUP_ID_NOT_FOUND
    a.join()
    (work, done) = world.matcher.works[0]
    world.matcher.works.clear()
    small = Consumer(world, "a", "u")
    small.join()  # a newer target, at once, is not asked for while the old one is on its way
    done(work())
    for _ in range(2):
        small.beat()
    assert small.count == 4


def test_what_fails_is_asked_again(world: GroupWorld) -> None:
    a = Consumer(world, "a", "t")
    a.join()
    (_, done) = world.matcher.works.pop()
    done(None)
    a.beat()
    world.matcher.finish()
    a.beat()
    assert a.count == MANY
