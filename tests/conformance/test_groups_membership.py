"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups."""

import re
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support import groups, processes
from tests.support.fixtures import Broker, broker_of_the_file
from tests.support.groups import (
    FENCED_INSTANCE_ID,
    GROUP_MAX_SIZE_REACHED,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Member,
    rebalance,
)
from tests.support.requests import create_topic
from tests.support.wire import Wire

NewMember = Callable[..., Member]
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
SHORT_MS = 1000


# -------------------------------------------------------------------------------- one member


@pytest.mark.parametrize("version", range(10))
def test_a_single_member_joins_at_every_version(new_member: NewMember, version: int) -> None:
    member = new_member(version=version)
    if version >= 4:
        asked = member.try_join()
        assert (asked.error_code, asked.generation_id) == (MEMBER_ID_REQUIRED, -1)
        assert (asked.leader, asked.members) == ("", [])
        given = asked.member_id
    answer = member.join()
    assert (answer.error_code, answer.generation_id) == (0, 1)
    assert answer.protocol_name == "range"
    assert answer.leader == answer.member_id
    assert re.fullmatch(f"judge-{UUID}", answer.member_id)
    if version >= 4:
        assert answer.member_id == given
    if version >= 7:
        assert answer.protocol_type == "consumer"
    if version >= 9:
        assert answer.skip_assignment is False
    (only,) = answer.members
    assert (only.member_id, only.metadata) == (answer.member_id, b"meta")
    if version >= 5:
        assert only.group_instance_id is None


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_sync_gives_the_assignment(new_member: NewMember, version: int) -> None:
    member = new_member()
    member.join()
    answer = member.try_sync({member.member_id: b"mine"}, version=version)
    assert (answer.error_code, answer.assignment) == (0, b"mine")
    if version >= 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_heartbeat_is_answered(new_member: NewMember, version: int) -> None:
    member = new_member().join_alone()
    assert member.heartbeat(version) == 0
    assert member.heartbeat(version) == 0
    assert member.heartbeat(version, generation_id=7) == ILLEGAL_GENERATION


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_leave_ends_the_membership(
    wire: Wire, group: str, new_member: NewMember, version: int
) -> None:
    member = new_member().join_alone()
    if version < 3:
        again = {"group_id": group, "member_id": member.member_id}
        assert wire.request("leave_group", version, **again).error_code == 0
        assert wire.request("leave_group", version, **again).error_code == UNKNOWN_MEMBER_ID
    else:
        identity = [(member.member_id, None)]
        for code in (0, UNKNOWN_MEMBER_ID):
            answer = groups.leave(wire, group, identity, version=version)
            assert answer.error_code == 0
            (left,) = answer.members
            assert (left.member_id, left.group_instance_id) == (member.member_id, None)
            assert left.error_code == code
    assert groups.state(wire, group) == "Empty"
    assert member.heartbeat() == UNKNOWN_MEMBER_ID


def test_ids_that_were_given_are_used_once_each(new_member: NewMember) -> None:
    first, second = new_member(), new_member()
    first.ask_for_id()
    second.ask_for_id()
    assert first.member_id != second.member_id
    assert first.join().generation_id == 1


def test_the_member_id_starts_with_the_client_id(new_member: NewMember) -> None:
    member = new_member(client_id="fancy client")
    member.ask_for_id()
    assert re.fullmatch(f"fancy client-{UUID}", member.member_id)


def test_a_static_member_needs_no_id_first(new_member: NewMember) -> None:
    member = new_member(instance="inst-1")
    answer = member.try_join()
    assert answer.error_code == 0
    assert re.fullmatch(f"inst-1-{UUID}", answer.member_id)
    (only,) = answer.members
    assert only.group_instance_id == "inst-1"


