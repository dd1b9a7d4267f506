"""DeleteRecords (key 21), versions 0-2.

Behaviour (KIP-107): the log start offset rises to the given offset; -1 means the high watermark,
beyond it is OFFSET_OUT_OF_RANGE. Topics that are compacted and not deleted refuse with
POLICY_VIOLATION. The new start offset is checkpointed before the answer, and followers on brokers
that are there have taken it over; REQUEST_TIMED_OUT says that not all have in the request's time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.protocol.codec import EncodedItems
from broker.protocol.schema import response_types
from broker.replication.replicated_partition import ReplicatedPartition
from broker.server.encoding import encoded
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext

INVALID_LOW_WATERMARK = -1

Key = tuple[str, int]
#: Low watermark and error code.
Verdict = tuple[int, int]


async def handle(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    verdicts: dict[Key, Verdict] = {}
    followed: dict[Key, tuple[ReplicatedPartition, int]] = {}
    turn = Turn()
    for topic in request.topics:
        for wanted in topic.partitions:
            key = (topic.name, wanted.partition_index)
            verdicts[key] = _delete(broker, key, wanted.offset, followed)
            if turn.is_over:
                await turn.pass_on()
    if any(code == ErrorCode.NONE for _, code in verdicts.values()):
        try:
            await broker.checkpoint_log_start_offsets()
        except OSError:
            followed.clear()
            verdicts = dict.fromkeys(
                verdicts, (INVALID_LOW_WATERMARK, ErrorCode.KAFKA_STORAGE_ERROR)
            )
    if followed:
        await _wait_for_followers(broker, followed, request.timeout.total_seconds())
        for key, (partition, target) in followed.items():
            verdicts[key] = _reached(broker, partition, target)
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


def _delete(
    broker: Broker, key: Key, offset: int, followed: dict[Key, tuple[ReplicatedPartition, int]]
) -> Verdict:
    """Here; ``followed`` gets who else is to be waited for, and until where its logs begin."""
    try:
        partition = broker.replicas.find(*key)
        if not partition.log.config.is_deleted:
            return INVALID_LOW_WATERMARK, ErrorCode.POLICY_VIOLATION
        target = partition.high_watermark if offset == -1 else offset
        low_watermark = partition.delete_records(target)
        if isinstance(partition, ReplicatedPartition):
            followed[key] = partition, target
        return low_watermark, ErrorCode.NONE
    except KafkaError as error:
        return INVALID_LOW_WATERMARK, error.code


async def _wait_for_followers(
    broker: Broker, followed: dict[Key, tuple[ReplicatedPartition, int]], seconds: float
) -> None:
    """Until all have deleted the same, or are gone; ``seconds`` at most."""
    has_moved = asyncio.Event()
    waiting = list(followed.values())
    for partition, _ in waiting:
        partition.start_waiters.add(has_moved.set)
    try:
        async with asyncio.timeout(seconds):
            while waiting := [each for each in waiting if not _is_over(broker, *each)]:
                has_moved.clear()
                await has_moved.wait()
    except TimeoutError:
        pass
    finally:
        for partition, _ in followed.values():
            partition.start_waiters.discard(has_moved.set)


def _is_over(broker: Broker, partition: ReplicatedPartition, target: int) -> bool:
    return partition.is_closed or partition.low_watermark(broker.replicas.broker_epochs) >= target


def _reached(broker: Broker, partition: ReplicatedPartition, target: int) -> Verdict:
    if partition.is_closed:
        return INVALID_LOW_WATERMARK, partition.close_reason
    low_watermark = partition.low_watermark(broker.replicas.broker_epochs)
    code = ErrorCode.NONE if low_watermark >= target else ErrorCode.REQUEST_TIMED_OUT
    return low_watermark, code


def _result(types: Any, index: int, verdict: Verdict) -> object:
    low_watermark, code = verdict
    return types.DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=low_watermark, error_code=code
    )
