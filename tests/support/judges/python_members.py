"""Members of a group by confluent-kafka, aiokafka or kafka-python, as processes that may be killed.

`python -m tests.support.judges.python_members CLIENT member -bootstrap …`: the same flags and lines
as the programs in golang/ (lines/lines.go).
"""

import argparse
import asyncio
import base64
import json
import signal
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import Any

stopped = threading.Event()


def tell(event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def tell_owned(event: str, partitions: Iterable[int]) -> None:
    tell(event, partitions=sorted(partitions))


def tell_record(
    partition: int, offset: int, key: bytes | None, value: bytes | None, timestamp: int
) -> None:
    tell(
        "record",
        partition=partition,
        offset=offset,
        key=None if key is None else base64.b64encode(key).decode(),
        value=None if value is None else base64.b64encode(value).decode(),
        headers=None,
        timestamp=timestamp,
    )


def tell_committed(offsets: Mapping[int, int]) -> None:
    if offsets:
        tell("committed", offsets=offsets)


def confluent_kafka(flags: argparse.Namespace) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    strategies = {"cooperative": "cooperative-sticky"}
    settings = {
        "bootstrap.servers": flags.bootstrap,
        "group.id": flags.group,
        "session.timeout.ms": flags.session,
        "heartbeat.interval.ms": flags.session // 10,
        "partition.assignment.strategy": strategies.get(flags.balancer, flags.balancer),
        "auto.offset.reset": flags.reset,
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 200,
        "topic.metadata.refresh.interval.ms": 1000,
        "allow.auto.create.topics": flags.auto_create,
        "check.crcs": True,
    }
    if flags.instance:
        settings["group.instance.id"] = flags.instance
    consumer = Consumer(settings)
    consumer.subscribe(
        [flags.topic],
        on_assign=lambda _, parts: tell_owned("assigned", [part.partition for part in parts]),
        on_revoke=lambda _, parts: tell_owned("revoked", [part.partition for part in parts]),
        on_lost=lambda _, parts: tell_owned("revoked", [part.partition for part in parts]),
    )
    while not stopped.is_set():
        offsets: dict[int, int] = {}
        for message in consumer.consume(500, 0.2):
            if message.error():
                continue
            partition, offset = message.partition(), message.offset()
            tell_record(partition, offset, message.key(), message.value(), message.timestamp()[1])
            offsets[partition] = offset + 1
        if offsets:
            marks = [TopicPartition(flags.topic, *mark) for mark in offsets.items()]
            try:
                consumer.commit(offsets=marks, asynchronous=False)
            except KafkaException:
                continue  # a rebalance came in between: whoever gets the partitions reads again
            tell_committed(offsets)
    consumer.close()


def aiokafka(flags: argparse.Namespace) -> None:
    asyncio.run(_aiokafka(flags))


async def _aiokafka(flags: argparse.Namespace) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            tell_owned("revoked", [part.partition for part in revoked])

        async def on_partitions_assigned(self, assigned: Any) -> None:
            tell_owned("assigned", [part.partition for part in assigned])

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    consumer = AIOKafkaConsumer(
        bootstrap_servers=flags.bootstrap,
        group_id=flags.group,
        group_instance_id=flags.instance or None,
        session_timeout_ms=flags.session,
        heartbeat_interval_ms=flags.session // 10,
        rebalance_timeout_ms=20_000,
        partition_assignment_strategy=[assignors[flags.balancer]],
        auto_offset_reset=flags.reset,
        enable_auto_commit=False,
        fetch_max_wait_ms=200,
        metadata_max_age_ms=1000,
    )
    consumer.subscribe([flags.topic], listener=Listener())
    await consumer.start()
    while not stopped.is_set():
        batch = await consumer.getmany(timeout_ms=200, max_records=500)
        marks, offsets = {}, {}
        for where, records in batch.items():
            for record in records:
                tell_record(
                    where.partition, record.offset, record.key, record.value, record.timestamp
                )
                marks[where] = offsets[where.partition] = record.offset + 1
        if marks:
            try:
                await consumer.commit(marks)
            except KafkaError:
                continue
            tell_committed(offsets)
    await consumer.stop()


def kafka_python(flags: argparse.Namespace) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            tell_owned("revoked", [part.partition for part in revoked])

        def on_partitions_assigned(self, assigned: Any) -> None:
            tell_owned("assigned", [part.partition for part in assigned])

    assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
    consumer = KafkaConsumer(
        bootstrap_servers=flags.bootstrap,
        group_id=flags.group,
        group_instance_id=flags.instance or None,
        session_timeout_ms=flags.session,
        heartbeat_interval_ms=flags.session // 10,
        partition_assignment_strategy=[assignors[flags.balancer]],
        auto_offset_reset=flags.reset,
        enable_auto_commit=False,
        fetch_max_wait_ms=200,
        metadata_max_age_ms=1000,
    )
    consumer.subscribe([flags.topic], listener=Listener())
    while not stopped.is_set():
        marks, offsets = {}, {}
        for where, records in consumer.poll(timeout_ms=200, max_records=500).items():
            for record in records:
                tell_record(
                    where.partition, record.offset, record.key, record.value, record.timestamp
                )
                offsets[where.partition] = record.offset + 1
                marks[where] = OffsetAndMetadata(record.offset + 1, "", -1)
        if marks:
            try:
                consumer.commit(marks)
            except KafkaError:
                continue
            tell_committed(offsets)
    consumer.close()


CLIENTS = {
    "confluent-kafka": confluent_kafka,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
}


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("command", choices=["member"])
    for name in ("bootstrap", "topic", "group"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--instance", default="")
    parser.add_argument("--balancer", default="range")
    parser.add_argument("--session", type=int, default=10000)
    parser.add_argument("--reset", default="earliest")
    parser.add_argument("--auto-create", action="store_true")
    flags = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    CLIENTS[flags.client](flags)


if __name__ == "__main__":
    main()
