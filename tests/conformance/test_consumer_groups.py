"""Consumer groups of KIP-848, request by request, on our broker and on Apache Kafka."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support import groups, processes
from tests.support.consumer_groups import (
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    GROUP_ID_NOT_FOUND,
    INVALID_REGULAR_EXPRESSION,
    INVALID_REQUEST,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID,
    UNSUPPORTED_ASSIGNOR,
    Consumer,
    describe,
    heartbeat,
    joining,
    settle,
)
from tests.support.requests import create_topic
from tests.support.routing import Site, address_for_group, shared_site
from tests.support.wire import Struct, Wire

NewConsumer = Callable[..., Consumer]
NON_EMPTY_GROUP = 68
broker = shared_site()


@pytest.fixture
def topic(wire: Wire) -> str:
    return create_topic(wire, partitions=4)


@pytest.fixture
def new_consumer(broker: Site, group: str, topic: str) -> Iterator[NewConsumer]:
    made: list[Consumer] = []

    def make(**options: Any) -> Consumer:
        topics = options.pop("topics", (topic,))
        made.append(Consumer(Wire(address_for_group(broker, group)), group, topics, **options))
        return made[-1]

    yield make
    for one in made:
        one.wire.close()


# ------------------------------------------------------------------------------ refused requests


@pytest.mark.parametrize(
    ("epoch", "fields", "code", "message"),
    [
        (5, {}, GROUP_ID_NOT_FOUND, "Consumer group GROUP not found."),
        (-1, {}, GROUP_ID_NOT_FOUND, "Group GROUP not found."),
        (0, {"member": ""}, INVALID_REQUEST, "MemberId can't be empty."),
        (0, {"rebalance_timeout": -1}, INVALID_REQUEST,
         "RebalanceTimeoutMs must be provided in first request."),
        (0, {"topic_partitions": None}, INVALID_REQUEST,
         "TopicPartitions must be empty when (re-)joining."),
        (0, {"subscribed_topic_names": None}, INVALID_REQUEST,
         "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."),
        (0, {"instance_id": ""}, INVALID_REQUEST, "InstanceId can't be empty."),
        (0, {"rack_id": " "}, INVALID_REQUEST, "RackId can't be empty."),
        (-2, {}, INVALID_REQUEST, "InstanceId can't be null."),
        (-3, {}, INVALID_REQUEST, "MemberEpoch is invalid."),
        (0, {"server_assignor": "x"}, UNSUPPORTED_ASSIGNOR,
         "ServerAssignor x is not supported. Supported assignors: uniform, range."),
    ],
)  # fmt: skip
def test_a_request_is_refused_in_words(
    wire: Wire, group: str, epoch: int, fields: dict[str, Any], code: int, message: str
) -> None:
    asked = {**(joining("t") if epoch == 0 else {}), **fields}
    answer = heartbeat(wire, group, asked.pop("member", "m"), epoch, **asked)
    assert answer.error_code == code
    assert answer.error_message.replace(group, "GROUP") == message
    assert (answer.member_id, answer.member_epoch, answer.assignment) == (None, 0, None)


def test_a_pattern_that_is_none_is_refused(wire: Wire, group: str) -> None:
    asked = joining(subscribed_topic_names=None, subscribed_topic_regex="a(")
    answer = heartbeat(wire, group, "m", 0, **asked)
    assert answer.error_code == INVALID_REGULAR_EXPRESSION
    assert answer.error_message.startswith(
        "SubscribedTopicRegex `a(` is not a valid regular expression: missing "
    )
    assert describe(wire, group).error_code == GROUP_ID_NOT_FOUND


def test_the_oldest_version_gives_out_ids(wire: Wire, group: str, topic: str) -> None:
    asked = joining(topic, version=0)
    answer = heartbeat(wire, group, "", 0, **asked)
    assert answer.error_code == 0
    assert answer.member_id
    assert heartbeat(wire, group, answer.member_id, answer.member_epoch).error_code == 0


# --------------------------------------------------------------------------------------- members


def test_members_share_and_give_back(
    wire: Wire, group: str, topic: str, new_consumer: NewConsumer
) -> None:
    first, second = new_consumer(), new_consumer()
    answer = first.join()
    assert (answer.error_code, answer.member_epoch, first.count) == (0, 2, 4)
    assert answer.heartbeat_interval == 5000
    assert first.beat().assignment is None
    found = describe(wire, group)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Stable", 2, 2)
    assert found.assignor_name == "uniform"
    (member,) = found.members
    assert (member.member_epoch, member.client_id, member.client_host) == (2, "judge", "/127.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == ([topic], "")
    assert member.member_type == 1
    assert member.assignment.as_dict() == member.target_assignment.as_dict()

    assert second.join().error_code == 0
    settle([first, second], [2, 2])
    assert first.epoch == 3
    (mine,), (other,) = first.owned.values(), second.owned.values()
    assert sorted(mine + other) == [0, 1, 2, 3]

    assert heartbeat(wire, group, first.member_id, 8).error_code == FENCED_MEMBER_EPOCH
    assert heartbeat(wire, group, first.member_id, 1).error_code == FENCED_MEMBER_EPOCH
    assert heartbeat(wire, group, "nobody", 3).error_code == UNKNOWN_MEMBER_ID
    deleted = wire.request("delete_groups", 2, groups_names=[group])
    assert deleted.results[0].error_code == NON_EMPTY_GROUP

    answer = second.leave()
    assert (answer.error_code, answer.member_epoch) == (0, -1)
    settle([first], [4])
    assert first.leave().error_code == 0
    assert describe(wire, group).group_state == "Empty"
    deleted = wire.request("delete_groups", 2, groups_names=[group])
    assert deleted.results[0].error_code == 0
    gone = describe(wire, group)
    assert (gone.error_code, gone.error_message) == (
        GROUP_ID_NOT_FOUND,
        f"Group {group} not found.",
    )


def test_a_group_that_was_left_waits_for_nothing(
    wire: Wire, group: str, new_consumer: NewConsumer
) -> None:
    """Its next member is assigned everything at once, however short ago the last target was made."""
    for epoch in (2, 4, 6):
        member = new_consumer()
        member.join()
        assert (member.epoch, member.count) == (epoch, 4)
        member.leave()
        found = describe(wire, group)
        assert (found.group_state, found.group_epoch, found.assignment_epoch) == (
            "Empty",
            epoch + 1,
            epoch + 1,
        )


def test_a_static_member_comes_back(wire: Wire, group: str, new_consumer: NewConsumer) -> None:
    first = new_consumer()
    old, new = new_consumer(instance="i"), new_consumer(instance="i")
    first.join()
    old.join()
    settle([first, old], [2, 2])
    assert new.join().error_code == UNRELEASED_INSTANCE_ID
    other = heartbeat(wire, group, new.member_id, old.epoch, instance_id="i")
    assert other.error_code == FENCED_INSTANCE_ID
    assert old.leave(-2).member_epoch == -2
    assert new.join().error_code == 0
    assert (new.owned, new.epoch) == (old.owned, old.epoch)
    assert old.beat().error_code == FENCED_INSTANCE_ID
    assert describe(wire, group).group_state == "Stable"


def test_a_pattern_finds_topics(wire: Wire, group: str, topic: str, new_consumer: Any) -> None:
    member = new_consumer(topics=(), pattern=f"{topic[:-1]}.")
    answer = member.join()
    assert (answer.error_code, answer.member_epoch, member.count) == (0, 1, 0)
    settle([member], [4], "the topics that match")
    assert member.epoch == 2
    (found,) = describe(wire, group).members
    assert (found.subscribed_topic_names, found.subscribed_topic_regex) == ([], member.pattern)


def test_an_assignor_is_chosen_by_the_members(
    wire: Wire, group: str, new_consumer: NewConsumer
) -> None:
    first, second = new_consumer(assignor="range"), new_consumer()
    first.join()
    second.join()
    settle([first, second], [2, 2])
    assert describe(wire, group).assignor_name == "range"
    assert all(each in ([0, 1], [2, 3]) for m in (first, second) for each in m.owned.values())


# --------------------------------------------------------------------------- offsets and listing


def commit(wire: Wire, group: str, topic: str, member: str, epoch: int, version: int = 9) -> int:
    answer = wire.request(
        "offset_commit",
        version,
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        group_instance_id=None,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": 0,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                ],
            }
        ],
    )
    code: int = answer.topics[0].partitions[0].error_code
    return code


def fetch(wire: Wire, group: str, topic: str, member: str | None, epoch: int) -> Struct:
    asked = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "topics": [{"name": topic, "partition_indexes": [0]}],
    }
    answer = wire.request("offset_fetch", 9, groups=[asked], require_stable=False)
    (found,) = answer.groups
    assert isinstance(found, Struct)
    return found


def test_offsets_want_the_members_epoch(
    wire: Wire, group: str, topic: str, new_consumer: NewConsumer
) -> None:
    member = new_consumer()
    member.join()
    assert commit(wire, group, topic, member.member_id, 2) == 0
    assert commit(wire, group, topic, member.member_id, 2, version=8) == 35
    assert commit(wire, group, topic, member.member_id, 3) == STALE_MEMBER_EPOCH
    assert commit(wire, group, topic, member.member_id, 1) == STALE_MEMBER_EPOCH
    assert commit(wire, group, topic, "nobody", 2) == UNKNOWN_MEMBER_ID
    assert commit(wire, group, topic, "", -1) == UNKNOWN_MEMBER_ID
    assert fetch(wire, group, topic, member.member_id, 2).error_code == 0
    assert fetch(wire, group, topic, None, -1).error_code == 0
    assert fetch(wire, group, topic, member.member_id, 1).error_code == STALE_MEMBER_EPOCH
    assert fetch(wire, group, topic, "nobody", 2).error_code == UNKNOWN_MEMBER_ID


def test_a_group_is_listed_by_its_type(wire: Wire, group: str, new_consumer: Any) -> None:
    new_consumer().join()

    def listed(**filters: list[str]) -> list[tuple[str, str, str]]:
        answer = wire.request(
            "list_groups", 5, **{"states_filter": [], "types_filter": [], **filters}
        )
        return [
            (each.group_type, each.protocol_type, each.group_state)
            for each in answer.groups
            if each.group_id == group
        ]

    found = [("consumer", "consumer", "Stable")]
    assert listed() == found
    assert listed(types_filter=["consumer"]) == found
    assert listed(types_filter=["classic"]) == []
    assert listed(states_filter=["stable"]) == found
    assert listed(states_filter=["Empty"]) == []
    answer = wire.request("describe_groups", 6, groups=[group], include_authorized_operations=False)
    (described,) = answer.groups
    assert described.error_code == GROUP_ID_NOT_FOUND
    assert described.error_message == f"Group {group} is not a classic group."
    assert described.group_state == "Dead"


# ------------------------------------------------------------------------- between the protocols


def test_a_group_changes_its_protocol_while_it_is_used(
    wire: Wire, group: str, topic: str, new_consumer: NewConsumer, new_member: Callable[..., Any]
) -> None:
    old = new_member(protocols=[("range", groups.subscription([topic]))])
    joined = old.join()
    assigned = groups.assignment({topic: [0, 1, 2, 3]})
    assert old.try_sync({old.member_id: assigned}).error_code == 0
    new = new_consumer()
    answer = new.join()
    assert (answer.error_code, answer.member_epoch) == (0, joined.generation_id + 1)
    types = sorted(member.member_type for member in describe(wire, group).members)
    assert types == [0, 1]
    assert old.heartbeat() == groups.REBALANCE_IN_PROGRESS

    def has_half() -> bool:
        if old.heartbeat() == groups.REBALANCE_IN_PROGRESS:
            again = old.join()
            assert again.error_code == 0, again
            assert (again.leader, again.members, again.protocol_name) == ("", [], "range")
            assert old.try_sync({}).error_code == 0
        assert new.beat().error_code == 0
        return new.count == 2 and describe(wire, group).group_state == "Stable"

    processes.wait_until(has_half, 30, "half of the partitions")
    assert new.leave().error_code == 0
    assert describe(wire, group).error_code == GROUP_ID_NOT_FOUND
    assert old.heartbeat() == groups.REBALANCE_IN_PROGRESS
    again = old.join()
    assert (again.error_code, again.leader) == (0, old.member_id)
