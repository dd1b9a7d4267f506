"""Committed offsets: commits, transactions, deletion, expiry."""

from __future__ import annotations

import uuid

import pytest

from broker.coordinator.group.offsets import OffsetTable
from broker.coordinator.group.records import (
    CommittedOffset,
    group_key,
    offset_key,
    offset_record,
)
from broker.model.error_code import ErrorCode
from broker.model.ids import ZERO_TOPIC_ID
from tests.broker.coordinator.build import DELAY_MS, GroupWorld

NONE = ErrorCode.NONE
T0 = ("t", 0)
MINUTE_MS = 60_000
WEEK_MS = 7 * 24 * 60 * MINUTE_MS


def committed(offset: int, record_offset: int = 0) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", 0, -1, ZERO_TOPIC_ID, record_offset)


# --- Commit and fetch -------------------------------------------------------------------------


def test_a_consumer_of_its_own_commits_without_joining() -> None:
    world = GroupWorld()
    assert world.fetch("g", T0) == {T0: -1}
    assert world.commit("g", {T0: 5, ("t", 1): 6}) == [NONE, NONE]
    assert world.fetch("g", T0, ("t", 7)) == {T0: 5, ("t", 7): -1}
    assert world.fetch("g") == {T0: 5, ("t", 1): 6}
    assert world.state() == "Empty"
    world.restart()
    assert world.fetch("g") == {T0: 5, ("t", 1): 6}


def test_everything_of_a_commit_comes_back() -> None:
    world = GroupWorld()
    world.commit("g", {T0: 5}, metadata="x" * 4096, leader_epoch=7)
    found: list[object] = []
    world.groups.fetch("g", None, False, lambda error, topics: found.append(topics[0].offsets[0]))
    assert found == [(0, NONE, 5, 7, "x" * 4096)]


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("x" * 4096, NONE),
        ("x" * 4097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("\U0001f600" * 2048, NONE),
        ("\U0001f600" * 2049, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (None, NONE),
    ],
)
def test_metadata_is_counted_in_utf_16_units(metadata: str | None, code: ErrorCode) -> None:
    world = GroupWorld()
    assert world.commit("g", {T0: 5}, metadata=metadata) == [code]
    assert world.fetch("g", T0) == {T0: 5 if code is NONE else -1}


