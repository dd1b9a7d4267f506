"""Reads records: the part that all readers share, and chosen partitions without a group."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ClientPartition

from broker.model.ids import TopicPartition
from dashboard.cluster import PartitionEnd, Record
from dashboard.gateway.translate import TRANSPORT_CODES, failure_of_error

READ_BATCH = 1000
MAX_KEPT_TROUBLES = 100
"""A reader that nobody asks for its troubles keeps this many."""


class ConsumerReader(ABC):
    """A consumer of the library, read in batches; ends are told, not waited for."""

    def __init__(self, properties: dict[str, Any]) -> None:
        self._troubles: list[str] = []
        self._consumer = Consumer({**properties, "error_cb": self._on_error})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, timeout_s: float) -> list[Record | PartitionEnd]:
        """What is there, waiting at most ``timeout_s`` for the first of it."""
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(READ_BATCH, timeout=0)]
        return [item for message in messages if (item := self._item(message)) is not None]

    @abstractmethod
    def stop_reading(self, partition: TopicPartition) -> None:
        """Fetch no more of this partition."""

    def done(self, positions: Mapping[TopicPartition, int]) -> None:  # noqa: B027 - may do nothing
        """Everything before these offsets has been dealt with; only a group remembers it."""

    def take_troubles(self) -> list[str]:
        """What went wrong with connections since the last call; reading goes on by itself."""
        taken, self._troubles = self._troubles, []
        return taken

    def _on_error(self, error: KafkaError) -> None:
        if len(self._troubles) < MAX_KEPT_TROUBLES:
            self._troubles.append(error.str())

    def _item(self, message: Any) -> Record | PartitionEnd | None:
        error = message.error()
        if error is None:
            timestamp_type, timestamp_ms = message.timestamp()
            return Record(
                message.topic(),
                message.partition(),
                message.offset(),
                timestamp_type,
                timestamp_ms,
                message.key(),
                message.value(),
                message.headers() or [],
            )
        if error.code() == KafkaError._PARTITION_EOF:
            return PartitionEnd(message.topic(), message.partition())
        if error.code() in TRANSPORT_CODES or error.retriable():
            self._on_error(error)
            return None
        raise failure_of_error(error)


class RecordReader(ConsumerReader):
    """Records of some partitions in the order of each, without a group."""

    def __init__(
        self,
        properties: dict[str, Any],
        starts: Mapping[TopicPartition, int],
        timeout_s: float,
    ) -> None:
        super().__init__(properties)
        for topic in {key.topic for key in starts}:
            # Asked for by itself, metadata comes at once. After a failed look for a group's
            # coordinator (we have no group, the library looks all the same) it may take a second.
            self._consumer.list_topics(topic, timeout=timeout_s)
        self.move(starts)

    def move(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, and no others.

        A record of before that was on its way already may still come: callers look at the offset.
        """
        self._consumer.assign(
            [ClientPartition(key.topic, key.partition, at) for key, at in starts.items()]
        )

    def stop_reading(self, partition: TopicPartition) -> None:
        self._consumer.incremental_unassign([ClientPartition(partition.topic, partition.partition)])
