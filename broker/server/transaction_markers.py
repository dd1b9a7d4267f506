"""Ends transactions on partitions: for this broker's coordinator, wherever they are led; and on partitions of
this broker for WriteTxnMarkers and for coordinators on other brokers.

A marker in ``__consumer_offsets`` goes through the group coordinator, which then lets the offsets of
the transaction take effect, or forgets them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicPartition
from broker.model.internal_topics import CONSUMER_OFFSETS
from broker.model.transaction_marker import TransactionMarker
from broker.server.coordinator_log import append_marker, when_committed
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.coordinator.transaction.requests import MarkersDone
    from broker.server.app import Broker

#: A transaction with more partitions is ended in several turns of the loop.
PARTITIONS_AT_ONCE: Final = 64
#: How long the disk may take for a marker (Kafka's ``request.timeout.ms``).
TIMEOUT_MS: Final = 30_000

#: Of one partition: what to write, where, and whom to tell.
WriteOne = Callable[[TransactionMarker, TopicPartition, Callable[[ErrorCode], None]], None]

_NOT_READY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionMarkers:
    """Implements ``coordinator.transaction.requests.MarkerWriter``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def write(
        self, marker: TransactionMarker, partitions: Sequence[TopicPartition], done: MarkersDone
    ) -> None:
        cluster = self._broker.cluster
        write_one = self.write_here if cluster is None else cluster.transactions.write_marker
        self._write(write_one, marker, partitions, done)

    def write_all_here(
        self, marker: TransactionMarker, partitions: Sequence[TopicPartition], done: MarkersDone
    ) -> None:
        """As ``write``; partitions that others lead are refused."""
        self._write(self.write_here, marker, partitions, done)

    def _write(
        self,
        write_one: WriteOne,
        marker: TransactionMarker,
        partitions: Sequence[TopicPartition],
        done: MarkersDone,
    ) -> None:
        """Each partition's outcome: NONE once the marker is committed."""
        results: dict[TopicPartition, ErrorCode] = {}

        def on_one(topic_partition: TopicPartition, error: ErrorCode) -> None:
            results[topic_partition] = error
            if len(results) == len(partitions):
                done(results)

        if not partitions:
            done(results)
        elif len(partitions) <= PARTITIONS_AT_ONCE:
            for each in partitions:
                write_one(marker, each, partial(on_one, each))
        else:
            self._broker.tasks.spawn(
                self._write_in_turns(write_one, marker, partitions, on_one),
                "end a large transaction",
            )

    async def _write_in_turns(
        self,
        write_one: WriteOne,
        marker: TransactionMarker,
        partitions: Sequence[TopicPartition],
        on_one: Callable[[TopicPartition, ErrorCode], None],
    ) -> None:
        turn = Turn()
        for each in partitions:
            write_one(marker, each, partial(on_one, each))
            if turn.is_over:
                await turn.pass_on()

    def write_here(
        self,
        marker: TransactionMarker,
        topic_partition: TopicPartition,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """On one partition, which this broker leads."""
        broker = self._broker
        try:
            partition = broker.replicas.find(*topic_partition)
            if topic_partition.topic == CONSUMER_OFFSETS:
                groups = broker.coordination.runtime
                groups.write_marker(
                    topic_partition.partition, marker, lambda error: done(_marker_error(error))
                )
                return
            append_marker(broker, partition, marker)
        except KafkaError as error:
            done(error.code)
            return
        when_committed(broker, partition, TIMEOUT_MS, done)


def _marker_error(error: ErrorCode) -> ErrorCode:
    """Of a group coordinator that is not ready: whoever writes markers tries again, as with a
    partition that has no leader."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error in _NOT_READY else error
