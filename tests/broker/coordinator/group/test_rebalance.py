"""Conversations of members with the group's machine, with time moved by hand.

What is expected here was read off Apache Kafka 4.4; ``tests/conformance`` asks it the same.
"""

from __future__ import annotations

import pytest

from broker.coordinator.group import rebalance
from broker.coordinator.group.requests import LeavingMember
from broker.model.error_code import ErrorCode
from tests.broker.coordinator.build import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    GroupWorld,
    Member,
)

NONE = ErrorCode.NONE


def joined_codes(*members: Member) -> list[ErrorCode | None]:
    return [None if each.joined is None else each.joined.error for each in members]


def test_a_new_member_is_told_its_id_and_joins_with_it() -> None:
    world = GroupWorld()
    member = world.member("client")
    member.send_join()
    assert member.joined is not None
    assert member.joined.error is ErrorCode.MEMBER_ID_REQUIRED
    assert member.member_id == "client-1"
    assert world.state() == "Empty"
    member.send_join()
    assert member.joined is None
    assert world.state() == "PreparingRebalance"


def test_the_first_rebalance_waits_for_more_members_and_no_longer_than_it_may() -> None:
    world = GroupWorld()
    early, late = world.member(rebalance_ms=4000), world.member(rebalance_ms=4000)
    early.join()
    world.advance(DELAY_MS - 1)
    late.join()
    world.advance(1)
    assert joined_codes(early, late) == [None, None]  # put off, by what the rebalance may take
    world.advance(999)
    assert joined_codes(early, late) == [None, None]
    world.advance(1)
    assert joined_codes(early, late) == [NONE, NONE]


def test_only_the_leader_is_told_who_is_there() -> None:
    first, second = GroupWorld().stable(2)
    assert first.joined is not None
    assert second.joined is not None
    assert first.is_leader
    assert [each.member_id for each in first.joined.members] == [first.member_id, second.member_id]
    assert second.joined.members == ()
    assert second.joined.leader_id == first.member_id
    assert (first.generation_id, second.generation_id) == (1, 1)


def test_everybody_gets_its_own_assignment_and_who_was_forgotten_an_empty_one() -> None:
    world = GroupWorld()
    first, second = world.member(), world.member()
    first.join(), second.join()
    world.advance(2 * DELAY_MS)
    second.sync()
    assert second.synced is None
    first.sync({first.member_id: b"mine", "stranger": b"lost"})
    assert (first.synced.assignment, second.synced.assignment) == (b"mine", b"")
    assert world.state() == "Stable"


def test_a_member_that_joins_makes_all_join_again() -> None:
    world = GroupWorld()
    first, second = world.stable(2)
    third = world.member().join()
    assert [first.beat(), second.beat()] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    first.join()
    assert joined_codes(first, third) == [None, None]
    second.join()
    assert joined_codes(first, second, third) == [NONE] * 3
    assert first.is_leader
    assert {each.generation_id for each in (first, second, third)} == {2}


