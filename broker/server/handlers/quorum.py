"""DescribeQuorum (key 55), versions 0-2: who follows a partition, how far, and when it was in sync last.

Behaviour: of any partition of any topic, at its leader (decision 15); elsewhere NOT_LEADER_OR_FOLLOWER with the
leader that this broker knows. Voters are the assigned replicas, observers there are none. The leader's own times
are -1 and now, as Kafka defines them. A follower's are by this broker's wall clock, -1 for what this leader has
not seen; since when it would have is in a tagged field of ours. A replica that is gone keeps the end that it
acknowledged last. ``__cluster_metadata`` is refused: there is no KRaft quorum.
Version 1 adds times; version 2 messages, directories (not told) and nodes: the brokers, by the asker's listener.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import NO_BROKER
from broker.protocol.codec import EncodedItems
from broker.protocol.schema import response_types
from broker.replication.replicated_partition import ReplicatedPartition
from broker.server.encoding import encoded
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from broker.server.app import Broker
    from broker.server.context import RequestContext

KRAFT_TOPIC: Final = "__cluster_metadata"
NO_QUORUM: Final = (
    "There is no KRaft quorum: metadata is kept in ZooKeeper, or by a single node itself."
)
UNKNOWN: Final = -1
#: Version with replicas' directories.
DIRECTORIES_FROM: Final = 2


async def handle(broker: Broker, context: RequestContext, request: Any) -> object:
    types = response_types(context.api_key, context.api_version)
    teller = _Teller(broker, types)
    turn = Turn()
    topics = EncodedItems()
    for topic in request.topics:
        found = (teller.tell(topic.topic_name, each.partition_index) for each in topic.partitions)
        partitions = await encoded(found, turn)
        topics.add(types.TopicData(topic_name=topic.topic_name, partitions=partitions))
    listener = context.connection.listener.endpoint.name
    return types.DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=topics,
        nodes=[
            types.Node(
                node_id=node.broker_id,
                listeners=[types.Listener(name=listener, host=node.host, port=node.port)],
            )
            for node in broker.nodes(context.connection)
        ],
    )


class _Teller:
    def __init__(self, broker: Broker, types: Any) -> None:
        # Here: who never asks need not import it.
        from broker.protocol.supplements.describe_quorum import REPLICA_STATES

        self._broker = broker
        self._types = types
        self._observed = REPLICA_STATES.get(types.version)
        self._own_id = broker.config.node_id

    def tell(self, topic: str, index: int) -> object:
        try:
            return self._leading(index, self._broker.replicas.find(topic, index))
        except KafkaError as error:
            if topic == KRAFT_TOPIC and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return self._refused(topic, index, ErrorCode.UNSUPPORTED_VERSION, NO_QUORUM)
            return self._refused(topic, index, error.code, str(error) or None)

    def _refused(self, topic: str, index: int, code: ErrorCode, message: str | None) -> object:
        image = self._broker.image.partition(topic, index)
        return self._types.PartitionData(
            partition_index=index,
            error_code=code,
            error_message=message,
            leader_id=NO_BROKER if image is None else image.leader_id,
            leader_epoch=UNKNOWN if image is None else image.leader_epoch,
            high_watermark=UNKNOWN,
            current_voters=(),
            observers=(),
        )

    def _leading(self, index: int, partition: Partition) -> object:
        return self._types.PartitionData(
            partition_index=index,
            error_code=ErrorCode.NONE,
            error_message=None,
            leader_id=self._own_id,
            leader_epoch=partition.leader_epoch,
            high_watermark=partition.high_watermark,
            current_voters=self._voters(partition),
            observers=(),
        )

    def _voters(self, partition: Partition) -> EncodedItems:
        clock = self._broker.clock
        now_ms = clock.wall_ms()
        ahead_ms = now_ms - clock.monotonic_ms()
        own = self._types.ReplicaState(
            replica_id=self._own_id,
            replica_directory_id=None,
            log_end_offset=partition.log.log_end_offset,
            last_fetch_timestamp=UNKNOWN,
            last_caught_up_timestamp=now_ms,
        )
        if not isinstance(partition, ReplicatedPartition):
            return EncodedItems([own])

        def told(at_ms: int | None) -> int:
            return UNKNOWN if at_ms is None else at_ms + ahead_ms

        voters = {
            each.replica_id: self._replica(
                each.replica_id,
                each.log_end_offset,
                told(each.fetched_ms),
                told(each.caught_up_ms),
                told(each.observed_since_ms),
            )
            for each in partition.leader.progress()
        }
        return EncodedItems(voters.get(each, own) for each in partition.leader.replicas)

    def _replica(
        self, replica_id: int, end_offset: int, fetched_ms: int, caught_up_ms: int, since_ms: int
    ) -> object:
        fields: dict[str, Any] = {
            "replica_id": replica_id,
            "log_end_offset": end_offset,
        }
        if self._observed is None:
            return self._types.ReplicaState(**fields)
        times = {
            "last_fetch_timestamp": fetched_ms,
            "last_caught_up_timestamp": caught_up_ms,
            "observed_since_timestamp": since_ms,
        }
        if self._types.version >= DIRECTORIES_FROM:
            fields["replica_directory_id"] = None
        return self._observed(**fields, **times)
