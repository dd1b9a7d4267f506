"""Requests that move partitions and elect leaders, on a plain socket: the client library has none for
the former. Any broker passes them on to the controller. Failures of one partition are values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import NamedTuple

import kio.schema.alter_partition_reassignments.v0.request as alter_request
import kio.schema.alter_partition_reassignments.v0.response as alter_response
import kio.schema.elect_leaders.v2.request as elect_request
import kio.schema.elect_leaders.v2.response as elect_response
import kio.schema.list_partition_reassignments.v0.request as list_request
import kio.schema.list_partition_reassignments.v0.response as list_response
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta

from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure
from dashboard.wire import WireConnection, failure_of

ALTER = (45, 0)
LIST = (46, 0)
ELECT = (43, 2)

#: The broker's own limit for what takes long.
TIMEOUT = i32Timedelta.parse(timedelta(seconds=30))
PREFERRED, UNCLEAN = i8(0), i8(1)

Outcomes = dict[TopicPartition, KafkaFailure | None]


class UnderWay(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(replica for replica in self.replicas if replica not in self.removing)


def reassign(
    connection: WireConnection, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> Outcomes:
    """None: what is under way is cancelled."""
    topics = []
    for topic, keys in groupby(sorted(targets), key=lambda key: key.topic):
        partitions = tuple(
            alter_request.ReassignablePartition(
                partition_index=i32(key.partition), replicas=_broker_ids(targets[key])
            )
            for key in keys
        )
        topics.append(alter_request.ReassignableTopic(name=TopicName(topic), partitions=partitions))
    answer = connection.ask(
        alter_request.AlterPartitionReassignmentsRequest(timeout=TIMEOUT, topics=tuple(topics)),
        alter_response.AlterPartitionReassignmentsResponse,
    )
    if answer.error_code.value:
        raise failure_of(answer.error_code.value, answer.error_message)
    return {
        TopicPartition(str(topic.name), int(each.partition_index)): (
            failure_of(each.error_code.value, each.error_message) if each.error_code.value else None
        )
        for topic in answer.responses
        for each in topic.partitions
    }


def _broker_ids(target: Sequence[int] | None) -> tuple[BrokerId, ...] | None:
    return None if target is None else tuple(BrokerId(i32(each)) for each in target)


def under_way(connection: WireConnection) -> dict[TopicPartition, UnderWay]:
    answer = connection.ask(
        list_request.ListPartitionReassignmentsRequest(timeout=TIMEOUT, topics=None),
        list_response.ListPartitionReassignmentsResponse,
    )
    if answer.error_code.value:
        raise failure_of(answer.error_code.value, answer.error_message)
    return {
        TopicPartition(str(topic.name), int(each.partition_index)): UnderWay(
            tuple(map(int, each.replicas)),
            tuple(map(int, each.adding_replicas)),
            tuple(map(int, each.removing_replicas)),
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def elect(
    connection: WireConnection, keys: Collection[TopicPartition] | None, *, is_unclean: bool
) -> Outcomes:
    """None: of all partitions; those that needed no election are not in the answer then."""
    asked = None
    if keys is not None:
        asked = tuple(
            elect_request.TopicPartitions(
                topic=TopicName(topic), partitions=tuple(i32(each.partition) for each in group)
            )
            for topic, group in groupby(sorted(keys), key=lambda key: key.topic)
        )
    answer = connection.ask(
        elect_request.ElectLeadersRequest(
            election_type=UNCLEAN if is_unclean else PREFERRED,
            topic_partitions=asked,
            timeout=TIMEOUT,
        ),
        elect_response.ElectLeadersResponse,
    )
    if answer.error_code.value:
        raise failure_of(answer.error_code.value, None)
    return {
        TopicPartition(str(topic.topic), int(each.partition_id)): (
            failure_of(each.error_code.value, each.error_message) if each.error_code.value else None
        )
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }
