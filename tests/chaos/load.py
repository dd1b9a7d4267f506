"""Real clients that never stop: idempotent producers, a reader of each partition, a consumer group.

Everything is librdkafka but one member of the group, which is aiokafka. What they see goes to the checker.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Final, Self

import aiokafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.chaos import group
from tests.chaos.checker import Checker, Place, record_value
from tests.chaos.clients import FATAL, assigned, connecting, ends_of, read
from tests.chaos.workers import Workers
from tests.support import processes

GROUP: Final = "chaos"
#: Faults may take long, and a record that was given up would only make the load stop.
DELIVERY_MS: Final = 300_000
SESSION_MS: Final = 6_000
#: Between two records of each partition: half an hour's have to fit into memory.
PAUSE_SECONDS: Final = 0.02
#: For one question about a partition's end.
ASK_SECONDS: Final = 10
#: To write what is queued, and to leave, when everybody is there again.
FLUSH_SECONDS: Final = 120
LEAVE_SECONDS: Final = 60


class Load:
    """Produces and reads from `__enter__` on; `finish` reads everything once more and judges."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, checker: Checker) -> None:
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self.checker = checker
        self._is_producing = True
        self._is_reading = True
        self._workers = Workers()
        self.failed = self._workers.failed

    def __enter__(self) -> Self:
        start = self._workers.start
        self._producers = [start(self._produce, f"p{number}") for number in range(2)]
        self._readers = [
            start(self._read_all),
            start(self._watch_ends),
            start(self._read_as_member),
            start(self._read_as_aiokafka),
            start(self._look_at_group),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        self._is_producing = self._is_reading = False
        self._workers.join((*self._producers, *self._readers), LEAVE_SECONDS)

    def wait_for_more(self, count: int, seconds: float = 60) -> None:
        acknowledged = self.checker.acknowledged
        enough = len(acknowledged) + count
        processes.wait_until(
            lambda: len(acknowledged) >= enough or bool(self.failed),
            seconds,
            f"{count} more acknowledgements",
        )

    def stop_producing(self) -> None:
        """Returns when all of it was acknowledged."""
        self._is_producing = False
        self._workers.join(self._producers, FLUSH_SECONDS + LEAVE_SECONDS)

    def finish(self) -> list[str]:
        """Failures, of the checker and of clients. Everybody who was killed must be back."""
        self.stop_producing()
        with contextlib.suppress(TimeoutError):  # the checker says what is missing
            processes.wait_until(
                lambda: bool(self.failed) or not self.checker.missing_of_group(),
                60,
                "all of it read by the group",
                every=0.2,
            )
        self._is_reading = False
        self._workers.join(self._readers, LEAVE_SECONDS)
        logs: dict[int, list[tuple[int, str]]] = {}
        self._workers.bounded(2 * LEAVE_SECONDS, lambda: self._read_everything(logs))
        return self.failed + self.checker.unseen() + self.checker.finish(logs)

    # Producing ---------------------------------------------------------------------------------

    def _produce(self, name: str) -> None:
        producer = Producer(
            connecting(
                self._bootstrap,
                **{"enable.idempotence": True, "linger.ms": 2, "delivery.timeout.ms": DELIVERY_MS},
            )
        )
        numbers = [0] * self._partitions
        while self._is_producing:
            for partition in range(self._partitions):
                value = record_value(f"{name}/{partition}", numbers[partition])
                with contextlib.suppress(BufferError):
                    producer.produce(
                        self._topic, value, partition=partition, on_delivery=self._on_delivery
                    )
                    numbers[partition] += 1
            producer.poll(PAUSE_SECONDS)
        if producer.flush(FLUSH_SECONDS):
            self.failed.append(f"{name} could not write all of it")

    def _on_delivery(self, error: object, message: Any) -> None:
        if error is not None:
            self.failed.append(f"a record failed: {error}")
        else:
            self.checker.on_acknowledged(*read(message))

    # Reading -----------------------------------------------------------------------------------

    def _assigned(self) -> Consumer:
        return assigned(self._bootstrap, self._topic, self._partitions)

    def _take(self, consumer: Consumer, *, by_group: bool = False) -> list[Place]:
        found = []
        for message in consumer.consume(500, 0.1):
            error = message.error()
            if error is None:
                place, value = read(message)
                self.checker.on_read(place, value, by_group=by_group)
                found.append(place)
            elif error.code() in FATAL:
                self.failed.append(f"a reader of {message.partition()} was told {error}")
        return found

    def _read_all(self) -> None:
        consumer = self._assigned()
        while self._is_reading:
            self._take(consumer)
        consumer.close()

    def _watch_ends(self) -> None:
        """Each question is asked after the answer before it came: what a fetch told may have been on its
        way since before a leader fell, and then says nothing of what was told meanwhile."""
        consumer = Consumer(
            connecting(
                self._bootstrap, **{"group.id": "nobody", "isolation.level": "read_uncommitted"}
            )
        )
        while self._is_reading:
            for partition in range(self._partitions):
                at = TopicPartition(self._topic, partition)
                with contextlib.suppress(KafkaException):  # nobody leads, or nobody answers
                    _, high_watermark = consumer.get_watermark_offsets(at, timeout=ASK_SECONDS)
                    self.checker.on_high_watermark("asker", partition, high_watermark)
            time.sleep(PAUSE_SECONDS)
        consumer.close()

    def _read_as_member(self) -> None:
        consumer = Consumer(
            connecting(
                self._bootstrap,
                **{
                    "group.id": GROUP,
                    "auto.offset.reset": "earliest",
                    "session.timeout.ms": SESSION_MS,
                    "auto.commit.interval.ms": 500,
                    "fetch.wait.max.ms": 50,
                },
            )
        )
        consumer.subscribe([self._topic])
        while self._is_reading:
            self._take(consumer, by_group=True)
        consumer.close()

    def _read_as_aiokafka(self) -> None:
        asyncio.run(self._run_aiokafka())

    async def _run_aiokafka(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=self._bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            auto_commit_interval_ms=500,
        )
        await asyncio.wait_for(consumer.start(), LEAVE_SECONDS)
        try:
            while self._is_reading:
                found = await consumer.getmany(timeout_ms=100)
                for at, records in found.items():
                    for record in records:
                        place = Place(at.partition, record.offset)
                        self.checker.on_read(place, record.value.decode(), by_group=True)
        finally:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(consumer.stop(), 30)

    def _look_at_group(self) -> None:
        addresses = group.addresses(self._bootstrap)
        while self._is_reading:
            for address in addresses:
                owned = group.look(address, GROUP)
                if owned is not None:
                    self.checker.on_assignment(owned)
            time.sleep(0.2)

    def _read_everything(self, logs: dict[int, list[tuple[int, str]]]) -> None:
        """Up to the end that each leader tells."""
        consumer = self._assigned()
        ends = ends_of(consumer, self._topic, self._partitions)
        logs.update({partition: [] for partition in ends})

        def is_whole() -> bool:
            for message in consumer.consume(2000, 0.2):
                if message.error() is None:
                    place, value = read(message)
                    logs[place.partition].append((place.offset, value))
            return all(
                end == 0 or bool(logs[partition] and logs[partition][-1][0] + 1 >= end)
                for partition, end in ends.items()
            )

        with contextlib.suppress(TimeoutError):  # what is missing will be told
            processes.wait_until(is_whole, 60, "everything read")
        consumer.close()
