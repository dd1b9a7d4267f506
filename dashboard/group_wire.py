"""Requests about consumer groups on plain sockets, many groups in one request.

The client library asks for every group by itself, finding its coordinator first: four requests a
group where here a thousand groups take three. Its answers also lack epochs and the states of
newer groups. Each function takes a connection to the right broker; which one that is,
``find_coordinators`` tells. Failures of one group are values.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import Any

import kio.schema.consumer_group_describe.v0.request as consumer_describe_request
import kio.schema.consumer_group_describe.v0.response as consumer_describe_response
import kio.schema.describe_groups.v5.request as describe_request
import kio.schema.describe_groups.v5.response as describe_response
import kio.schema.find_coordinator.v4.request as find_request
import kio.schema.find_coordinator.v4.response as find_response
import kio.schema.list_groups.v4.request as list_request
import kio.schema.list_groups.v4.response as list_response
import kio.schema.list_groups.v5.request as typed_list_request
import kio.schema.list_groups.v5.response as typed_list_response
import kio.schema.offset_commit.v8.request as offset_commit_request
import kio.schema.offset_commit.v8.response as offset_commit_response
import kio.schema.offset_delete.v0.request as offset_delete_request
import kio.schema.offset_delete.v0.response as offset_delete_response
import kio.schema.offset_fetch.v8.request as offset_fetch_request
import kio.schema.offset_fetch.v8.response as offset_fetch_response
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32, i64

from broker.model.ids import TopicPartition
from dashboard.cluster import BrokerView, KafkaFailure
from dashboard.groups import CommittedOffset, GroupListing, GroupView, MemberView
from dashboard.wire import WireConnection, failure_of

LIST_GROUPS = (16, 4)
LIST_GROUPS_WITH_TYPES = (16, 5)
FIND_COORDINATOR = (10, 4)
DESCRIBE_GROUPS = (15, 5)
CONSUMER_GROUP_DESCRIBE = (69, 0)
OFFSET_FETCH = (9, 8)
OFFSET_COMMIT = (8, 8)
OFFSET_DELETE = (47, 0)

CONSUMER_PROTOCOLS = frozenset({"consumer", ""})
"""The empty one: offsets were committed, but nobody ever joined."""
_GROUP_KEY = 0


def list_groups(connection: WireConnection, *, with_types: bool) -> list[GroupListing]:
    """The consumer groups that this broker coordinates."""
    answer: Any
    if with_types:
        answer = connection.ask(
            typed_list_request.ListGroupsRequest(states_filter=(), types_filter=()),
            typed_list_response.ListGroupsResponse,
        )
    else:
        answer = connection.ask(
            list_request.ListGroupsRequest(states_filter=()), list_response.ListGroupsResponse
        )
    if answer.error_code.value:
        raise failure_of(answer.error_code.value, None)
    return [
        GroupListing(
            str(group.group_id),
            group.group_state or None,
            getattr(group, "group_type", "").lower() or None,
        )
        for group in answer.groups
        if group.protocol_type in CONSUMER_PROTOCOLS
    ]


def find_coordinators(
    connection: WireConnection, groups: Collection[str]
) -> dict[str, BrokerView | KafkaFailure]:
    answer = connection.ask(
        find_request.FindCoordinatorRequest(
            key_type=i8(_GROUP_KEY), coordinator_keys=tuple(groups)
        ),
        find_response.FindCoordinatorResponse,
    )
    return {
        found.key: (
            failure_of(found.error_code.value, found.error_message)
            if found.error_code.value
            else BrokerView(int(found.node_id), found.host, int(found.port))
        )
        for found in answer.coordinators
    }


def describe_classic(
    connection: WireConnection, groups: Collection[str], coordinator: BrokerView
) -> dict[str, GroupView | KafkaFailure]:
    """Groups of the classic protocol. One that does not exist comes as a dead one."""
    answer = connection.ask(
        describe_request.DescribeGroupsRequest(
            groups=tuple(map(GroupId, groups)), include_authorized_operations=False
        ),
        describe_response.DescribeGroupsResponse,
    )
    return {
        str(group.group_id): _classic_view(group, coordinator)
        if not group.error_code.value
        else failure_of(group.error_code.value, None)
        for group in answer.groups
    }


def describe_consumer(
    connection: WireConnection, groups: Collection[str], coordinator: BrokerView
) -> dict[str, GroupView | KafkaFailure]:
    """Groups of the type consumer; all others are GROUP_ID_NOT_FOUND."""
    answer = connection.ask(
        consumer_describe_request.ConsumerGroupDescribeRequest(
            group_ids=tuple(map(GroupId, groups)), include_authorized_operations=False
        ),
        consumer_describe_response.ConsumerGroupDescribeResponse,
    )
    return {
        str(group.group_id): _consumer_view(group, coordinator)
        if not group.error_code.value
        else failure_of(group.error_code.value, group.error_message)
        for group in answer.groups
    }


def committed_offsets(
    connection: WireConnection, groups: Collection[str]
) -> dict[str, dict[TopicPartition, CommittedOffset] | KafkaFailure]:
    """Everything that the groups have committed; nothing for one that does not exist."""
    asked = tuple(
        offset_fetch_request.OffsetFetchRequestGroup(group_id=GroupId(group), topics=None)
        for group in groups
    )
    answer = connection.ask(
        offset_fetch_request.OffsetFetchRequest(groups=asked, require_stable=False),
        offset_fetch_response.OffsetFetchResponse,
    )
    return {
        str(group.group_id): failure_of(group.error_code.value, None)
        if group.error_code.value
        else {
            TopicPartition(str(topic.name), int(partition.partition_index)): CommittedOffset(
                int(partition.committed_offset),
                _known(partition.committed_leader_epoch),
                partition.metadata,
            )
            for topic in group.topics
            for partition in topic.partitions
            if partition.committed_offset >= 0 and not partition.error_code.value
        }
        for group in answer.groups
    }


def commit_offsets(
    connection: WireConnection, group: str, offsets: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, KafkaFailure | None]:
    """Commit in the name of a group without members. Metadata may be any text, with NULs in it, too."""
    by_topic = groupby(sorted(offsets), key=lambda key: key.topic)
    answer = connection.ask(
        offset_commit_request.OffsetCommitRequest(
            group_id=GroupId(group),
            generation_id_or_member_epoch=i32(-1),
            member_id="",
            group_instance_id=None,
            topics=tuple(
                offset_commit_request.OffsetCommitRequestTopic(
                    name=TopicName(topic),
                    partitions=tuple(
                        offset_commit_request.OffsetCommitRequestPartition(
                            partition_index=i32(key.partition),
                            committed_offset=i64(offsets[key].offset),
                            committed_leader_epoch=i32(-1),
                            committed_metadata=offsets[key].metadata,
                        )
                        for key in keys
                    ),
                )
                for topic, keys in by_topic
            ),
        ),
        offset_commit_response.OffsetCommitResponse,
    )
    return {
        TopicPartition(str(topic.name), int(partition.partition_index)): (
            failure_of(partition.error_code.value, None) if partition.error_code.value else None
        )
        for topic in answer.topics
        for partition in topic.partitions
    }


def delete_offsets(
    connection: WireConnection, group: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaFailure | None]:
    """Forget committed offsets. Raises a failure that concerns the whole group."""
    by_topic = groupby(sorted(partitions), key=lambda key: key.topic)
    answer = connection.ask(
        offset_delete_request.OffsetDeleteRequest(
            group_id=GroupId(group),
            topics=tuple(
                offset_delete_request.OffsetDeleteRequestTopic(
                    name=TopicName(topic),
                    partitions=tuple(
                        offset_delete_request.OffsetDeleteRequestPartition(
                            partition_index=i32(key.partition)
                        )
                        for key in keys
                    ),
                )
                for topic, keys in by_topic
            ),
        ),
        offset_delete_response.OffsetDeleteResponse,
    )
    if answer.error_code.value:
        raise failure_of(answer.error_code.value, None)
    return {
        TopicPartition(str(topic.name), int(partition.partition_index)): (
            failure_of(partition.error_code.value, None) if partition.error_code.value else None
        )
        for topic in answer.topics
        for partition in topic.partitions
    }


def parse_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in a member's assignment of the consumer protocol, of whatever version.

    Raises ValueError: members write these bytes, brokers only pass them on.
    """
    if not data:
        return ()
    found = []
    try:
        _, topic_count = struct.unpack_from(">hi", data)
        position = 6
        for _ in range(topic_count):
            (size,) = struct.unpack_from(">h", data, position)
            topic = data[position + 2 : position + 2 + size].decode()
            (count,) = struct.unpack_from(">i", data, position + 2 + size)
            position += 6 + size
            if not 0 <= count <= (len(data) - position) // 4:
                raise ValueError("more partitions than bytes")
            indexes = struct.unpack_from(f">{count}i", data, position)
            position += 4 * count
            found += [TopicPartition(topic, index) for index in indexes]
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"not an assignment of the consumer protocol: {error}") from None
    return tuple(sorted(found))


