"""OffsetCommit, OffsetFetch and OffsetDelete."""

import struct
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import groups, processes, requests
from tests.support.fixtures import Broker
from tests.support.groups import (
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    INVALID_GROUP_ID,
    NON_EMPTY_GROUP,
    OFFSET_METADATA_TOO_LARGE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Member,
    commit,
    committed,
    committed_offset,
)
from tests.support.requests import create_topic
from tests.support.wire import Wire

NewMember = Callable[..., Member]
UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID = 3, 100


# -------------------------------------------------------------------------- commit, then fetch


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_commits(wire: Wire, group: str, version: int) -> None:
    topic = create_topic(wire, partitions=2)
    known = requests.topic_id(wire, topic)
    named: Any = known if version >= 10 else topic
    assert commit(wire, group, named, 7, partition=1, metadata="m", version=version) == 0
    part = committed(wire, group, topic, partition=1)
    assert (part.committed_offset, part.metadata, part.error_code) == (7, "m", 0)
    assert part.committed_leader_epoch == -1
    # The same again, and a lower one: the last word counts.
    assert commit(wire, group, named, 7, partition=1, version=version) == 0
    assert commit(wire, group, named, 3, partition=1, version=version) == 0
    assert committed_offset(wire, group, topic, partition=1) == 3
    assert committed_offset(wire, group, topic, partition=0) == -1


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_fetches(wire: Wire, group: str, version: int) -> None:
    topic = create_topic(wire, partitions=3)
    known = requests.topic_id(wire, topic)
    named: Any = known if version >= 10 else topic
    assert commit(wire, group, topic, 11, partition=1, metadata="m", leader_epoch=0) == 0
    found = groups.fetch_group(wire, group, {named: [2, 1]}, version=version)
    if version >= 2:
        assert found.error_code == 0
    (entry,) = found.topics
    assert (entry.topic_id if version >= 10 else entry.name) == named
    missing, there = entry.partitions
    assert (missing.partition_index, missing.committed_offset) == (2, -1)
    assert (missing.metadata, missing.error_code) == ("", 0)
    assert (there.partition_index, there.committed_offset) == (1, 11)
    assert (there.metadata, there.error_code) == ("m", 0)
    if version >= 5:
        assert (missing.committed_leader_epoch, there.committed_leader_epoch) == (-1, 0)


@pytest.mark.parametrize("version", range(2, 11))
def test_without_topics_everything_committed_is_told(wire: Wire, group: str, version: int) -> None:
    one, other = create_topic(wire, partitions=2), create_topic(wire)
    assert groups.fetch_group(wire, group, version=version).topics == []
    for topic, partition, offset in ((one, 0, 1), (one, 1, 2), (other, 0, 3)):
        assert commit(wire, group, topic, offset, partition=partition) == 0
    names = {requests.topic_id(wire, name): name for name in (one, other)}
    found = groups.fetch_group(wire, group, version=version)
    told = {
        (
            names[entry.topic_id] if version >= 10 else entry.name,
            part.partition_index,
        ): part.committed_offset
        for entry in found.topics
        for part in entry.partitions
    }
    assert told == {(one, 0): 1, (one, 1): 2, (other, 0): 3}
    assert len(found.topics) == 2


def test_no_topics_are_not_all_topics(wire: Wire, group: str) -> None:
    topic = create_topic(wire)
    assert commit(wire, group, topic, 1) == 0
    assert groups.fetch_group(wire, group, {}).topics == []
    assert groups.fetch_group(wire, group, {}, version=2).topics == []
    (entry,) = groups.fetch_group(wire, group, {topic: []}).topics
    assert (entry.name, entry.partitions) == (topic, [])


def test_groups_are_fetched_in_one_request(wire: Wire, group: str) -> None:
    topic = create_topic(wire)
    others = [groups.new_group(wire) for _ in range(3)]
    assert commit(wire, group, topic, 1) == 0
    assert commit(wire, others[0], topic, 2) == 0
    asked = [
        {"group_id": name, "topics": [{"name": topic, "partition_indexes": [0]}]}
        for name in (others[0], others[1], group)
    ]
    asked.append({"group_id": others[0], "topics": None})
    answer = wire.request("offset_fetch", 8, groups=asked)
    found = [
        (entry.group_id, entry.error_code, entry.topics[0].partitions[0].committed_offset)
        for entry in answer.groups
    ]
    assert sorted(found) == sorted(
        [(others[0], 0, 2), (others[1], 0, -1), (group, 0, 1), (others[0], 0, 2)]
    )
    assert wire.request("offset_fetch", 8, groups=[]).groups == []