def test_a_group_without_members_has_the_next_generation(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    member = new_member().join_alone()
    member.leave()
    member.member_id = ""
    assert member.join().generation_id == 3  # the empty group took 2


# ---------------------------------------------------------------------------- refused joins


@pytest.mark.parametrize("version", [0, 1, 4, 5, 6, 9])
def test_a_member_id_that_nobody_gave_is_refused(new_member: NewMember, version: int) -> None:
    member = new_member(version=version)
    for _ in range(2):  # an unknown group, and whatever that left behind
        answer = member.try_join(member_id="made up")
        assert (answer.error_code, answer.generation_id) == (UNKNOWN_MEMBER_ID, -1)
        assert answer.member_id == "made up"
    other = new_member().join_alone()
    assert member.try_join(member_id="made up").error_code == UNKNOWN_MEMBER_ID
    assert other.heartbeat() == 0


@pytest.mark.parametrize("version", [0, 4, 9])
def test_a_group_needs_a_name(new_member: NewMember, version: int) -> None:
    member = new_member(version=version)
    assert member.try_join(group_id="").error_code == INVALID_GROUP_ID
    assert member.try_sync(group_id="", protocol_name="range").error_code == INVALID_GROUP_ID
    assert member.heartbeat(group_id="") == INVALID_GROUP_ID
    assert groups.leave(member.wire, "", [("m", None)]).error_code == INVALID_GROUP_ID


@pytest.mark.parametrize("session_timeout", [-1, 0, 499, 1_800_001])
def test_session_timeouts_out_of_bounds_are_refused(
    new_member: NewMember, session_timeout: int
) -> None:
    answer = new_member(session_timeout=session_timeout).try_join()
    assert (answer.error_code, answer.member_id) == (INVALID_SESSION_TIMEOUT, "")


@pytest.mark.parametrize("session_timeout", [500, 1_800_000])
def test_session_timeouts_at_the_bounds_are_taken(
    new_member: NewMember, session_timeout: int
) -> None:
    assert new_member(session_timeout=session_timeout).try_join().error_code == MEMBER_ID_REQUIRED


@pytest.mark.parametrize(
    "changes",
    [{"protocols": []}, {"protocol_type": ""}],
    ids=["no protocol", "no protocol type"],
)
@pytest.mark.parametrize("version", [0, 5])
def test_a_new_group_needs_a_protocol(
    wire: Wire, group: str, new_member: NewMember, version: int, changes: dict[str, Any]
) -> None:
    member = new_member(version=version)
    assert member.try_join(**changes).error_code == INCONSISTENT_GROUP_PROTOCOL
    # Apache Kafka may leave an empty group behind; whether it is seen depends on what else is written.
    assert groups.state(wire, group) in ("Empty", "Dead")
    assert member.join().generation_id == 1


@pytest.mark.parametrize("version", [3, 5])
def test_a_member_that_fits_nobody_is_refused(new_member: NewMember, version: int) -> None:
    first = new_member().join_alone()
    for changes in (
        {"protocol_type": "connect"},
        {"protocols": [{"name": "roundrobin", "metadata": b""}]},
        {"protocols": []},
    ):
        odd = new_member(version=version)
        assert odd.try_join(**changes).error_code == INCONSISTENT_GROUP_PROTOCOL
    assert first.heartbeat() == 0  # nothing happened to the group


def test_an_empty_group_takes_another_protocol_but_not_another_type(
    new_member: NewMember,
) -> None:
    first = new_member().join_alone()
    first.leave()
    other = new_member(protocols={"roundrobin": b"x"}).join_alone()
    assert other.last_join.protocol_name == "roundrobin"
    other.leave()
    third = new_member(protocol_type="connect", protocols={"default": b""})
    assert third.join().protocol_type == "connect"


# ------------------------------------------------------------------------------- rebalancing


def test_a_second_member_makes_the_first_rejoin(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    first, second = new_member().join_alone(), new_member()
    second.ask_for_id()
    assert first.heartbeat() == 0  # asking for an id disturbs nobody
    second.send_join()
    groups.wait_for_state(wire, group, "PreparingRebalance")
    assert first.heartbeat() == REBALANCE_IN_PROGRESS
    assert first.heartbeat(generation_id=9) == ILLEGAL_GENERATION
    assert first.try_sync().error_code == REBALANCE_IN_PROGRESS
    mine = first.try_join()
    others = second.receive_join()
    assert (mine.error_code, others.error_code) == (0, 0)
    assert (mine.generation_id, others.generation_id) == (2, 2)
    assert mine.leader == others.leader == first.member_id
    assert {found.member_id for found in mine.members} == {first.member_id, second.member_id}
    assert others.members == []
    assert groups.state(wire, group) == "CompletingRebalance"


def test_only_the_leaders_assignments_count(wire: Wire, group: str, new_member: NewMember) -> None:
    members = [new_member() for _ in range(3)]
    rebalance(members)
    assert groups.state(wire, group) == "Stable"
    leader = next(member for member in members if member.is_leader)
    one, other = [member for member in members if member is not leader]
    leader.send_join()
    groups.wait_for_state(wire, group, "PreparingRebalance")
    one.send_join()
    other.send_join()
    for member in members:
        assert member.receive_join().error_code == 0
    one.send_sync({member.member_id: b"a follower's wish" for member in members})
    assert groups.state(wire, group) == "CompletingRebalance"
    assert leader.sync({one.member_id: b"for one", leader.member_id: b"for me"}) == b"for me"
    answer = one.wire.receive()
    assert (answer.error_code, answer.assignment) == (0, b"for one")
    assert other.sync() == b""  # nobody thought of it, and it came late


def test_assignments_for_strangers_are_ignored(new_member: NewMember) -> None:
    member = new_member()
    member.join()
    assert member.sync({"stranger": b"x", member.member_id: b"y"}) == b"y"
    assert member.sync({member.member_id: b"another"}) == b"y"  # stable: as it was


def test_sync_checks_who_asks(wire: Wire, group: str, new_member: NewMember) -> None:
    member = new_member()
    assert member.try_sync(member_id="m", generation_id=1).error_code == UNKNOWN_MEMBER_ID
    member.join()
    plan = {member.member_id: b"x"}
    assert member.try_sync(plan, member_id="other").error_code == UNKNOWN_MEMBER_ID
    assert member.try_sync(plan, generation_id=0).error_code == ILLEGAL_GENERATION
    assert member.try_sync(plan, generation_id=2).error_code == ILLEGAL_GENERATION
    for changes in (
        {"protocol_name": "roundrobin"},
        {"protocol_type": "connect"},
        {"protocol_name": None},
        {"protocol_type": None},
    ):
        wrong = member.try_sync(plan, **changes)
        assert wrong.error_code == INCONSISTENT_GROUP_PROTOCOL, changes
    assert groups.state(wire, group) == "CompletingRebalance"
    right = member.try_sync(plan, protocol_name="range", protocol_type="consumer")
    assert (right.error_code, right.assignment) == (0, b"x")


def test_heartbeats_check_who_asks(wire: Wire, group: str, new_member: NewMember) -> None:
    member = new_member()
    assert member.heartbeat(member_id="m", generation_id=1) == UNKNOWN_MEMBER_ID
    member.ask_for_id()
    assert member.heartbeat(generation_id=0) == UNKNOWN_MEMBER_ID
    member.join()
    assert member.heartbeat() == 0  # between join and sync all is well
    assert member.heartbeat(member_id="other") == UNKNOWN_MEMBER_ID
    assert member.heartbeat(member_id="other", generation_id=9) == UNKNOWN_MEMBER_ID
    assert member.heartbeat(generation_id=0) == ILLEGAL_GENERATION
    assert member.heartbeat(generation_id=-1) == ILLEGAL_GENERATION


def test_followers_may_join_again_for_nothing_but_leaders_start_anew(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    members = [new_member(), new_member()]
    rebalance(members)
    leader = next(member for member in members if member.is_leader)
    (follower,) = [member for member in members if member is not leader]
    before = leader.generation
    again = follower.try_join()
    assert (again.error_code, again.generation_id, again.members) == (0, before, [])
    assert again.leader == leader.member_id
    assert leader.heartbeat() == 0
    follower.protocols = {"range": b"other metadata"}
    follower.send_join()
    groups.wait_for_state(wire, group, "PreparingRebalance")
    assert leader.try_join().generation_id == before + 1
    assert follower.receive_join().generation_id == before + 1
    leader.sync({})
    assert follower.sync() == b""
    leader.send_join()
    groups.wait_for_state(wire, group, "PreparingRebalance")
    assert follower.heartbeat() == REBALANCE_IN_PROGRESS
    assert follower.try_join().generation_id == before + 2
    assert leader.receive_join().generation_id == before + 2


def test_a_join_repeated_before_the_sync_is_answered_alike(new_member: NewMember) -> None:
    member = new_member()
    first = member.join()
    again = member.try_join()
    assert again.as_dict() == first.as_dict()
    member.protocols = {"range": b"changed"}
    changed = member.try_join()
    assert (changed.generation_id, changed.error_code) == (2, 0)


def test_a_sync_that_waits_is_told_of_the_next_rebalance(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    members = [new_member(), new_member()]
    rebalance(members)
    leader = next(member for member in members if member.is_leader)
    (follower,) = [member for member in members if member is not leader]
    leader.send_join()
    groups.wait_for_state(wire, group, "PreparingRebalance")
    follower.try_join()
    leader.receive_join()
    follower.send_sync()
    leader.protocols = {"range": b"changed"}
    leader.send_join()
    assert follower.wire.receive().error_code == REBALANCE_IN_PROGRESS
    assert follower.try_join().error_code == 0
    assert leader.receive_join().error_code == 0


def test_the_protocol_with_most_votes_among_the_common_ones_is_chosen(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    members = [
        new_member(protocols={"only mine": b"0", "range": b"r1", "sticky": b"s1"}),
        new_member(protocols={"sticky": b"s2", "range": b"r2"}),
        new_member(protocols={"range": b"r3", "sticky": b"s3"}),
    ]
    rebalance(members)
    leader = next(member for member in members if member.is_leader)
    assert {member.last_join.protocol_name for member in members} == {"range"}
    found = sorted(entry.metadata for entry in leader.last_join.members)
    assert found == [b"r1", b"r2", b"r3"]
    shown = groups.describe(wire, group)
    assert (shown.group_state, shown.protocol_data) == ("Stable", "range")
    assert sorted(entry.member_metadata for entry in shown.members) == [b"r1", b"r2", b"r3"]


def test_the_first_to_join_leads(wire: Wire, group: str, new_member: NewMember) -> None:
    first = new_member().join_alone()
    second, third = new_member(), new_member()
    rebalance([first, second, third])
    assert first.is_leader
    assert first.leave() == 0
    groups.wait_for_state(wire, group, "PreparingRebalance")
    second.send_join()
    third.send_join()
    answers = [second.receive_join(), third.receive_join()]
    assert {answer.generation_id for answer in answers} == {first.generation + 1}
    assert answers[0].leader in (second.member_id, third.member_id)
    assert answers[0].leader == answers[1].leader


def test_members_may_leave_while_others_wait(wire: Wire, group: str, new_member: NewMember) -> None:
    # C053
    members = [new_member() for _ in range(3)]
    rebalance(members)
    first, second, third = members
    first.send_join()
    groups.wait_for_state(wire, group, "PreparingRebalance")
    second.send_join()
    assert third.leave() == 0
    begun = time.monotonic()
    assert first.receive_join().error_code == second.receive_join().error_code == 0
    assert time.monotonic() - begun < 5
    assert first.generation == second.generation


def test_a_member_that_asked_for_an_id_is_waited_for(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    first = new_member().join_alone()
    late = new_member()
    late.ask_for_id()
    first.protocols = {"range": b"changed"}
    first.send_join()
    groups.wait_for_state(wire, group, "PreparingRebalance")
    # It may also say that it does not come.
    (left,) = groups.leave(wire, group, [(late.member_id, None)]).members
    assert left.error_code == 0
    answer = first.receive_join()
    assert (answer.generation_id, len(answer.members)) == (2, 1)
    assert late.try_join().error_code == UNKNOWN_MEMBER_ID


# ----------------------------------------------------------------------------- batched leaving


def test_many_leave_in_one_request(wire: Wire, group: str, new_member: NewMember) -> None:
    plain, static, stays = new_member(), new_member(instance="s"), new_member()
    rebalance([plain, static, stays])
    answer = groups.leave(
        wire,
        group,
        [
            (plain.member_id, None),
            ("", "s"),
            ("unknown", None),
            ("", "unknown instance"),
            (plain.member_id, None),
        ],
    )
    assert answer.error_code == 0
    assert [(found.member_id, found.group_instance_id) for found in answer.members] == [
        (plain.member_id, None),
        ("", "s"),
        ("unknown", None),
        ("", "unknown instance"),
        (plain.member_id, None),
    ]
    assert [found.error_code for found in answer.members] == [
        0,
        0,
        UNKNOWN_MEMBER_ID,
        UNKNOWN_MEMBER_ID,
        UNKNOWN_MEMBER_ID,
    ]
    assert stays.heartbeat() == REBALANCE_IN_PROGRESS
    assert stays.join().generation_id == 3
    assert len(stays.last_join.members) == 1


def test_leaving_an_unknown_group(wire: Wire, group: str) -> None:
    answer = groups.leave(wire, group, [("m", None), ("", "i")])
    assert answer.error_code == 0
    assert [(found.member_id, found.error_code) for found in answer.members] == [
        ("m", UNKNOWN_MEMBER_ID),
        ("", UNKNOWN_MEMBER_ID),
    ]
    old = wire.request("leave_group", 2, group_id=group, member_id="m")
    assert old.error_code == UNKNOWN_MEMBER_ID
    assert groups.leave(wire, group, []).members == []


# --------------------------------------------------------------------------- static membership


def test_a_static_member_that_comes_back_disturbs_nobody(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    first, other = new_member(instance="a"), new_member(instance="b")
    rebalance([first, other])
    leader, follower = (first, other) if first.is_leader else (other, first)
    generation, assignment = follower.generation, follower.sync()
    again = new_member(instance=follower.instance)
    answer = again.try_join()
    assert (answer.error_code, answer.generation_id, answer.members) == (0, generation, [])
    assert answer.member_id != follower.member_id
    assert answer.leader == leader.member_id
    assert again.sync() == assignment
    assert leader.heartbeat() == 0
    # The one who was there before is fenced, whatever it tries.
    assert follower.heartbeat() == FENCED_INSTANCE_ID
    assert follower.try_sync().error_code == FENCED_INSTANCE_ID
    assert follower.try_join().error_code == FENCED_INSTANCE_ID
    topic = create_topic(wire)
    assert follower.commit(topic, 1) == FENCED_INSTANCE_ID
    assert follower.leave() == FENCED_INSTANCE_ID
    assert again.heartbeat() == 0


@pytest.mark.parametrize("version", [5, 8, 9])
def test_a_static_leader_that_comes_back_keeps_the_generation(
    wire: Wire, group: str, new_member: NewMember, version: int
) -> None:
    first, other = new_member(instance="a"), new_member(instance="b")
    rebalance([first, other])
    leader, follower = (first, other) if first.is_leader else (other, first)
    again = new_member(instance=leader.instance, version=version)
    answer = again.try_join()
    assert (answer.error_code, answer.generation_id) == (0, leader.generation)
    if version >= 9:
        # It leads again, but there is nothing to assign.
        assert answer.skip_assignment is True
        assert answer.leader == again.member_id
        assert {found.group_instance_id for found in answer.members} == {"a", "b"}
    else:
        # Told of its old id as the leader, it does not take itself for it.
        assert answer.leader == leader.member_id
        assert answer.members == []
    assert again.sync() != b""
    assert follower.heartbeat() == 0
    assert groups.state(wire, group) == "Stable"
    shown = groups.describe(wire, group)
    assert again.member_id in {found.member_id for found in shown.members}


def test_a_static_member_with_other_metadata_starts_a_rebalance(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    first, other = new_member(instance="a"), new_member(instance="b")
    rebalance([first, other])
    leader, follower = (first, other) if first.is_leader else (other, first)
    again = new_member(instance=follower.instance, protocols={"sticky": b"", "range": b"meta"})
    again.send_join()
    answer = again.receive_join()
    # The chosen protocol and its metadata are as before: still no rebalance.
    assert (answer.error_code, answer.generation_id) == (0, leader.generation)
    again = new_member(instance=follower.instance, protocols={"range": b"changed"})
    again.send_join()
    answer = again.receive_join()
    assert (answer.error_code, answer.generation_id) == (0, leader.generation)
    assert leader.heartbeat() == 0


def test_static_identities_are_checked(new_member: NewMember) -> None:
    member = new_member(instance="a").join_alone()
    assert member.heartbeat(group_instance_id="unknown") == UNKNOWN_MEMBER_ID
    assert member.heartbeat(member_id="other") == FENCED_INSTANCE_ID
    assert member.heartbeat(group_instance_id=None) == 0
    assert member.try_sync(member_id="other").error_code == FENCED_INSTANCE_ID
    assert member.try_sync(group_instance_id="unknown").error_code == UNKNOWN_MEMBER_ID
    wrong = member.try_join(member_id="other")
    assert (wrong.error_code, wrong.generation_id) == (FENCED_INSTANCE_ID, -1)
    wrong = member.try_join(member_id="other", group_instance_id="unknown")
    assert wrong.error_code == UNKNOWN_MEMBER_ID
    assert member.heartbeat() == 0


def test_static_members_leave_by_their_instance(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    member = new_member(instance="a").join_alone()
    (found,) = groups.leave(wire, group, [("other", "a")]).members
    assert found.error_code == FENCED_INSTANCE_ID
    (found,) = groups.leave(wire, group, [(member.member_id, "a")]).members
    assert found.error_code == 0
    (found,) = groups.leave(wire, group, [(member.member_id, "a")]).members
    assert found.error_code == UNKNOWN_MEMBER_ID
    assert groups.state(wire, group) == "Empty"


def test_two_that_take_the_same_instance_while_joining(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    holder = new_member().join_alone()
    one, two = new_member(instance="same"), new_member(instance="same")
    one.send_join()
    groups.wait_for_state(wire, group, "PreparingRebalance")
    two.send_join()
    assert one.receive_join().error_code == FENCED_INSTANCE_ID
    holder.try_join()
    assert two.receive_join().error_code == 0
    assert holder.generation == two.generation
    assert len(holder.last_join.members) == 2


# ------------------------------------------------------------------------------------- timers


def test_a_silent_member_is_dropped(wire: Wire, group: str, new_member: NewMember) -> None:
    member = new_member(session_timeout=SHORT_MS).join_alone()
    groups.wait_for_state(wire, group, "Empty")
    assert member.heartbeat() == UNKNOWN_MEMBER_ID
    assert member.try_join().error_code == UNKNOWN_MEMBER_ID


def test_heartbeats_and_commits_keep_a_member(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    topic = create_topic(wire)
    member = new_member(session_timeout=SHORT_MS).join_alone()
    for _ in range(6):
        time.sleep(SHORT_MS / 4000)
        assert member.heartbeat() == 0
    for turn in range(6):
        time.sleep(SHORT_MS / 4000)
        assert member.commit(topic, turn) == 0
    assert groups.state(wire, group) == "Stable"
    assert member.heartbeat() == 0


def test_a_closed_connection_ends_no_membership(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    member = new_member().join_alone()
    member.wire.close()
    member.wire = wire
    assert member.heartbeat() == 0
    assert groups.state(wire, group) == "Stable"


def test_the_dropped_make_room_for_the_rest(wire: Wire, group: str, new_member: NewMember) -> None:
    silent = new_member(session_timeout=SHORT_MS)
    steady = new_member()
    rebalance([silent, steady])
    groups.wait_for_state(wire, group, "PreparingRebalance")
    assert steady.heartbeat() == REBALANCE_IN_PROGRESS
    assert steady.join().generation_id == 3
    assert steady.is_leader
    assert len(steady.last_join.members) == 1


def test_who_does_not_rejoin_in_time_is_left_behind(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    slow = new_member(rebalance_timeout=SHORT_MS)
    quick = new_member(rebalance_timeout=SHORT_MS)
    rebalance([slow, quick])
    quick.protocols = {"range": b"changed"}
    begun = time.monotonic()
    answer = quick.try_join()
    took = time.monotonic() - begun
    assert (answer.error_code, len(answer.members)) == (0, 1)
    assert SHORT_MS / 1000 - 0.1 <= took < 10
    assert slow.heartbeat() == UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_rejoin_stays_until_its_session_ends(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    absent = new_member(instance="a", rebalance_timeout=SHORT_MS)
    other = new_member(rebalance_timeout=SHORT_MS)
    rebalance([absent, other])
    other.protocols = {"range": b"changed"}
    answer = other.try_join()
    assert answer.error_code == 0
    assert sorted(str(found.group_instance_id) for found in answer.members) == ["None", "a"]


def test_the_largest_rebalance_timeout_counts(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    slow = new_member(rebalance_timeout=3 * SHORT_MS)
    quick = new_member(rebalance_timeout=SHORT_MS)
    rebalance([slow, quick])
    quick.protocols = {"range": b"changed"}
    quick.send_join()
    groups.wait_for_state(wire, group, "PreparingRebalance")
    time.sleep(1.8 * SHORT_MS / 1000)
    assert slow.heartbeat() == REBALANCE_IN_PROGRESS
    assert slow.try_join().error_code == 0
    assert len(quick.receive_join().members) + len(slow.last_join.members) == 2


@pytest.mark.parametrize("version", [0, 1])
def test_the_oldest_join_takes_the_session_for_the_rebalance_timeout(
    wire: Wire, group: str, new_member: NewMember, version: int
) -> None:
    slow = new_member(version=version, session_timeout=2 * SHORT_MS, rebalance_timeout=600_000)
    quick = new_member(version=version, session_timeout=2 * SHORT_MS, rebalance_timeout=600_000)
    slow.join_alone()
    quick.send_join()
    groups.wait_for_state(wire, group, "PreparingRebalance")
    if version == 0:
        # The slow one heartbeats but does not rejoin.
        for _ in range(40):
            if slow.heartbeat() != REBALANCE_IN_PROGRESS:
                break
            time.sleep(SHORT_MS / 4000)
        assert quick.receive_join().generation_id == 2
        assert quick.is_leader
    else:
        for _ in range(12):
            time.sleep(SHORT_MS / 4000)
            assert slow.heartbeat() == REBALANCE_IN_PROGRESS
        assert slow.try_join().error_code == quick.receive_join().error_code == 0


def test_who_does_not_sync_in_time_is_left_behind(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    lazy = new_member(rebalance_timeout=SHORT_MS)
    lazy.join()
    assert lazy.is_leader
    steady = new_member(rebalance_timeout=SHORT_MS)
    steady.ask_for_id()
    steady.send_join()
    groups.wait_for_state(wire, group, "PreparingRebalance")
    lazy.try_join()
    assert steady.receive_join().error_code == 0
    steady.send_sync()
    assert steady.wire.receive().error_code == REBALANCE_IN_PROGRESS
    assert lazy.heartbeat() == UNKNOWN_MEMBER_ID
    answer = steady.try_join()
    assert (answer.error_code, len(answer.members)) == (0, 1)
    assert steady.is_leader


def test_an_id_that_is_not_used_is_forgotten(wire: Wire, group: str, new_member: NewMember) -> None:
    member = new_member(session_timeout=SHORT_MS)
    member.ask_for_id()
    time.sleep(2 * SHORT_MS / 1000)
    assert member.try_join().error_code == UNKNOWN_MEMBER_ID


def test_an_old_client_that_hangs_up_while_joining_leaves_no_ghost(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    # C052
    steady = new_member(version=2).join_alone()
    for count in range(2, 7):
        ghost = new_member(version=2, session_timeout=SHORT_MS)
        ghost.send_join()
        processes.wait_until(
            lambda: len(groups.describe(wire, group).members) == count, 30, "the ghost's join"
        )
        ghost.wire.close()
    answer = steady.try_join()
    assert answer.error_code == 0
    assert len(answer.members) == 6
    steady.sync({})
    groups.wait_for_state(wire, group, "PreparingRebalance")
    answer = steady.try_join()
    assert (answer.error_code, len(answer.members)) == (0, 1)


# --------------------------------------------------------------------- a broker's own settings


# Groups have two members at most, and wait a while for their first.
small_groups = broker_of_the_file(
    {"group.max.size": "2", "group.initial.rebalance.delay.ms": "1500"}, prefix="set"
)


def joined(broker: Broker, group: str, count: int) -> list[Member]:
    members = [Member(broker.address, group) for _ in range(count)]
    for member in members:
        member.ask_for_id()
    for member in members:
        member.send_join()
    for member in members:
        member.receive_join()
    return members


def test_groups_have_a_largest_size(small_groups: Broker) -> None:
    with Wire(small_groups.address) as wire:
        group = groups.new_group(wire)
    members = joined(small_groups, group, 2)
    assert [member.last_join.error_code for member in members] == [0, 0]
    assert members[0].generation == members[1].generation == 1
    late = Member(small_groups.address, group)
    answer = late.try_join()
    assert (answer.error_code, answer.member_id) == (GROUP_MAX_SIZE_REACHED, "")
    static = Member(small_groups.address, group, instance="i")
    assert static.try_join().error_code == GROUP_MAX_SIZE_REACHED
    for member in (*members, late, static):
        member.wire.close()


def test_an_empty_group_waits_for_more_members(small_groups: Broker) -> None:
    with Wire(small_groups.address) as wire:
        group = groups.new_group(wire)
    first, second = (Member(small_groups.address, group) for _ in range(2))
    first.ask_for_id()
    second.ask_for_id()
    begun = time.monotonic()
    first.send_join()
    time.sleep(0.8)
    second.send_join()
    assert first.receive_join().error_code == second.receive_join().error_code == 0
    took = time.monotonic() - begun
    assert first.generation == second.generation == 1
    assert 1.4 < took < 10
    first.wire.close()
    second.wire.close()


def reconnect(broker: Broker, members: Sequence[Member]) -> None:
    """New connections after a restart; waits until the coordinator has loaded the group."""
    for member in members:
        member.wire.close()
        member.wire = Wire(broker.address)
    groups.wait_for_coordinator(members[0].wire, members[0].group)


def test_a_stable_group_survives_restarts(own_broker: Broker) -> None:
    # C055
    with Wire(own_broker.address) as wire:
        group = groups.new_group(wire)
        topic = create_topic(wire)
    with (
        Member(own_broker.address, group, instance="a") as one,
        Member(own_broker.address, group) as two,
    ):
        rebalance([one, two])
        assert one.commit(topic, 5) == 0
        before = one.sync(), two.sync()
        for end in (own_broker.stop, own_broker.kill9):
            end()
            own_broker.start()
            reconnect(own_broker, [one, two])
            assert (one.heartbeat(), two.heartbeat()) == (0, 0)
            assert (one.sync(), two.sync()) == before
            shown = groups.describe(one.wire, group)
            assert shown.group_state == "Stable"
            assert {found.member_id for found in shown.members} == {one.member_id, two.member_id}
            assert groups.committed_offset(one.wire, group, topic) == 5
            assert one.heartbeat(member_id=f"a-{uuid.uuid4()}") == FENCED_INSTANCE_ID


def test_a_group_that_was_joining_starts_anew_after_a_restart(own_broker: Broker) -> None:
    with Wire(own_broker.address) as wire:
        group = groups.new_group(wire)
    with Member(own_broker.address, group) as member:
        member.join()
        own_broker.kill9()
        own_broker.start()
        reconnect(own_broker, [member])
        # Nothing of a group without an assignment was written.
        assert member.heartbeat() == UNKNOWN_MEMBER_ID
        member.member_id = ""
        assert member.join().error_code == 0
