"""Three Kafka clients behind one small face, so that each can read what another wrote.

A client that lacks the library of a codec says so in `missing_codec`.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

TIMEOUT = 30.0
LARGEST = 16 << 20


@dataclass(frozen=True, slots=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    timestamp: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = field(default=-1, compare=False)


class Client(Protocol):
    name: str

    def missing_codec(self, codec: str) -> str | None: ...

    def write(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
        acks: str | int = "all",
    ) -> list[int]:
        """Send all in one go; the offsets that the broker answered, -1 where it does not."""
        ...

    def read(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0
    ) -> list[Message]:
        """`count` records from offset `start`, by assignment, without a group."""
        ...

    def watermarks(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]: ...

    def offset_for_time(
        self, bootstrap: str, topic: str, timestamp: int, partition: int = 0
    ) -> int | None: ...


class ConfluentKafka:
    name = "confluent-kafka"

    def missing_codec(self, codec: str) -> str | None:
        return None

    def write(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
        acks: str | int = "all",
    ) -> list[int]:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "acks": acks,
                "linger.ms": 20,
                "message.max.bytes": LARGEST,
            }
        )
        offsets: dict[int, int] = {}
        failures: list[Any] = []

        def delivered(index: int) -> Callable[[Any, Any], None]:
            def on_delivery(error: Any, message: Any) -> None:
                if error is not None:
                    failures.append(error)
                else:
                    offsets[index] = message.offset()

            return on_delivery

        for index, message in enumerate(messages):
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                partition=partition,
                timestamp=message.timestamp,
                headers=list(message.headers),
                on_delivery=delivered(index),
            )
        assert producer.flush(TIMEOUT) == 0, "not delivered in time"
        assert not failures, failures
        return [-1 if (o := offsets[i]) is None else o for i in range(len(messages))]

    def consumer(self, bootstrap: str, **settings: Any) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "none of the broker's business",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "fetch.message.max.bytes": LARGEST,
                "isolation.level": "read_uncommitted",
                **settings,
            }
        )

    def read(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0
    ) -> list[Message]:
        consumer = self.consumer(bootstrap)
        found: list[Message] = []
        try:
            consumer.assign([TopicPartition(topic, partition, start)])
            end = time.monotonic() + TIMEOUT
            while len(found) < count and time.monotonic() < end:
                for message in consumer.consume(count - len(found), 0.2):
                    error = message.error()
                    if error is not None:
                        if error.code() == KafkaError._PARTITION_EOF or error.retriable():
                            continue
                        raise KafkaException(error)
                    found.append(
                        Message(
                            message.value(),
                            message.key(),
                            message.timestamp()[1],
                            tuple(message.headers() or ()),
                            message.offset(),
                        )
                    )
        finally:
            consumer.close()
        return found

    def watermarks(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        consumer = self.consumer(bootstrap)
        try:
            found: tuple[int, int] = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), TIMEOUT
            )
            return found
        finally:
            consumer.close()

    def offset_for_time(
        self, bootstrap: str, topic: str, timestamp: int, partition: int = 0
    ) -> int | None:
        consumer = self.consumer(bootstrap)
        try:
            (found,) = consumer.offsets_for_times(
                [TopicPartition(topic, partition, timestamp)], TIMEOUT
            )
            return None if found.offset < 0 else found.offset
        finally:
            consumer.close()


class KafkaPython:
    name = "kafka-python"

    def missing_codec(self, codec: str) -> str | None:
        from kafka import codec as codecs

        packages = {"snappy": "python-snappy", "lz4": "lz4", "zstd": "zstandard"}
        if codec in packages and not getattr(codecs, f"has_{codec}")():
            return f"kafka-python needs {packages[codec]}"
        return None

    def write(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
        acks: str | int = "all",
    ) -> list[int]:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks=acks,
            linger_ms=20,
            max_request_size=LARGEST,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=partition,
                    timestamp_ms=message.timestamp,
                )
                for message in messages
            ]
            return [future.get(timeout=TIMEOUT).offset for future in futures]
        finally:
            producer.close(timeout=TIMEOUT)

    def consumer(self, bootstrap: str, **settings: Any) -> Any:
        from kafka import KafkaConsumer

        return KafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="none",
            check_crcs=True,
            max_partition_fetch_bytes=LARGEST,
            **settings,
        )

    def read(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0
    ) -> list[Message]:
        from kafka import TopicPartition as Partition

        consumer = self.consumer(bootstrap)
        found: list[Message] = []
        try:
            where = Partition(topic, partition)
            consumer.assign([where])
            consumer.seek(where, start)
            end = time.monotonic() + TIMEOUT
            while len(found) < count and time.monotonic() < end:
                for records in consumer.poll(timeout_ms=200).values():
                    found += [
                        Message(
                            record.value,
                            record.key,
                            record.timestamp,
                            tuple((name, value) for name, value in record.headers),
                            record.offset,
                        )
                        for record in records
                    ]
        finally:
            consumer.close()
        return found[:count]

    def watermarks(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        from kafka import TopicPartition as Partition

        consumer = self.consumer(bootstrap)
        try:
            where = Partition(topic, partition)
            return consumer.beginning_offsets([where])[where], consumer.end_offsets([where])[where]
        finally:
            consumer.close()

    def offset_for_time(
        self, bootstrap: str, topic: str, timestamp: int, partition: int = 0
    ) -> int | None:
        from kafka import TopicPartition as Partition

        consumer = self.consumer(bootstrap)
        try:
            where = Partition(topic, partition)
            found = consumer.offsets_for_times({where: timestamp})[where]
            return None if found is None or found.offset < 0 else found.offset
        finally:
            consumer.close()


class AioKafka:
    name = "aiokafka"

    def missing_codec(self, codec: str) -> str | None:
        return None

    def write(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
        acks: str | int = "all",
    ) -> list[int]:
        from aiokafka import AIOKafkaProducer

        async def send_all() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                acks=acks,
                linger_ms=20,
                max_request_size=LARGEST,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        value=message.value,
                        key=message.key,
                        headers=list(message.headers),
                        partition=partition,
                        timestamp_ms=message.timestamp,
                    )
                    for message in messages
                ]
                done = await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT)
                return [-1 if record is None else record.offset for record in done]
            finally:
                await producer.stop()

        return asyncio.run(send_all())

    def _with_consumer(self, bootstrap: str, use: Callable[[Any], Any]) -> Any:
        from aiokafka import AIOKafkaConsumer

        async def run() -> Any:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                enable_auto_commit=False,
                auto_offset_reset="none",
                check_crcs=True,
                max_partition_fetch_bytes=LARGEST,
            )
            await consumer.start()
            try:
                return await use(consumer)
            finally:
                await consumer.stop()

        return asyncio.run(run())

    def read(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, start: int = 0
    ) -> list[Message]:
        from aiokafka import TopicPartition as Partition

        async def use(consumer: Any) -> list[Message]:
            where = Partition(topic, partition)
            consumer.assign([where])
            consumer.seek(where, start)
            found: list[Message] = []
            end = time.monotonic() + TIMEOUT
            while len(found) < count and time.monotonic() < end:
                batch = await consumer.getmany(timeout_ms=200, max_records=count - len(found))
                for records in batch.values():
                    found += [
                        Message(
                            record.value,
                            record.key,
                            record.timestamp,
                            tuple(record.headers),
                            record.offset,
                        )
                        for record in records
                    ]
            return found

        found: list[Message] = self._with_consumer(bootstrap, use)
        return found

    def watermarks(self, bootstrap: str, topic: str, partition: int = 0) -> tuple[int, int]:
        from aiokafka import TopicPartition as Partition

        async def use(consumer: Any) -> tuple[int, int]:
            where = Partition(topic, partition)
            start = await consumer.beginning_offsets([where])
            end = await consumer.end_offsets([where])
            return start[where], end[where]

        found: tuple[int, int] = self._with_consumer(bootstrap, use)
        return found

    def offset_for_time(
        self, bootstrap: str, topic: str, timestamp: int, partition: int = 0
    ) -> int | None:
        from aiokafka import TopicPartition as Partition

        async def use(consumer: Any) -> int | None:
            where = Partition(topic, partition)
            found = (await consumer.offsets_for_times({where: timestamp}))[where]
            return None if found is None or found.offset < 0 else found.offset

        found: int | None = self._with_consumer(bootstrap, use)
        return found


ALL: tuple[Client, ...] = (ConfluentKafka(), KafkaPython(), AioKafka())