def test_who_does_not_join_in_time_is_left_out() -> None:
    world = GroupWorld()
    first, second = world.stable(2)
    third = world.member().join()
    second.join()
    for _ in range(REBALANCE_MS // 5000):
        first.beat()
        world.advance(5000)
    assert joined_codes(second, third) == [NONE, NONE]
    assert first.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert second.is_leader


def test_a_silent_member_is_removed_and_the_others_rebalance() -> None:
    world = GroupWorld()
    first, second = world.stable(2)
    world.advance(SESSION_MS - 1)
    assert first.beat() is NONE
    world.advance(1)
    assert world.state() == "PreparingRebalance"
    assert second.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    first.join()
    assert joined_codes(first) == [NONE]
    assert first.joined is not None
    assert len(first.joined.members) == 1


def test_a_member_that_waits_for_us_does_not_fall_silent() -> None:
    world = GroupWorld()
    first, second = world.stable(2)
    third = world.member().join()
    first.join()
    for _ in range(4):
        assert second.beat() is ErrorCode.REBALANCE_IN_PROGRESS
        world.advance(SESSION_MS - 1)
    second.join()
    assert joined_codes(first, second, third) == [NONE] * 3


def test_a_new_member_without_an_id_that_went_away_is_forgotten_in_the_end() -> None:
    world = GroupWorld()
    gone = world.member(version=3, rebalance_ms=10 * rebalance.NEW_MEMBER_TIMEOUT_MS)
    gone.join()
    world.advance(2 * DELAY_MS)
    assert joined_codes(gone) == [NONE]
    other = world.member(version=3, rebalance_ms=10 * rebalance.NEW_MEMBER_TIMEOUT_MS).join()
    for _ in range(rebalance.NEW_MEMBER_TIMEOUT_MS // 5000):
        assert gone.beat() is not ErrorCode.UNKNOWN_MEMBER_ID
        world.advance(5000)
    assert joined_codes(other) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert other.member_id == ""


def test_leaving_lets_the_others_rebalance_at_once_and_empties_the_group_at_last() -> None:
    world = GroupWorld()
    first, second = world.stable(2)
    assert first.leave() is NONE
    second.join()
    assert joined_codes(second) == [NONE]
    assert second.is_leader
    assert second.leave() is NONE
    assert world.state() == "Empty"
    assert second.leave() is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_during_a_rebalance_wakes_those_who_wait() -> None:
    world = GroupWorld()
    first, second = world.stable(2)
    third = world.member().join()
    first.join()
    assert second.leave() is NONE
    assert joined_codes(first, third) == [NONE, NONE]


def test_an_id_that_was_handed_out_holds_the_rebalance_up_until_it_leaves_or_expires() -> None:
    world = GroupWorld()
    (first,) = world.stable(1)
    pending, other = world.member(), world.member()
    pending.send_join()
    other.send_join()
    first.join()
    assert joined_codes(first) == [None]
    assert pending.leave() is NONE
    assert joined_codes(first) == [None]
    world.advance(SESSION_MS)
    assert joined_codes(first) == [NONE]


def test_sync_of_another_generation_member_or_protocol() -> None:
    world = GroupWorld()
    first, second = world.stable(2)
    stranger = world.member()
    stranger.member_id, stranger.generation_id = "stranger", 1
    assert stranger.sync({}).synced.error is ErrorCode.UNKNOWN_MEMBER_ID
    second.generation_id = 2
    assert second.sync({}).synced.error is ErrorCode.ILLEGAL_GENERATION
    second.generation_id = 1
    second.joined = second.joined._replace(protocol_name="other")
    assert second.sync({}).synced.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    second.joined = second.joined._replace(protocol_name=None)
    assert second.sync({}).synced.assignment == second.member_id.encode()
    world.member().join()
    assert first.sync({}).synced.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_sync_that_waits_is_sent_back_when_another_member_joins() -> None:
    world = GroupWorld()
    first, second = world.member(), world.member()
    first.join(), second.join()
    world.advance(2 * DELAY_MS)
    second.sync()
    world.member().join()
    assert second.synced.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert first.sync().synced.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_who_does_not_sync_in_time_is_removed() -> None:
    world = GroupWorld()
    first, second = world.member(), world.member()
    first.join(), second.join()
    world.advance(2 * DELAY_MS)
    first.sync()
    for _ in range(REBALANCE_MS // 5000):
        first.beat(), second.beat()
        world.advance(5000)
    assert world.state() == "PreparingRebalance"
    assert second.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_that_joins_with_nothing_new_is_told_what_is_and_a_leader_rebalances() -> None:
    world = GroupWorld()
    first, second = world.stable(2)
    second.join()
    assert joined_codes(second) == [NONE]
    assert second.generation_id == 1
    assert world.state() == "Stable"
    first.join()
    assert joined_codes(first) == [None]
    assert world.state() == "PreparingRebalance"


def test_a_follower_with_a_new_subscription_makes_a_rebalance() -> None:
    world = GroupWorld()
    _, second = world.stable(2)
    second.protocols = world.member(topics=("t", "u")).protocols
    second.join()
    assert world.state() == "PreparingRebalance"


def test_the_protocol_is_one_that_all_have_and_most_like() -> None:
    world = GroupWorld()
    members = [
        world.member(protocols=protocols).join()
        for protocols in (("a", "x", "y"), ("y", "x"), ("y", "b", "x"), ("x", "y"))
    ]
    world.advance(20 * DELAY_MS)
    assert {each.joined.protocol_name for each in members if each.joined} == {"x"}


def test_a_member_that_shares_no_protocol_is_refused() -> None:
    world = GroupWorld()
    world.stable(1)
    for refused in (
        world.member(protocols=("sticky",)),
        world.member(protocol_type="connect"),
        world.member(protocols=()),
    ):
        assert joined_codes(refused.join()) == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
    assert world.state() == "Stable"
    first = world.member(group_id="other", protocol_type="")
    assert joined_codes(first.join()) == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]


def test_requests_without_a_group_or_with_a_bad_session() -> None:
    world = GroupWorld()
    assert joined_codes(world.member(group_id="").join()) == [ErrorCode.INVALID_GROUP_ID]
    for session_ms in (5_999, 1_800_001):
        member = world.member(session_ms=session_ms).join()
        assert joined_codes(member) == [ErrorCode.INVALID_SESSION_TIMEOUT]
    unknown = world.member()
    unknown.member_id = "unknown"
    assert joined_codes(unknown.join()) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert unknown.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert unknown.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.log.records == []


# --- Static members ---------------------------------------------------------------------------


def test_a_static_member_that_comes_back_takes_its_place_without_a_rebalance() -> None:
    world = GroupWorld()
    leader = world.member(instance_id="i1").join()
    follower = world.member(instance_id="i2").join()
    world.advance(2 * DELAY_MS)
    leader.sync(), follower.sync()
    back = world.member(instance_id="i2").join()
    assert joined_codes(back) == [NONE]
    assert back.generation_id == 1
    assert back.member_id != follower.member_id
    assert world.state() == "Stable"
    assert back.sync().synced.assignment == follower.member_id.encode()
    assert follower.beat() is ErrorCode.FENCED_INSTANCE_ID
    assert follower.sync({}).synced.error is ErrorCode.FENCED_INSTANCE_ID
    assert joined_codes(follower.join()) == [ErrorCode.FENCED_INSTANCE_ID]
    assert leader.beat() is NONE


@pytest.mark.parametrize("version", [5, 9])
def test_a_static_leader_that_comes_back(version: int) -> None:
    world = GroupWorld()
    leader = world.member(instance_id="i1").join()
    world.advance(2 * DELAY_MS)
    leader.sync()
    back = world.member(instance_id="i1", version=version).join()
    assert back.joined is not None
    if version >= 9:
        assert back.joined.leader_id == back.member_id
        assert back.joined.must_skip_assignment
        assert [each.member_id for each in back.joined.members] == [back.member_id]
    else:
        assert back.joined.leader_id == leader.member_id
        assert back.joined.members == ()
    assert back.sync({}).synced.assignment == leader.member_id.encode()


def test_a_static_member_that_comes_back_is_in_the_log_under_its_new_id() -> None:
    world = GroupWorld()
    leader = world.member(instance_id="i1").join()
    world.advance(2 * DELAY_MS)
    leader.sync()
    back = world.member(instance_id="i1").join()
    world.restart()
    assert back.beat() is NONE
    assert leader.beat() is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_cannot_be_stored_keeps_its_old_id() -> None:
    world = GroupWorld()
    leader = world.member(instance_id="i1").join()
    world.advance(2 * DELAY_MS)
    leader.sync()
    world.log.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    back = world.member(instance_id="i1").join()
    assert joined_codes(back) == [ErrorCode.NOT_COORDINATOR]
    world.log.refusal = None
    assert leader.beat() is NONE


def test_a_static_member_away_keeps_its_place_until_it_should_have_synced() -> None:
    world = GroupWorld()
    first = world.member(instance_id="i1", session_ms=30_000, rebalance_ms=20_000).join()
    away = world.member(instance_id="i2", session_ms=30_000, rebalance_ms=20_000).join()
    world.advance(2 * DELAY_MS)
    first.sync(), away.sync()
    third = world.member(session_ms=30_000, rebalance_ms=20_000).join()
    first.join()
    world.advance(20_000)
    assert joined_codes(first, third) == [NONE, NONE]
    assert first.joined is not None
    assert len(first.joined.members) == 3
    first.sync(), third.sync()
    world.advance(19_999)
    assert world.state() == "Stable"
    world.advance(1)
    assert away.beat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_comes_back_while_the_assignment_is_awaited_makes_a_rebalance() -> (
    None
):
    world = GroupWorld()
    first = world.member(instance_id="i1").join()
    second = world.member(instance_id="i2").join()
    world.advance(2 * DELAY_MS)
    second.sync()
    back = world.member(instance_id="i2").join()
    assert second.synced.error is ErrorCode.FENCED_INSTANCE_ID
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    first.join()
    assert joined_codes(first, back) == [NONE, NONE]
    assert first.generation_id == 2


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    world = GroupWorld()
    member = world.member(instance_id="i1").join()
    world.advance(2 * DELAY_MS)
    member.sync()
    found: list[object] = []
    world.groups.leave(
        "g",
        [LeavingMember("", "i1"), LeavingMember("", "i9"), LeavingMember("", None)],
        lambda error, codes: found.append((error, list(codes))),
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert found == [(NONE, [NONE, unknown, unknown])]
    assert world.state() == "Empty"


# --- Limits -----------------------------------------------------------------------------------


def test_a_group_takes_no_more_members_than_it_may() -> None:
    world = GroupWorld(group_max_size="2")
    first, second = world.stable(2)
    third = world.member().join()
    assert joined_codes(third) == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert [first.beat(), second.beat()] == [NONE, NONE]
    second.leave()
    third = world.member().join()
    first.join()
    assert joined_codes(first, third) == [NONE, NONE]


def test_a_loaded_group_that_is_too_large_turns_the_last_ones_away() -> None:
    world = GroupWorld()
    members = world.stable(3)
    world.config = GroupWorld(group_max_size="2").config
    world.restart()
    assert world.state() == "PreparingRebalance"
    for member in members:
        member.join()
    assert joined_codes(*members) == [NONE, NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_ids_are_not_handed_out_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "MAX_PENDING_MEMBERS", 3)
    world = GroupWorld()
    members = [world.member() for _ in range(4)]
    for member in members:
        member.send_join()
    assert joined_codes(*members) == [
        *[ErrorCode.MEMBER_ID_REQUIRED] * 3,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    world.advance(SESSION_MS)
    members[3].send_join()
    assert joined_codes(members[3]) == [ErrorCode.MEMBER_ID_REQUIRED]


def test_five_hundred_members_come_and_go() -> None:
    world = GroupWorld()
    members = world.stable(500)
    assert sum(each.is_leader for each in members) == 1
    members[7].leave()
    for member in members[:7] + members[8:]:
        assert member.beat() is ErrorCode.REBALANCE_IN_PROGRESS
        member.join()
    assert {each.generation_id for each in members[:7] + members[8:]} == {2}


# --- Restarts ---------------------------------------------------------------------------------


def test_a_stable_group_is_as_before_after_a_restart() -> None:
    world = GroupWorld()
    first, second = world.stable(2)
    world.advance(SESSION_MS - 1)
    world.restart()
    world.advance(SESSION_MS - 1)
    assert [first.beat(), second.beat()] == [NONE, NONE]
    assert world.state() == "Stable"
    assert second.sync({}).synced.assignment == second.member_id.encode()
    second.join()
    assert second.generation_id == 1


def test_members_that_stay_away_after_a_restart_are_removed() -> None:
    world = GroupWorld()
    first, second = world.stable(2)
    world.restart()
    world.advance(SESSION_MS - 1)
    first.beat()
    world.advance(1)
    assert second.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_that_was_rebalancing_goes_on_from_its_last_generation() -> None:
    world = GroupWorld()
    (first,) = world.stable(1)
    second = world.member().join()
    first.join()
    assert joined_codes(first, second) == [NONE, NONE]
    world.restart()  # generation 2 was never stored
    assert second.sync().synced.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert first.beat() is ErrorCode.ILLEGAL_GENERATION
    second.member_id = ""
    second.join(), first.join()
    assert joined_codes(first, second) == [NONE, NONE]
    assert {first.generation_id, second.generation_id} == {2}


def test_an_empty_group_keeps_its_generation_over_a_restart() -> None:
    world = GroupWorld()
    (member,) = world.stable(1)
    member.leave()
    world.restart()
    assert world.state() == "Empty"
    (again,) = world.stable(1)
    assert again.generation_id == 3


# --- The log fails, or takes its time ----------------------------------------------------------


def test_an_assignment_counts_once_the_log_has_it() -> None:
    world = GroupWorld()
    first, second = world.member().join(), world.member().join()
    world.advance(2 * DELAY_MS)
    world.log.holds = True
    first.sync(), second.sync()
    assert (first.synced, second.synced) == (None, None)
    world.log.release()
    assert first.synced.assignment == first.member_id.encode()
    assert second.synced.assignment == second.member_id.encode()


def test_an_assignment_that_is_refused_makes_a_rebalance() -> None:
    world = GroupWorld()
    first, second = world.member().join(), world.member().join()
    world.advance(2 * DELAY_MS)
    second.sync()
    world.log.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    first.sync()
    assert first.synced.error is ErrorCode.NOT_COORDINATOR
    assert second.synced.error is ErrorCode.NOT_COORDINATOR
    world.log.refusal = None
    first.join(), second.join()
    assert joined_codes(first, second) == [NONE, NONE]


def test_an_assignment_that_the_log_lost_makes_a_rebalance() -> None:
    world = GroupWorld()
    first = world.member().join()
    world.advance(2 * DELAY_MS)
    world.log.holds = True
    first.sync()
    world.log.release(ErrorCode.REQUEST_TIMED_OUT)
    assert first.synced.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_comes_through_too_late_changes_nothing() -> None:
    world = GroupWorld()
    first = world.member().join()
    world.advance(2 * DELAY_MS)
    world.log.holds = True
    first.sync()
    second = world.member().join()
    assert first.synced.error is ErrorCode.REBALANCE_IN_PROGRESS
    world.log.holds = False
    world.log.release()
    assert joined_codes(second) == [None]
    assert world.state() == "PreparingRebalance"


def test_an_assignment_that_comes_through_in_the_next_generation_changes_nothing() -> None:
    world = GroupWorld()
    first = world.member().join()
    world.advance(2 * DELAY_MS)
    world.log.holds = True
    first.sync({first.member_id: b"of old"})
    second = world.member().join()
    first.join()
    assert joined_codes(first, second) == [NONE, NONE]
    second.sync()
    world.log.holds = False
    world.log.release()
    assert second.synced is None
    assert world.state() == "CompletingRebalance"
    first.sync()
    assert second.synced.assignment == second.member_id.encode()


def test_a_first_member_is_told_nothing_when_its_group_cannot_be_stored() -> None:
    world = GroupWorld()
    world.log.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    member = world.member().join()
    assert joined_codes(member) == [ErrorCode.NOT_COORDINATOR]
    world.log.refusal = None
    assert world.groups.group_ids() == []
    world.restart()
    assert joined_codes(member.join()) == [None]


def test_the_coordinator_goes_and_nobody_is_left_waiting() -> None:
    world = GroupWorld()
    first, second = world.member().join(), world.member().join()
    world.advance(2 * DELAY_MS)
    second.sync()
    third = world.member(group_id="other").join()
    world.groups.runtime.end(0)
    assert second.synced.error is ErrorCode.NOT_COORDINATOR
    assert joined_codes(third) == [ErrorCode.NOT_COORDINATOR]
    assert first.beat() is ErrorCode.NOT_COORDINATOR
    assert len(world.groups.runtime.timers) == 0


def test_heartbeats_are_fine_while_the_group_is_being_loaded() -> None:
    world = GroupWorld()
    (member,) = world.stable(1)
    world.groups.runtime.end(0)
    world.groups.runtime.begin_loading(0, world.log)
    assert member.beat() is NONE
    assert member.sync({}).synced.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert joined_codes(member.join()) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
