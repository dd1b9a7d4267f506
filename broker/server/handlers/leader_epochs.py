"""OffsetForLeaderEpoch (key 23), versions 2-4.

Behaviour (KIP-101, KIP-320): the end offset of the largest epoch that is not above the asked one;
-1/-1 when there is none. The reader's own idea of the current epoch is checked first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.protocol.codec import EncodedItems
from broker.protocol.schema import response_types
from broker.server.encoding import encoded
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

UNDEFINED = -1


async def handle(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    turn = Turn()
    topics = EncodedItems()
    for topic in request.topics:
        found = (_end_offset(broker, types, topic.topic, wanted) for wanted in topic.partitions)
        topics.add(
            types.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=await encoded(found, turn)
            )
        )
    return types.OffsetForLeaderEpochResponse(throttle_time=0, topics=topics)


def _end_offset(broker: Broker, types: Any, topic: str, wanted: Any) -> object:
    code, epoch, end_offset = ErrorCode.NONE, UNDEFINED, UNDEFINED
    try:
        partition = broker.replicas.find(topic, wanted.partition)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        epoch, end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
    except KafkaError as error:
        code = error.code
    return types.EpochEndOffset(
        error_code=code, partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset
    )
