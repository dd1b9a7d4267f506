"""DescribeCluster (key 60), versions 0-2; DescribeTopicPartitions (key 75), version 0 (KIP-966).

DescribeTopicPartitions pages: topics in the order of their names, at most
``max.request.partition.size.limit`` partitions an answer, and a cursor to where the next begins.
Without an authoriser every operation is allowed; the bits are Kafka's ``AclOperation`` codes.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any, Final

from broker.model.error_code import ErrorCode
from broker.model.ids import ZERO_TOPIC_ID, BrokerId
from broker.model.internal_topics import is_internal
from broker.protocol.codec import EncodedItems
from broker.protocol.schema import response_types
from broker.server.encoding import encoded
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.metadata.image import PartitionImage, TopicImage
    from broker.server.app import Broker
    from broker.server.context import RequestContext

#: KIP-430: "not asked for".
NOT_ASKED: Final = -(1 << 31)
#: CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE.
ALL_CLUSTER_OPERATIONS: Final = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
#: READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
ALL_TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle_describe(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    code, message = ErrorCode.NONE, None
    if endpoint_type != BROKERS:
        # As Kafka answers on a broker's listener: controllers are asked on theirs.
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        if endpoint_type == CONTROLLERS:
            code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        message = "This listener answers for brokers only."
    is_asked = request.include_cluster_authorized_operations
    return types.DescribeClusterResponse(
        throttle_time=0,
        error_code=code,
        error_message=message,
        endpoint_type=BROKERS,
        cluster_id=broker.cluster_id if code == ErrorCode.NONE else "",
        controller_id=broker.image.controller_id if code == ErrorCode.NONE else -1,
        brokers=[
            types.DescribeClusterBroker(
                broker_id=node.broker_id, host=node.host, port=node.port, rack=node.rack,
                is_fenced=False,
            )
            for node in (broker.nodes(context.connection) if code == ErrorCode.NONE else ())
        ],
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS if is_asked else NOT_ASKED,
    )  # fmt: skip


async def handle_describe_topic_partitions(
    broker: Broker, context: RequestContext, request: Any
) -> object:
    types = response_types(context.api_key, context.api_version)
    image = broker.image
    names = sorted({topic.name for topic in request.topics}) or sorted(image.topics)
    cursor = request.cursor
    first_index = 0
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first_index = cursor.partition_index
    limit = min(request.response_partition_limit, broker.config.max_request_partition_size_limit)
    left = max(1, limit)
    topics = EncodedItems()
    turn = Turn()
    next_cursor = None
    for name in names:
        topic = image.topics.get(name)
        if topic is None:
            topics.add(_unknown(types, name))
            if turn.is_over:
                await turn.pass_on()
            continue
        if left <= 0:
            next_cursor = types.Cursor(topic_name=name, partition_index=0)
            break
        taken = topic.partitions[first_index : first_index + left]
        topics.add(await _known(types, topic, taken, turn, image.brokers))
        left -= len(taken)
        if first_index + len(taken) < len(topic.partitions):
            next_cursor = types.Cursor(topic_name=name, partition_index=first_index + len(taken))
            break
        first_index = 0
    return types.DescribeTopicPartitionsResponse(
        throttle_time=0, topics=topics, next_cursor=next_cursor
    )


def _unknown(types: Any, name: str) -> object:
    return types.DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name, topic_id=ZERO_TOPIC_ID,
        is_internal=is_internal(name), partitions=[], topic_authorized_operations=NOT_ASKED,
    )  # fmt: skip


async def _known(
    types: Any,
    topic: TopicImage,
    partitions: tuple[PartitionImage, ...],
    turn: Turn,
    brokers: Container[BrokerId],
) -> object:
    found = (
        types.DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.NONE,
            partition_index=partition.index,
            leader_id=partition.leader_id,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=sorted(partition.isr),
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=[each for each in partition.replicas if each not in brokers],
        )
        for partition in partitions
    )
    return types.DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=await encoded(found, turn),
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )
