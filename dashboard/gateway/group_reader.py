"""Reads records as a member of a consumer group.

Which partitions they are of, the group decides, anew whenever somebody joins or leaves. What was
reported as done is committed: every few seconds, before a partition is given away, and at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from broker.model.ids import TopicPartition
from dashboard.gateway.record_reader import ConsumerReader
from dashboard.gateway.translate import failure_of_exception

Assigned = Callable[[Mapping[TopicPartition, int]], None]
Revoked = Callable[[Iterable[TopicPartition]], None]


class GroupReader(ConsumerReader):
    """A member of a group. ``on_assigned`` gets the partitions with their ends of now."""

    def __init__(
        self,
        properties: dict[str, Any],
        topics: Sequence[str],
        timeout_s: float,
        on_assigned: Assigned,
        on_revoked: Revoked,
    ) -> None:
        super().__init__(
            {
                **properties,
                # Stored offsets are committed; we store only what was reported as done.
                "enable.auto.commit": True,
                "enable.auto.offset.store": False,
                "on_commit": self._on_commit,
            }
        )
        self._timeout_s = timeout_s
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._consumer.subscribe(
            list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def __exit__(self, *raised: object) -> None:
        """Commits what was done, also after an interrupt, and leaves the group."""
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as failed:
            failure = failure_of_exception(failed)
            if failure.code != "NO_OFFSET" and not any(raised):
                raise failure from None
        finally:
            super().__exit__()

    def stop_reading(self, partition: TopicPartition) -> None:
        """Fetch no more of this partition; it stays ours."""
        self._consumer.pause([ClientPartition(*partition)])

    def done(self, positions: Mapping[TopicPartition, int]) -> None:
        """Everything before these offsets has been dealt with."""
        for key, offset in positions.items():
            try:
                self._consumer.store_offsets(offsets=[ClientPartition(*key, offset)])
            except KafkaException as error:
                failure = failure_of_exception(error)
                if failure.code not in ("STATE", "UNKNOWN_TOPIC_OR_PARTITION"):
                    raise failure from None
                # Taken away meanwhile: whoever has it now reads these records again.

    def _assigned(self, consumer: Consumer, partitions: Sequence[ClientPartition]) -> None:
        ends = {}
        for partition in partitions:
            key = TopicPartition(partition.topic, partition.partition)
            answer = consumer.get_watermark_offsets(partition, timeout=self._timeout_s)
            # Without an answer the end of the partition is told when it is reached.
            ends[key] = answer[1] if answer else NO_END
        self._on_assigned(ends)

    def _revoked(self, consumer: Consumer, partitions: Sequence[ClientPartition]) -> None:
        self._on_revoked([TopicPartition(p.topic, p.partition) for p in partitions])

    def _on_commit(self, error: KafkaError | None, partitions: Sequence[ClientPartition]) -> None:
        if error is not None and error.code() != KafkaError._NO_OFFSET:
            self._on_error(error)


NO_END = 2**63 - 1
