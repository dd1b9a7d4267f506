"""DescribeLogDirs (key 35), versions 1-5.

Behaviour: every log directory with its partitions (or those asked for), their logical sizes, and the
size and free bytes of its volume (version 4). An offline directory answers KAFKA_STORAGE_ERROR.
``offset_lag`` of a follower: committed records that it has not fetched, as the leader told it last (Kafka
bounds that by the follower's own log, which is 0). Version 5 tells that nothing is cordoned.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from broker.model.error_code import ErrorCode
from broker.protocol.codec import EncodedItems
from broker.protocol.schema import response_types
from broker.server.encoding import encoded
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.context import RequestContext
    from broker.storage.log_manager import DirectoryDescription


async def handle(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results = EncodedItems()
    for directory in broker.logs.describe_directories():
        results.add(await _describe(broker, types, directory, wanted))
    return types.DescribeLogDirsResponse(
        throttle_time=0, error_code=ErrorCode.NONE, results=results
    )


async def _describe(
    broker: Broker,
    types: Any,
    directory: DirectoryDescription,
    wanted: set[tuple[str, int]] | None,
) -> object:
    turn = Turn()
    by_topic: defaultdict[str, EncodedItems] = defaultdict(EncodedItems)
    for log in directory.partitions:
        topic_partition = log.topic_partition
        if wanted is None or topic_partition in wanted:
            followed = broker.replicas.followed_of(log)
            by_topic[topic_partition.topic].add(
                types.DescribeLogDirsPartition(
                    partition_index=topic_partition.partition,
                    partition_size=log.size_in_bytes,
                    offset_lag=0 if followed is None else followed.machine.lag,
                    is_future_key=False,
                )
            )
        if turn.is_over:
            await turn.pass_on()
    topics = (
        types.DescribeLogDirsTopic(name=name, partitions=partitions)
        for name, partitions in by_topic.items()
    )
    return types.DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR if directory.is_offline else ErrorCode.NONE,
        log_dir=directory.path,
        topics=await encoded(topics, turn),
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
        is_cordoned=False,
    )
