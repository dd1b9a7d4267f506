"""AlterPartitionReassignments (key 45), versions 0-1; ListPartitionReassignments (46), 0; ElectLeaders (43), 0-2.

Behaviour (KIP-455, KIP-460): verdicts are the controller's, one for each partition; a reassignment is begun,
not awaited, and cancelled where no replicas are named. Version 1 may forbid another replication factor.
ElectLeaders without partitions means all, and leaves out those that needed no election; an unclean one is
for partitions that nobody leads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.metadata.image import PartitionImage
from broker.metadata.requests import ElectedLeader, PartitionName, Reassigned, Reassignment
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import BrokerId
from broker.protocol.schema import response_types
from broker.server.encoding import encoded, listed
from broker.server.tasks import Turn, called_back

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

PREFERRED: Final = 0
UNCLEAN: Final = 1


async def handle_alter(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    may_change_factor = getattr(request, "allow_replication_factor_change", True)
    asked = (
        Reassignment(
            topic.name,
            wanted.partition_index,
            None if wanted.replicas is None else tuple(map(BrokerId, wanted.replicas)),
        )
        for topic in request.topics
        for wanted in topic.partitions
    )
    ask = partial(broker.controller.reassign, may_change_factor=may_change_factor)
    results: list[Reassigned] = await called_back(ask, await listed(asked, Turn()))
    responses = (
        types.ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                types.ReassignablePartitionResponse(
                    partition_index=result.index,
                    error_code=result.error,
                    error_message=result.message,
                )
                for result in each
            ],
        )
        for topic, each in _by_topic(request.topics, results)
    )
    return types.AlterPartitionReassignmentsResponse(
        throttle_time=0,
        allow_replication_factor_change=may_change_factor,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=await encoded(responses, Turn()),
    )


def _by_topic(topics: Iterable[Any], results: Sequence[Any]) -> Iterator[tuple[Any, Sequence[Any]]]:
    """As they were asked: a topic that is named twice is answered twice."""
    first = 0
    for topic in topics:
        end = first + len(topic.partitions)
        yield topic, results[first:end]
        first = end


async def handle_list(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    image, turn = broker.image, Turn()
    asked: Iterable[tuple[str, Iterable[int] | None]]
    if request.topics is None:
        asked = ((name, None) for name in image.topics)
    else:
        asked = ((topic.name, topic.partition_indexes) for topic in request.topics)
    told: list[object] = []
    for name, indexes in asked:
        found = image.topics.get(name)
        if found is not None:
            among = range(len(found.partitions)) if indexes is None else indexes
            partitions = (image.partition(name, index) for index in among)
            moving = [each for each in partitions if each is not None and _is_moving(each)]
            if moving:
                told.append(_ongoing(types, name, moving))
        if turn.is_over:
            await turn.pass_on()
    return types.ListPartitionReassignmentsResponse(
        throttle_time=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=await encoded(told, turn),
    )


def _is_moving(partition: PartitionImage) -> bool:
    return bool(partition.adding or partition.removing)


def _ongoing(types: Any, name: str, moving: Iterable[PartitionImage]) -> object:
    return types.OngoingTopicReassignment(
        name=name,
        partitions=[
            types.OngoingPartitionReassignment(
                partition_index=partition.index,
                replicas=partition.replicas,
                adding_replicas=partition.adding,
                removing_replicas=partition.removing,
            )
            for partition in moving
        ],
    )


async def handle_elect(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    kind = getattr(request, "election_type", PREFERRED)
    if kind not in (PREFERRED, UNCLEAN):
        message = f"Value {kind} must be one of [PREFERRED, UNCLEAN]"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if request.topic_partitions is None:
        groups = [
            (topic.name, range(len(topic.partitions))) for topic in broker.image.topics.values()
        ]
    else:
        groups = [(each.topic, each.partitions) for each in request.topic_partitions]
    asked = (PartitionName(topic, index) for topic, indexes in groups for index in indexes)
    ask = partial(broker.controller.elect_leaders, is_unclean=kind == UNCLEAN)
    results: list[ElectedLeader] = await called_back(ask, await listed(asked, Turn()))
    is_all = request.topic_partitions is None
    told = []
    first = 0
    for topic, indexes in groups:
        end = first + len(indexes)
        told.append(_elected(types, topic, results[first:end], is_all))
        first = end
    return types.ElectLeadersResponse(
        throttle_time=0,
        error_code=ErrorCode.NONE,
        replica_election_results=await encoded(told, Turn()),
    )


def _elected(types: Any, topic: str, results: Iterable[ElectedLeader], is_all: bool) -> object:
    """Of all partitions those are left out that needed no election."""
    return types.ReplicaElectionResult(
        topic=topic,
        partition_result=[
            types.PartitionResult(
                partition_id=result.index, error_code=result.error, error_message=result.message
            )
            for result in results
            if not (is_all and result.error is ErrorCode.ELECTION_NOT_NEEDED)
        ],
    )
