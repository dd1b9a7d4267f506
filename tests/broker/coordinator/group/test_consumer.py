"""Conversations with a consumer group (KIP-848)."""

from __future__ import annotations

import pytest

from broker.coordinator.group.consumer_protocol import read_assignment, write_assignment
from broker.coordinator.group.requests import DescribedConsumerGroup, JoinAnswer
from broker.model.error_code import ErrorCode
from tests.broker.coordinator.build import GroupWorld, Member
from tests.broker.coordinator.group.consumers import SESSION_MS, Consumer, described, settle

NONE = ErrorCode.NONE


@pytest.fixture
def world() -> GroupWorld:
    world = GroupWorld(group_initial_rebalance_delay_ms="0")
    world.topics = world.topics.having(t=4)
    return world


def epochs(group: DescribedConsumerGroup) -> tuple[str, int, int]:
    return group.state, group.group_epoch, group.assignment_epoch


def test_the_first_member_gets_everything_at_once(world: GroupWorld) -> None:
    a = Consumer(world, "a", "t")
    assert a.join() is NONE
    assert (a.epoch, a.count) == (2, 4)
    assert epochs(described(world)) == ("Stable", 2, 2)
    assert a.beat() is NONE
    assert a.last.assignment is None


def test_a_second_member_gets_what_the_first_gives_up(world: GroupWorld) -> None:
    a, b = Consumer(world, "a", "t"), Consumer(world, "b", "t")
    a.join()
    world.advance(1_000)
    b.join()
    assert (b.epoch, b.count) == (3, 0)
    had = a.owned
    a.beat()
    assert (a.epoch, a.count) == (2, 2)
    b.beat()
    assert b.count == 0, "nobody gave anything up yet"
    assert described(world).state == "Reconciling"
    a.send(a.epoch, owned=had)
    assert a.epoch == 2
    a.beat()
    b.beat()
    assert (a.epoch, b.epoch, b.count) == (3, 3, 2)
    assert not set(next(iter(a.owned.values()))) & set(next(iter(b.owned.values())))
    assert described(world).state == "Stable"


def test_members_that_come_together_wait_for_one_target(world: GroupWorld) -> None:
    members = [Consumer(world, f"m{number}", "t") for number in range(4)]
    for member in members:
        member.join()
    assert epochs(described(world)) == ("Assigning", 5, 2)
    assert settle(world, *members) == [1, 1, 1, 1]
    assert epochs(described(world)) == ("Stable", 5, 5)


def test_a_member_that_leaves_is_replaced(world: GroupWorld) -> None:
    a, b = Consumer(world, "a", "t"), Consumer(world, "b", "t")
    a.join()
    b.join()
    assert settle(world, a, b) == [2, 2]
    assert b.leave() is NONE
    assert b.last.member_epoch == -1
    assert settle(world, a) == [4]
    assert a.leave() is NONE
    # Who comes next need not wait for the interval between targets.
    assert epochs(described(world)) == ("Empty", 5, 5)
    c = Consumer(world, "c", "t")
    c.join()
    assert (c.epoch, c.count) == (6, 4)
    assert c.leave() is NONE
    assert world.delete() is NONE
    assert described(world).error is ErrorCode.GROUP_ID_NOT_FOUND
    world.restart()
    assert described(world).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_silent_member_is_removed(world: GroupWorld) -> None:
    a, b = Consumer(world, "a", "t"), Consumer(world, "b", "t")
    a.join()
    b.join()
    assert settle(world, a, b) == [2, 2]
    world.advance(SESSION_MS - 1)
    a.beat()
    world.advance(1)
    assert settle(world, a) == [4]
    assert b.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_give_up_in_time_is_removed(world: GroupWorld) -> None:
    a, b = Consumer(world, "a", "t"), Consumer(world, "b", "t")
    a.join(rebalance_timeout_ms=20_000)
    world.advance(1_000)
    b.join()
    a.beat()
    world.advance(19_999)
    assert a.send(a.epoch) is NONE
    world.advance(1)
    assert a.send(a.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert settle(world, b) == [4]


def test_wrong_epochs_are_fenced(world: GroupWorld) -> None:
    a = Consumer(world, "a", "t")
    a.join()
    assert a.send(9) is ErrorCode.FENCED_MEMBER_EPOCH
    assert a.send(1) is ErrorCode.FENCED_MEMBER_EPOCH
    before, owned = a.epoch, a.owned
    b = Consumer(world, "b", "t")
    world.advance(1_000)
    b.join()
    a.beat()
    a.beat()
    assert a.epoch == before + 1
    assert a.send(before, owned=a.owned) is NONE, "the answer may have been lost"
    assert a.send(before, owned=owned) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_restart_forgets_nothing(world: GroupWorld) -> None:
    a, b = Consumer(world, "a", "t"), Consumer(world, "b", "t")
    a.join()
    b.join()
    settle(world, a, b)
    before = described(world)
    world.restart()
    assert described(world) == before
    assert a.beat() is NONE
    assert a.last.assignment is None
    world.advance(SESSION_MS)
    assert [member.member_id for member in described(world).members] == []


def test_topics_that_grow_are_assigned_anew(world: GroupWorld) -> None:
    a = Consumer(world, "a", "t", "later")
    a.join()
    assert a.count == 4
    world.topics = world.topics.having(t=6, later=2)
    assert settle(world, a) == [8]
    world.topics = world.topics.without("t")
    assert settle(world, a) == [2]


def test_a_static_member_keeps_its_place(world: GroupWorld) -> None:
    a = Consumer(world, "a", "t")
    old, new = (Consumer(world, each, "t", group_instance_id="i") for each in ("old", "new"))
    a.join()
    old.join()
    assert settle(world, a, old) == [2, 2]
    assert new.join() is ErrorCode.UNRELEASED_INSTANCE_ID
    assert new.send(old.epoch) is ErrorCode.FENCED_INSTANCE_ID
    assert old.leave(-2) is NONE
    epoch = described(world).group_epoch
    assert new.join() is NONE
    assert new.owned == old.owned
    assert described(world).group_epoch == epoch
    assert old.beat() is ErrorCode.FENCED_INSTANCE_ID
    world.restart()
    assert settle(world, a, new) == [2, 2]


def test_a_pattern_is_matched_beside_the_loop(world: GroupWorld) -> None:
    a = Consumer(world, "a", topics=None, pattern="t.*")
    assert a.join() is NONE
    assert (a.epoch, a.count) == (1, 0)
    a.beat()
    assert len(world.matcher.asked) == 1
    world.matcher.answer()
    a.beat()
    assert (a.epoch, a.count) == (2, 4)
    world.topics = world.topics.having(t2=3, other=1)
    a.beat()
    assert not world.matcher.asked, "not so soon"
    world.advance(10_001)
    a.beat()
    world.matcher.answer()
    assert settle(world, a) == [7]
    world.restart()
    assert settle(world, a) == [7]
    assert a.beat(pattern="", topics=frozenset({"t"})) is NONE
    assert settle(world, a) == [4]


def test_a_pattern_that_is_none_is_refused(world: GroupWorld) -> None:
    a = Consumer(world, "a", topics=None, pattern="(", pattern_fault="it is open")
    assert a.join() is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert a.last.message == "it is open"
    assert world.log.records == []


def test_a_full_group_takes_nobody_else() -> None:
    world = GroupWorld(group_consumer_max_size="1")
    world.topics = world.topics.having(t=4)
    assert Consumer(world, "a", "t").join() is NONE
    assert Consumer(world, "b", "t").join() is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_commits_name_the_epoch(world: GroupWorld) -> None:
    a, b = Consumer(world, "a", "t"), Consumer(world, "b", "t")
    a.join()
    topic_id = world.topics.topics["t"].topic_id

    def commit(epoch: int, partition: int = 0, **options: bool) -> object:
        asked = {("t", partition): 1}
        return world.commit("g", asked, "a", epoch, topic_id=topic_id, **options)

    assert commit(2) == [NONE]
    assert commit(2, knows_missing_groups=False) is ErrorCode.UNSUPPORTED_VERSION
    assert commit(3) is ErrorCode.STALE_MEMBER_EPOCH
    assert commit(1) is ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit("g", {("t", 0): 1}, "zz", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    b.join()
    settle(world, a, b)
    assert a.epoch == 3
    (mine,) = a.owned.values()
    (others,) = b.owned.values()
    assert commit(2, mine[0]) == [NONE], "it has had it since epoch 2"
    assert commit(2, others[0]) is ErrorCode.STALE_MEMBER_EPOCH


# --- Between the protocols --------------------------------------------------------------------


def rejoin(member: Member) -> JoinAnswer:
    """As a classic member does once it is told of a rebalance."""
    member.join()
    assert member.joined is not None
    assert member.joined.error is NONE, member.joined
    member.sync({})
    return member.joined


def assigned(member: Member) -> int:
    assert member.synced.error is NONE, member.synced
    return sum(map(len, read_assignment(member.synced.assignment).values()))


def test_a_group_is_upgraded_and_downgraded(world: GroupWorld) -> None:
    old = world.member("old").join()
    world.advance(0)
    old.sync({old.member_id: write_assignment(0, {"t": [0, 1, 2, 3]})})
    generation = old.generation_id
    new = Consumer(world, "new", "t")
    assert new.join() is NONE
    assert new.epoch == generation + 1
    assert {member.is_classic for member in described(world).members} == {True, False}
    world.restart()
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(old)
    assert settle(world, new) == [2]
    assert old.beat() in (NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    rejoin(old)
    assert old.beat() is NONE
    assert assigned(old) == 2
    assert described(world).state == "Stable"
    assert old.commit({("t", 0): 1}) == [NONE]

    assert new.leave() is NONE
    assert world.state() == "PreparingRebalance"
    old.join()
    assert old.is_leader
    old.sync()
    assert world.state() == "Stable"
    world.restart()
    assert world.state() == "Stable"
    assert world.fetch("g") == {("t", 0): 1}


def test_a_policy_can_forbid_an_upgrade() -> None:
    world = GroupWorld(
        group_consumer_migration_policy="disabled", group_initial_rebalance_delay_ms="0"
    )
    world.topics = world.topics.having(t=4)
    world.stable(1)
    assert Consumer(world, "new", "t").join() is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.state() == "Stable"


def test_an_empty_group_changes_its_protocol_either_way(world: GroupWorld) -> None:
    (old,) = world.stable(1)
    assert old.commit({("t", 0): 5}) == [NONE]
    old.leave()
    new = Consumer(world, "new", "t")
    assert new.join() is NONE
    assert world.fetch("g") == {("t", 0): 5}
    new.leave()
    assert described(world).state == "Empty"
    world.stable(1)
    assert described(world).error is ErrorCode.GROUP_ID_NOT_FOUND
    world.restart()
    assert world.fetch("g") == {("t", 0): 5}
    assert world.state() == "Stable"


def test_offsets_outlive_an_empty_group_in_a_compacted_log(world: GroupWorld) -> None:
    a = Consumer(world, "a", "t")
    a.join()
    world.commit("g", {("t", 0): 5}, "a", a.epoch)
    # What compaction leaves: the offset may come before everything that the group wrote anew.
    offset = world.log.records.pop()
    world.log.records.insert(0, offset)
    world.restart()
    assert described(world).state == "Stable"
    assert world.fetch("g") == {("t", 0): 5}