@pytest.mark.parametrize("require_stable", [False, True])
def test_stable_offsets_may_be_asked_for(wire: Wire, group: str, require_stable: bool) -> None:
    topic = create_topic(wire)
    assert commit(wire, group, topic, 1) == 0
    answer = wire.request(
        "offset_fetch",
        7,
        group_id=group,
        topics=[{"name": topic, "partition_indexes": [0]}],
        require_stable=require_stable,
    )
    assert answer.topics[0].partitions[0].committed_offset == 1


# ------------------------------------------------------------------------------ what is unknown


def test_topics_that_are_not_there_take_no_commit(wire: Wire, group: str) -> None:
    topic, gone = create_topic(wire), requests.new_topic_name()
    part = {"partition_index": 0, "committed_offset": 5}
    answer = wire.request(
        "offset_commit",
        9,
        **groups.commit_fields(
            group,
            {
                gone: [part, {**part, "partition_index": 1}],
                topic: [part, {**part, "partition_index": 1}, {**part, "partition_index": -1}],
            },
        ),
    )
    found = {
        (entry.name, part.partition_index): part.error_code
        for entry in answer.topics
        for part in entry.partitions
    }
    assert found == {
        (gone, 0): UNKNOWN_TOPIC,
        (gone, 1): UNKNOWN_TOPIC,
        (topic, 0): 0,
        (topic, 1): UNKNOWN_TOPIC,
        (topic, -1): UNKNOWN_TOPIC,
    }
    assert committed_offset(wire, group, topic) == 5
    assert committed_offset(wire, group, gone) == -1  # asking is no error
    assert committed_offset(wire, group, topic, partition=77) == -1


def test_topic_ids_that_are_not_there(wire: Wire, group: str) -> None:
    topic = create_topic(wire)
    known, unknown = requests.topic_id(wire, topic), uuid.uuid4()
    part = {"partition_index": 0, "committed_offset": 5}
    answer = wire.request(
        "offset_commit", 10, **groups.commit_fields(group, {unknown: [part], known: [part]})
    )
    found = {entry.topic_id: entry.partitions[0].error_code for entry in answer.topics}
    assert found == {unknown: UNKNOWN_TOPIC_ID, known: 0}
    fetched = groups.fetch_group(wire, group, {unknown: [0, 1], known: [0]}, version=10)
    told = {
        (entry.topic_id, part.partition_index): (part.error_code, part.committed_offset)
        for entry in fetched.topics
        for part in entry.partitions
    }
    assert told == {
        (unknown, 0): (UNKNOWN_TOPIC_ID, -1),
        (unknown, 1): (UNKNOWN_TOPIC_ID, -1),
        (known, 0): (0, 5),
    }


def test_a_commit_without_topics_is_answered(wire: Wire, group: str) -> None:
    answer = wire.request("offset_commit", 9, **groups.commit_fields(group, {}))
    assert answer.topics == []
    assert groups.fetch_group(wire, group).topics == []


def test_a_deleted_topic_takes_its_offsets_along(wire: Wire, group: str) -> None:
    stays, goes = create_topic(wire), create_topic(wire)
    assert commit(wire, group, stays, 1) == commit(wire, group, goes, 2) == 0
    requests.delete_topic(wire, goes)
    processes.wait_until(lambda: committed_offset(wire, group, goes) == -1, 30, "the offsets to go")
    assert [entry.name for entry in groups.fetch_group(wire, group).topics] == [stays]
    assert commit(wire, group, goes, 3) == UNKNOWN_TOPIC


# ------------------------------------------------------------------------------ odd values (C059)


@pytest.mark.parametrize("offset", [0, 1 << 62, (1 << 63) - 1])
def test_offsets_at_the_edges_come_back(wire: Wire, group: str, offset: int) -> None:
    topic = create_topic(wire)
    assert commit(wire, group, topic, offset) == 0
    assert committed_offset(wire, group, topic) == offset


@pytest.mark.parametrize("offset", [-1, -2, -1001, -(1 << 63)])
def test_negative_offsets_read_back_as_they_were(wire: Wire, group: str, offset: int) -> None:
    # C059: Apache Kafka stores them; -1 reads as "nothing committed".
    topic = create_topic(wire)
    assert commit(wire, group, topic, 4) == 0
    assert commit(wire, group, topic, offset) == 0
    part = committed(wire, group, topic)
    assert (part.committed_offset, part.error_code) == (offset, 0)
    assert commit(wire, group, topic, 4) == 0
    assert committed_offset(wire, group, topic) == 4


