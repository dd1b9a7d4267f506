"""InitProducerId (key 22), versions 0-5; DescribeProducers (key 61), version 0.

InitProducerId hands out a new id from blocks of 1,000 that the controller stored before (a plain
idempotent producer that asks again gets another one, as in Kafka). With a transactional id it is the
transaction coordinator's: the id stays, its epoch rises. From version 3 on a producer may name what it
has, and goes on under it (KIP-360); before version 4 clients know INVALID_PRODUCER_EPOCH instead of
PRODUCER_FENCED.

DescribeProducers tells of every replica that is here: ``kafka-transactions find-hanging`` asks one broker about
all of its partitions, also where it follows.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from broker.coordinator.transaction.requests import InitAnswer, InitRequest
from broker.coordinator.transaction.transaction import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.protocol.codec import EncodedItems
from broker.protocol.schema import response_types
from broker.server.encoding import encoded
from broker.server.tasks import Turn, called_back

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext
    from broker.storage.log import Log

PRODUCER_FENCED_FROM: Final = 4
MILLISECOND: Final = timedelta(milliseconds=1)


async def handle_init(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    named = InitRequest(
        request.transactional_id,
        request.transaction_timeout // MILLISECOND,
        getattr(request, "producer_id", NO_PRODUCER_ID),
        getattr(request, "producer_epoch", NO_PRODUCER_EPOCH),
    )
    if (named.producer_id == NO_PRODUCER_ID) != (named.producer_epoch == NO_PRODUCER_EPOCH):
        answer = InitAnswer(ErrorCode.INVALID_REQUEST)
    elif request.transactional_id is None:
        answer = await _assign(broker)
    else:
        answer = await called_back(broker.transactions.coordinator.init, named)
    code = answer.error
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < PRODUCER_FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return types.InitProducerIdResponse(
        throttle_time=0,
        error_code=code,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )


async def _assign(broker: Broker) -> InitAnswer:
    try:
        return InitAnswer(ErrorCode.NONE, await broker.producer_ids.next(), 0)
    except KafkaError as error:
        return InitAnswer(error.code)


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


def _log_of(broker: Broker, topic: str, index: int) -> Log:
    try:
        return broker.replicas.find(topic, index).log
    except KafkaError as error:
        if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise
        return broker.replicas.find_reader(topic, index).log


async def _describe(broker: Broker, types: Any, topic: str, index: int, turn: Turn) -> object:
    code, message, states = ErrorCode.NONE, None, []
    try:
        states = _log_of(broker, topic, index).active_producers()
    except KafkaError as error:
        code, message = error.code, error.message or None
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
