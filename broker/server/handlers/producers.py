"""InitProducerId (key 22), versions 0-5; DescribeProducers (key 61), version 0.

InitProducerId hands out a new id from blocks of 1,000 that the controller stored before (a plain
idempotent producer that asks again gets another one, as in Kafka). With a transactional id the answer is a fatal TRANSACTIONAL_ID_AUTHORIZATION_FAILED, since there is no transaction
coordinator yet: clients stop at once instead of asking again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.protocol.codec import EncodedItems
from broker.protocol.schema import response_types
from broker.server.encoding import encoded
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

NO_PRODUCER_ID: Final = -1


async def handle_init(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    code, producer_id, producer_epoch = ErrorCode.NONE, NO_PRODUCER_ID, -1
    try:
        producer_id, producer_epoch = await _assign(broker, request)
    except KafkaError as error:
        code = error.code
    return types.InitProducerIdResponse(
        throttle_time=0, error_code=code, producer_id=producer_id, producer_epoch=producer_epoch
    )


async def _assign(broker: Broker, request: Any) -> tuple[int, int]:
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return await broker.producer_ids.next(), 0


async def handle_describe(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    turn = Turn()
    topics = EncodedItems()
    for topic in request.topics:
        partitions = EncodedItems()
        for index in topic.partition_indexes:
            partitions.add(await _describe(broker, types, topic.name, index, turn))
        topics.add(types.TopicResponse(name=topic.name, partitions=partitions))
    return types.DescribeProducersResponse(throttle_time=0, topics=topics)


async def _describe(broker: Broker, types: Any, topic: str, index: int, turn: Turn) -> object:
    code, message, states = ErrorCode.NONE, None, []
    try:
        states = broker.replicas.find(topic, index).log.active_producers()
    except KafkaError as error:
        code, message = error.code, error.message
    producers = (
        types.ProducerState(
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_timestamp,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=state.transaction_first_offset,
        )
        for state in states
    )
    active = await encoded(producers, turn)
    if turn.is_over:
        await turn.pass_on()
    return types.PartitionResponse(
        partition_index=index, error_code=code, error_message=message, active_producers=active
    )