def test_metadata_has_a_limit(wire: Wire, group: str) -> None:
    # C067
    topic = create_topic(wire, partitions=3)
    parts = [
        {"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 4096},
        {"partition_index": 1, "committed_offset": 1, "committed_metadata": "x" * 4097},
        {"partition_index": 2, "committed_offset": 1, "committed_metadata": None},
    ]
    answer = wire.request("offset_commit", 9, **groups.commit_fields(group, {topic: parts}))
    (entry,) = answer.topics
    assert [part.error_code for part in entry.partitions] == [0, OFFSET_METADATA_TOO_LARGE, 0]
    found = groups.fetch_group(wire, group, {topic: [0, 1, 2]}).topics[0].partitions
    assert [part.metadata for part in found] == ["x" * 4096, "", ""]
    assert [part.committed_offset for part in found] == [1, -1, 1]


def test_the_limit_counts_characters(wire: Wire, group: str) -> None:
    topic = create_topic(wire)
    assert commit(wire, group, topic, 1, metadata="ä" * 4096) == 0
    assert committed(wire, group, topic).metadata == "ä" * 4096
    assert commit(wire, group, topic, 1, metadata="ä" * 4097) == OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize("version", range(5, 9))
def test_leader_epochs_come_back_with_names_and_without(
    wire: Wire, group: str, version: int
) -> None:
    # C067
    topic = create_topic(wire)
    assert commit(wire, group, topic, 1, leader_epoch=7, metadata="m", version=8) == 0
    for asked in ({topic: [0]}, None):
        found = groups.fetch_group(wire, group, asked, version=version)
        (part,) = found.topics[0].partitions
        assert (part.committed_leader_epoch, part.metadata) == (7, "m")


@pytest.mark.parametrize("retention", [-1, 0, 86_400_000])
@pytest.mark.parametrize("version", [2, 3, 4])
def test_old_commits_carry_a_retention_time(
    wire: Wire, group: str, version: int, retention: int
) -> None:
    topic = create_topic(wire)
    fields = groups.commit_fields(group, {topic: [{"partition_index": 0, "committed_offset": 8}]})
    answer = wire.request("offset_commit", version, **fields, retention_time=retention)
    assert answer.topics[0].partitions[0].error_code == 0
    if retention != 0:
        assert committed_offset(wire, group, topic) == 8


def test_one_partition_twice_in_a_commit(wire: Wire, group: str) -> None:
    topic = create_topic(wire)
    parts = [{"partition_index": 0, "committed_offset": offset} for offset in (1, 2)]
    answer = wire.request("offset_commit", 9, **groups.commit_fields(group, {topic: parts}))
    assert [part.error_code for part in answer.topics[0].partitions] == [0, 0]
    assert committed_offset(wire, group, topic) == 2


def test_a_large_commit(wire: Wire, group: str) -> None:
    topic = create_topic(wire, partitions=200)
    parts = [
        {"partition_index": index, "committed_offset": index, "committed_metadata": "m" * 1000}
        for index in range(200)
    ]
    answer = wire.request("offset_commit", 9, **groups.commit_fields(group, {topic: parts}))
    assert {part.error_code for part in answer.topics[0].partitions} == {0}
    (entry,) = groups.fetch_group(wire, group).topics
    told = {part.partition_index: part.committed_offset for part in entry.partitions}
    assert told == {index: index for index in range(200)}


# -------------------------------------------------------------------------------- who may commit


def test_a_group_without_members_takes_commits_of_nobody_only(wire: Wire, group: str) -> None:
    topic = create_topic(wire)
    for version, code in (
        (2, ILLEGAL_GENERATION),
        (8, ILLEGAL_GENERATION),
        (9, GROUP_ID_NOT_FOUND),
    ):
        options: dict[str, Any] = {"version": version}
        assert commit(wire, group, topic, 1, generation=1, member_id="m", **options) == code
        assert commit(wire, group, topic, 1, generation=0, **options) == code
    assert groups.state(wire, group) == "Dead"
    assert commit(wire, group, topic, 1) == 0
    assert groups.state(wire, group) == "Empty"
    # There is such a group now, but nobody is in it.
    assert commit(wire, group, topic, 2, generation=1, member_id="m") == UNKNOWN_MEMBER_ID
    assert commit(wire, group, topic, 2, generation=0, member_id="") == UNKNOWN_MEMBER_ID
    assert committed_offset(wire, group, topic) == 1
    # Without a generation a name does not matter.
    assert commit(wire, group, topic, 3, instance="i", member_id="m") == 0
    assert committed_offset(wire, group, topic) == 3


def test_only_members_of_the_generation_commit(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    topic = create_topic(wire)
    member = new_member().join_alone()
    assert member.commit(topic, 1) == 0
    assert member.commit(topic, 9, generation=member.generation + 1) == ILLEGAL_GENERATION
    assert member.commit(topic, 9, generation=member.generation - 1) == ILLEGAL_GENERATION
    assert member.commit(topic, 9, member_id="other") == UNKNOWN_MEMBER_ID
    assert member.commit(topic, 9, generation=-1) == ILLEGAL_GENERATION
    assert commit(wire, group, topic, 9) == UNKNOWN_MEMBER_ID  # nobody in particular
    assert committed_offset(wire, group, topic) == 1
    member.leave()
    assert member.commit(topic, 9) == UNKNOWN_MEMBER_ID
    assert commit(wire, group, topic, 2) == 0
    assert committed_offset(wire, group, topic) == 2


def test_commits_during_a_rebalance(wire: Wire, group: str, new_member: NewMember) -> None:
    topic = create_topic(wire)
    first, second = new_member().join_alone(), new_member()
    second.ask_for_id()
    second.send_join()
    groups.wait_for_state(wire, group, "PreparingRebalance")
    assert first.commit(topic, 1) == 0  # the last chance to say how far one came
    assert first.commit(topic, 2, generation=first.generation + 1) == ILLEGAL_GENERATION
    first.try_join()
    second.receive_join()
    assert first.commit(topic, 3) == REBALANCE_IN_PROGRESS
    assert second.commit(topic, 3) == REBALANCE_IN_PROGRESS
    assert first.commit(topic, 3, generation=first.generation - 1) == ILLEGAL_GENERATION
    assert committed_offset(wire, group, topic) == 1
    first.sync({})
    assert first.commit(topic, 4) == 0


def test_old_commits_name_no_instance(wire: Wire, group: str, new_member: NewMember) -> None:
    topic = create_topic(wire)
    member = new_member(instance="a").join_alone()
    identity: dict[str, Any] = {
        "generation": member.generation,
        "member_id": member.member_id,
    }
    assert commit(wire, group, topic, 1, version=6, **identity) == 0
    assert commit(wire, group, topic, 1, version=7, **identity, instance="a") == 0


def test_reading_needs_no_membership(wire: Wire, group: str, new_member: NewMember) -> None:
    topic = create_topic(wire)
    member = new_member().join_alone()
    assert member.commit(topic, 1) == 0
    assert committed_offset(wire, group, topic) == 1
    part = committed(wire, group, topic, member_id="whoever", member_epoch=77)
    assert part.committed_offset == 1


@pytest.mark.parametrize("version", [2, 5, 8, 9])
def test_the_empty_group_name_commits_and_fetches_as_of_old(wire: Wire, version: int) -> None:
    topic = create_topic(wire)
    groups.wait_for_coordinator(wire, "")
    assert commit(wire, "", topic, 1, version=version) == 0
    assert committed_offset(wire, "", topic) == 1


# --------------------------------------------------------------------------- deleting offsets


def codes(answer: Any) -> dict[tuple[str, int], int]:
    return {
        (entry.name, part.partition_index): part.error_code
        for entry in answer.topics
        for part in entry.partitions
    }


def test_offsets_of_an_empty_group_are_deleted(wire: Wire, group: str) -> None:
    topic = create_topic(wire, partitions=2)
    for partition in (0, 1):
        assert commit(wire, group, topic, 5, partition=partition) == 0
    unknown = requests.new_topic_name()
    answer = groups.delete_offsets(wire, group, {topic: [0, 7], unknown: [0]})
    assert answer.error_code == 0
    assert codes(answer) == {(topic, 0): 0, (topic, 7): UNKNOWN_TOPIC, (unknown, 0): UNKNOWN_TOPIC}
    assert committed_offset(wire, group, topic, partition=0) == -1
    assert committed_offset(wire, group, topic, partition=1) == 5
    again = groups.delete_offsets(wire, group, {topic: [0]})
    assert (again.error_code, codes(again)) == (0, {(topic, 0): 0})


def test_a_group_is_gone_with_its_last_offset(wire: Wire, group: str) -> None:
    topic = create_topic(wire)
    assert commit(wire, group, topic, 5) == 0
    assert groups.delete_offsets(wire, group, {topic: [0]}).error_code == 0
    assert committed_offset(wire, group, topic) == -1
    assert commit(wire, group, topic, 6) == 0
    assert committed_offset(wire, group, topic) == 6


def test_offsets_of_unknown_groups(wire: Wire, group: str) -> None:
    topic = create_topic(wire)
    answer = groups.delete_offsets(wire, group, {topic: [0]})
    assert (answer.error_code, answer.topics) == (GROUP_ID_NOT_FOUND, [])
    answer = groups.delete_offsets(wire, "", {topic: [0]})
    assert (answer.error_code, answer.topics) == (INVALID_GROUP_ID, [])


def test_offsets_of_subscribed_topics_stay(wire: Wire, group: str, new_member: NewMember) -> None:
    # C068
    free, subscribed = create_topic(wire, partitions=3), create_topic(wire)
    unknown = requests.new_topic_name()
    member = new_member(protocols={"range": groups.subscription([subscribed])}).join_alone()
    for partition in range(3):
        assert member.commit(free, 5, partition=partition) == 0
    assert member.commit(subscribed, 5) == 0
    answer = groups.delete_offsets(wire, group, {free: [0, 1, 2], subscribed: [0], unknown: [0]})
    assert answer.error_code == 0
    assert sorted(entry.name for entry in answer.topics) == sorted([free, subscribed, unknown])
    assert codes(answer) == {
        (free, 0): 0,
        (free, 1): 0,
        (free, 2): 0,
        (subscribed, 0): GROUP_SUBSCRIBED_TO_TOPIC,
        (unknown, 0): UNKNOWN_TOPIC,
    }
    assert committed_offset(wire, group, free) == -1
    assert committed_offset(wire, group, subscribed) == 5
    member.leave()
    assert codes(groups.delete_offsets(wire, group, {subscribed: [0]})) == {(subscribed, 0): 0}


def test_offsets_of_other_kinds_of_members_stay(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    topic = create_topic(wire)
    member = new_member(protocol_type="connect", protocols={"default": b"\0"}).join_alone()
    assert member.commit(topic, 5) == 0
    answer = groups.delete_offsets(wire, group, {topic: [0]})
    assert (answer.error_code, answer.topics) == (NON_EMPTY_GROUP, [])


def test_a_subscription_that_cannot_be_read_subscribes_to_nothing_known(
    wire: Wire, group: str, new_member: NewMember
) -> None:
    topic = create_topic(wire)
    member = new_member(protocols={"range": struct.pack(">h", 0) + b"\x7f"}).join_alone()
    assert member.commit(topic, 5) == 0
    assert groups.delete_offsets(wire, group, {topic: [0]}).error_code == 0


# ------------------------------------------------------------------------------------ endurance


def test_committed_offsets_survive_restarts(own_broker: Broker) -> None:
    with Wire(own_broker.address) as wire:
        topic = create_topic(wire, partitions=4)
        names = [groups.new_group(wire) for _ in range(20)]
        for turn, name in enumerate(names):
            for partition in range(4):
                assert commit(wire, name, topic, turn, partition=partition, leader_epoch=turn) == 0
            assert commit(wire, name, topic, 100 + turn, partition=1, metadata="m") == 0
        groups.delete_groups(wire, names[:3])
        groups.delete_offsets(wire, names[3], {topic: [0]})
    for end in (own_broker.kill9, own_broker.stop):
        end()
        own_broker.start()
        with Wire(own_broker.address) as wire:
            for turn, name in enumerate(names):
                groups.wait_for_coordinator(wire, name)
                (entry,) = groups.fetch_group(wire, name, {topic: [0, 1, 2, 3]}).topics
                offsets = [part.committed_offset for part in entry.partitions]
                if turn < 3:
                    assert offsets == [-1, -1, -1, -1]
                else:
                    first = -1 if turn == 3 else turn
                    assert offsets == [first, 100 + turn, turn, turn]
                    assert entry.partitions[1].metadata == "m"
                    assert entry.partitions[3].committed_leader_epoch == turn
            listed = groups.list_groups(wire)
            assert set(names[3:]) <= set(listed)
            assert not set(names[:3]) & set(listed)


def test_while_loading_nothing_is_told_to_be_uncommitted(own_broker: Broker) -> None:
    # C059
    with Wire(own_broker.address) as wire:
        topic = create_topic(wire)
        group = groups.new_group(wire)
        for offset in range(500):
            assert commit(wire, group, topic, offset) == 0
    for _ in range(3):
        own_broker.kill9()
        own_broker.start()
        with Wire(own_broker.address) as wire:
            for _ in range(100):
                found = groups.fetch_group(wire, group, {topic: [0]})
                if found.error_code:
                    assert found.error_code in (14, 15, 16)
                else:
                    assert found.topics[0].partitions[0].committed_offset == 499
            groups.wait_for_coordinator(wire, group)
            assert committed_offset(wire, group, topic) == 499