def test_who_may_commit() -> None:
    world = GroupWorld()
    assert world.commit("g", {T0: 1}, "m", 0) is ErrorCode.GROUP_ID_NOT_FOUND
    assert (
        world.commit("g", {T0: 1}, "m", 0, knows_missing_groups=False)
        is ErrorCode.ILLEGAL_GENERATION
    )
    first, second = world.stable(2)
    assert first.commit({T0: 1}) == [NONE]
    assert world.commit("g", {T0: 2}) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit("g", {T0: 2}, "stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit("g", {T0: 2}, first.member_id, 2) is ErrorCode.ILLEGAL_GENERATION
    third = world.member().join()
    assert first.commit({T0: 2}) == [NONE]  # what it had until now is still its own
    first.join(), second.join()
    assert third.commit({T0: 3}) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.fetch("g", T0) == {T0: 2}


def test_a_commit_keeps_its_member_alive() -> None:
    world = GroupWorld()
    (member,) = world.stable(1)
    for offset in range(5):
        world.advance(9_000)
        assert member.commit({T0: offset}) == [NONE]
    assert world.state() == "Stable"


def test_a_refused_commit_changes_nothing() -> None:
    world = GroupWorld()
    world.commit("g", {T0: 5})
    for refusal, told in (
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ):
        world.log.refusal = refusal
        assert world.commit("g", {T0: 6}) is told
        world.log.refusal = None
        assert world.fetch("g", T0) == {T0: 5}


def test_nobody_is_shown_an_offset_before_it_is_committed() -> None:
    world = GroupWorld()
    world.log.holds = True
    assert world.commit("g", {T0: 5}) is None
    commit = world.last_commit
    assert world.fetch("g", T0) is None
    fetch = world.last_fetch
    world.log.release()
    assert (commit, fetch) == ([[NONE]], [{T0: 5}])


def test_offsets_of_an_earlier_topic_of_the_name_are_not_shown() -> None:
    world = GroupWorld()
    old, new = uuid.uuid4(), uuid.uuid4()
    world.commit("g", {T0: 5}, topic_id=old)
    assert world.fetch("g", T0, topic_id=old) == {T0: 5}
    assert world.fetch("g", T0, topic_id=new) == {T0: -1}
    assert world.fetch("g", T0) == {T0: 5}


def test_groups_have_shards() -> None:
    world = GroupWorld(partitions=5)
    for number in range(50):
        world.commit(f"g{number}", {T0: number})
    assert all(log.records for log in world.logs)
    assert [world.fetch(f"g{number}", T0) for number in range(50)] == [
        {T0: number} for number in range(50)
    ]


# --- Deletion ---------------------------------------------------------------------------------


def delete_offsets(world: GroupWorld, *partitions: tuple[str, int]) -> object:
    found: list[object] = []
    world.groups.delete_offsets(
        "g", partitions, lambda error, codes: found.append(list(codes) if error is NONE else error)
    )
    return found[0]


def test_offsets_are_deleted_unless_somebody_reads_the_topic() -> None:
    world = GroupWorld()
    assert delete_offsets(world, T0) is ErrorCode.GROUP_ID_NOT_FOUND
    (member,) = world.stable(1, topics=("t",))
    member.commit({T0: 1, ("u", 0): 2})
    reads = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offsets(world, T0, ("u", 0), ("u", 9)) == [reads, NONE, NONE]
    assert world.fetch("g") == {T0: 1}
    member.leave()
    assert delete_offsets(world, T0) == [NONE]
    world.restart()
    assert world.fetch("g") == {}


def test_offsets_of_other_kinds_of_groups_are_left_while_members_are_there() -> None:
    world = GroupWorld()
    world.stable(1, protocol_type="connect")
    assert delete_offsets(world, T0) is ErrorCode.NON_EMPTY_GROUP


def test_a_group_is_deleted_with_its_offsets_once_it_is_empty() -> None:
    world = GroupWorld()
    assert world.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    (member,) = world.stable(1)
    member.commit({T0: 1, ("t", 1): 2})
    assert world.delete() is ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert world.delete() is NONE
    for _ in range(2):
        assert world.state() == "Dead"
        assert world.fetch("g", T0) == {T0: -1}
        world.restart()
    assert world.delete() is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_with_more_offsets_than_fit_a_batch_is_deleted() -> None:
    world = GroupWorld()
    for first in range(0, 300, 100):
        world.commit("g", {("t", first + number): number for number in range(100)})
    world.log.max_batch_bytes = 2_000
    del world.log.batches[:]
    assert world.delete() is NONE
    assert sum(world.log.batches) == 301
    assert max(world.log.batches) <= 40
    assert world.state() == "Dead"


def test_offsets_of_deleted_topics_go() -> None:
    world = GroupWorld()
    gone, stays = uuid.uuid4(), uuid.uuid4()
    world.commit("g", {T0: 1}, topic_id=gone)
    world.commit("g", {("t", 1): 1}, topic_id=stays)
    runtime = world.groups.runtime
    (hosted,) = runtime.all_hosted()
    runtime.perform(
        hosted, lambda shard: shard.forget_topics("g", lambda _, topic_id: topic_id == gone)
    )
    assert world.fetch("g") == {("t", 1): 1}
    world.restart()
    assert world.fetch("g") == {("t", 1): 1}


# --- Expiry -----------------------------------------------------------------------------------


def test_offsets_of_a_group_that_nobody_joins_expire_a_week_after_their_commit() -> None:
    world = GroupWorld()
    world.commit("g", {T0: 1})
    world.advance(WEEK_MS - MINUTE_MS)
    world.commit("g", {("t", 1): 1})
    world.advance(MINUTE_MS - 1)
    world.expire()
    assert world.fetch("g") == {T0: 1, ("t", 1): 1}
    world.advance(1)
    world.expire()
    assert world.fetch("g") == {("t", 1): 1}
    world.advance(WEEK_MS)
    world.expire()
    assert world.state() == "Dead"
    world.restart()
    assert world.state() == "Dead"


def test_offsets_of_a_group_with_members_expire_only_on_topics_that_they_do_not_read() -> None:
    world = GroupWorld()
    (member,) = world.stable(1, topics=("t",), session_ms=1_800_000)
    member.commit({T0: 1, ("u", 0): 2})
    for _ in range(WEEK_MS // 1_700_000 + 1):
        world.advance(1_700_000)
        member.beat()
    world.expire()
    assert world.fetch("g") == {T0: 1}


def test_the_week_of_an_empty_group_begins_when_it_became_empty() -> None:
    world = GroupWorld()
    (member,) = world.stable(1, session_ms=1_800_000)
    member.commit({T0: 1})
    for _ in range(10):
        world.advance(1_700_000)
        member.beat()
    member.leave()
    world.restart()
    world.advance(WEEK_MS - 1)
    world.expire()
    assert world.fetch("g") == {T0: 1}
    world.advance(1)
    world.expire()
    assert world.state() == "Dead"


def test_nothing_expires_during_a_rebalance() -> None:
    world = GroupWorld(offsets_retention_minutes="1")
    (member,) = world.stable(1, session_ms=1_800_000, rebalance_ms=1_800_000)
    member.commit({("u", 0): 2})
    world.member(session_ms=1_800_000).join()
    world.advance(2 * MINUTE_MS)
    world.expire()
    assert world.fetch("g") == {("u", 0): 2}


def test_an_offset_with_a_retention_of_its_own() -> None:
    world = GroupWorld()
    world.commit("g", {T0: 1}, retention_ms=1_000)
    world.restart()
    world.advance(999)
    world.expire()
    assert world.fetch("g") == {T0: 1}
    world.advance(1)
    world.expire()
    assert world.fetch("g") == {}


def test_a_group_that_was_only_looked_at_is_forgotten() -> None:
    world = GroupWorld()
    world.member().send_join()
    assert world.state() == "Empty"
    world.expire()
    assert world.state() == "Dead"
    world.advance(DELAY_MS * 10)
    assert len(world.groups.runtime.timers) == 0


# --- Transactions -----------------------------------------------------------------------------


def test_offsets_of_a_transaction_count_from_its_commit_on() -> None:
    table = OffsetTable()
    table.replay_pending_commit(9, "g", "t", 0, committed(200, 1))
    assert table.get("g", "t", 0) is None
    assert table.has_pending("g", "t", 0)
    table.replay_marker(9, True)
    assert table.get("g", "t", 0) == committed(200, 1)
    assert not table.has_open_transactions("g")


def test_a_plain_commit_behind_a_transactions_wins() -> None:
    table = OffsetTable()
    table.replay_commit("g", "t", 0, committed(100, 0))
    table.replay_pending_commit(9, "g", "t", 0, committed(200, 1))
    table.replay_commit("g", "t", 0, committed(150, 2))
    table.replay_marker(9, True)
    assert table.get("g", "t", 0) == committed(150, 2)
    assert table.count == 1


def test_an_aborted_transaction_leaves_nothing() -> None:
    table = OffsetTable()
    table.replay_pending_commit(9, "g", "t", 0, committed(200, 1))
    table.replay_pending_commit(8, "g", "t", 0, committed(300, 2))
    table.replay_marker(9, False)
    assert table.has_pending("g", "t", 0)
    table.replay_marker(8, False)
    assert table.get("g", "t", 0) is None
    assert not table.has_pending("g", "t", 0)
    table.replay_marker(7, True)


def test_a_deletion_reaches_into_open_transactions() -> None:
    table = OffsetTable()
    table.replay_pending_commit(9, "g", "t", 0, committed(200, 1))
    table.replay_pending_commit(9, "h", "t", 0, committed(200, 2))
    table.replay_deletion("g", "t", 0)
    assert not table.has_open_transactions("g")
    table.replay_marker(9, True)
    assert table.get("g", "t", 0) is None
    assert table.get("h", "t", 0) is not None


# --- What other group protocols left ----------------------------------------------------------


def foreign_key(kind: int, group_id: str) -> bytes:
    return kind.to_bytes(2, "big") + group_key(group_id)[2:]


def test_a_classic_member_takes_over_what_another_protocol_left() -> None:
    world = GroupWorld()
    world.log.records.append(offset_record("g", "t", 0, committed(5)))  # type: ignore[arg-type]
    for kind in (17, 18, 20):
        world.log.records.append((foreign_key(kind, "g"), b"\0\0value"))  # type: ignore[arg-type]
    world.restart()
    assert world.fetch("g") == {T0: 5}
    assert world.commit("g", {T0: 6}) == [NONE]
    before = len(world.log.records)
    (member,) = world.stable(1)
    dead = [key for key, value in world.log.records[before:] if value is None]
    assert dead == [foreign_key(kind, "g") for kind in (20, 18, 17)]
    assert member.commit({T0: 7}) == [NONE]
    world.restart()
    assert world.state() == "Stable"
    assert world.fetch("g") == {T0: 7}


def test_deleting_a_group_deletes_what_another_protocol_left() -> None:
    world = GroupWorld()
    world.commit("g", {T0: 5})
    world.log.records.append((foreign_key(17, "g"), b"\0\0value"))  # type: ignore[arg-type]
    world.restart()
    before = len(world.log.records)
    assert world.delete() is NONE
    assert [key for key, _ in world.log.records[before:]] == [
        offset_key("g", "t", 0),
        foreign_key(17, "g"),
        group_key("g"),
    ]


def test_a_share_group_is_not_joined() -> None:
    world = GroupWorld()
    world.log.records.append((foreign_key(11, "g"), b"\0\0value"))  # type: ignore[arg-type]
    world.restart()
    member = world.member().join()
    assert member.joined is not None
    assert member.joined.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
