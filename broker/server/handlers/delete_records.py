"""DeleteRecords (key 21), versions 0-2.

Behaviour (KIP-107): the log start offset rises to the given offset; -1 means the high watermark,
beyond it is OFFSET_OUT_OF_RANGE. Topics that are compacted and not deleted refuse with
POLICY_VIOLATION. The new start offset is checkpointed before the answer.
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

INVALID_LOW_WATERMARK = -1


async def handle(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    verdicts: dict[tuple[str, int], tuple[int, int]] = {}
    turn = Turn()
    for topic in request.topics:
        for wanted in topic.partitions:
            key = (topic.name, wanted.partition_index)
            verdicts[key] = _delete(broker, topic.name, wanted.partition_index, wanted.offset)
            if turn.is_over:
                await turn.pass_on()
    if any(code == ErrorCode.NONE for _, code in verdicts.values()):
        try:
            await broker.checkpoint_log_start_offsets()
        except OSError:
            verdicts = dict.fromkeys(
                verdicts, (INVALID_LOW_WATERMARK, ErrorCode.KAFKA_STORAGE_ERROR)
            )
    topics = EncodedItems()
    for topic in request.topics:
        results = (
            _result(types, each.partition_index, verdicts[topic.name, each.partition_index])
            for each in topic.partitions
        )
        topics.add(
            types.DeleteRecordsTopicResult(name=topic.name, partitions=await encoded(results, turn))
        )
    return types.DeleteRecordsResponse(throttle_time=0, topics=topics)


def _delete(broker: Broker, topic: str, index: int, offset: int) -> tuple[int, int]:
    """(low watermark, error code)."""
    try:
        partition = broker.replicas.find(topic, index)
        if not partition.log.config.is_deleted:
            return INVALID_LOW_WATERMARK, ErrorCode.POLICY_VIOLATION
        return partition.delete_records(offset), ErrorCode.NONE
    except KafkaError as error:
        return INVALID_LOW_WATERMARK, error.code


def _result(types: Any, index: int, verdict: tuple[int, int]) -> object:
    low_watermark, code = verdict
    return types.DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=low_watermark, error_code=code
    )