def _classic_view(group: describe_response.DescribedGroup, coordinator: BrokerView) -> GroupView:
    return GroupView(
        group=str(group.group_id),
        state=group.group_state,
        group_type="classic",
        coordinator=coordinator,
        assignor=group.protocol_data or None,
        members=tuple(
            MemberView(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                _assignment(member.member_assignment),
            )
            for member in group.members
        ),
    )


def _assignment(data: bytes) -> tuple[TopicPartition, ...]:
    try:
        return parse_assignment(data)
    except ValueError:
        return ()


def _consumer_view(
    group: consumer_describe_response.DescribedGroup, coordinator: BrokerView
) -> GroupView:
    return GroupView(
        group=str(group.group_id),
        state=group.group_state,
        group_type="consumer",
        coordinator=coordinator,
        assignor=group.assignor_name or None,
        members=tuple(
            MemberView(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _partitions(member.assignment),
                _partitions(member.target_assignment),
                int(member.member_epoch),
            )
            for member in group.members
        ),
        group_epoch=int(group.group_epoch),
        assignment_epoch=int(group.assignment_epoch),
    )


def _partitions(assignment: consumer_describe_response.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(str(topic.topic_name), int(index))
            for topic in assignment.topic_partitions
            for index in topic.partitions
        )
    )


def _known(epoch: int) -> int | None:
    return int(epoch) if epoch >= 0 else None
