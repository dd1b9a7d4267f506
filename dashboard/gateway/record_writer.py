"""Writes records to one topic and says what became of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from dashboard.cluster import KafkaFailure, PartitionTally
from dashboard.gateway.translate import failure_of_error, failure_of_exception

MAX_KEPT_FAILURES = 100
"""A writer keeps this many failures in full and counts the rest."""


class RecordWriter:
    """Sends records to one topic and keeps the tally of what was acknowledged."""

    def __init__(self, topic: str, properties: dict[str, Any]) -> None:
        self.topic = topic
        self.tallies: dict[int, PartitionTally] = {}
        self.failures: list[tuple[int, KafkaFailure]] = []
        self.failure_count = 0
        self.on_delivered: Callable[[int, int], None] | None = None
        self._producer = Producer(properties)

    def send(
        self,
        number: int,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> None:
        """Queue one record; waits while the queue is full. ``number`` names it in failures."""

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                self._count(message.partition(), message.offset())
            else:
                self._fail(number, failure_of_error(error))

        options: dict[str, Any] = {"on_delivery": delivered}
        if partition is not None:
            options["partition"] = partition
        if headers:
            options["headers"] = list(headers)
        while True:
            try:
                self._producer.produce(self.topic, value, key, **options)
                return
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                self._fail(number, failure_of_exception(error))
                return

    def poll(self, timeout_s: float = 0) -> None:
        """Take delivery reports."""
        self._producer.poll(timeout_s)

    def flush(self, timeout_s: float) -> int:
        """Wait for everything that was sent; how many records are still on their way."""
        return self._producer.flush(timeout_s)

    def _count(self, partition: int, offset: int | None) -> None:
        tally = self.tallies.setdefault(partition, PartitionTally())
        tally.count += 1
        if offset is None or offset < 0:
            # acks=0: sent, and nobody says where it went.
            return
        tally.first_offset = offset if tally.first_offset is None else tally.first_offset
        tally.last_offset = max(offset, tally.last_offset or 0)
        if self.on_delivered is not None:
            self.on_delivered(partition, offset)

    def _fail(self, number: int, failure: KafkaFailure) -> None:
        self.failure_count += 1
        if len(self.failures) < MAX_KEPT_FAILURES:
            self.failures.append((number, failure))
