"""Topics of every kind in a cluster of three brokers, by real clients, and what a consumer finds in them.

Every topic has three replicas and partitions on all brokers. ``records`` reads whole topics at both isolation
levels; what two clusters hold is the same when these are.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import processes

PARTITIONS: Final = 6
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT: Final = {"segment.bytes": str(1 << 20)}
TOPICS: Final[dict[str, dict[str, str]]] = {
    "codecs": {"retention.ms": "-1", "min.insync.replicas": "2"},
    "transactions": SEGMENT,
    "compacted": SEGMENT
    | {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "86400000",
    },
    "trimmed": SEGMENT,
    "bulk": {"compression.type": "producer"},
    "empty": {"retention.ms": "123456789"},
}
TRIMMED_AT: Final = 70
BULK_RECORDS: Final = 4000
BULK_BYTES: Final = 10_000
GROUPS: Final = {"classic": "classic", "modern": "consumer"}


class Found(NamedTuple):
    """A record as a consumer is given it."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def fill(bootstrap: str) -> dict[str, dict[tuple[str, int], tuple[int, str]]]:
    """What was committed, by group: (topic, partition) to (offset, metadata)."""
    dice = random.Random(23)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [
        NewTopic(name, PARTITIONS, replication_factor=3, config=dict(configs))
        for name, configs in TOPICS.items()
    ]
    for future in admin.create_topics(new).values():
        future.result(60)
    _write_codecs(bootstrap, dice)
    _write_transactions(bootstrap, dice)
    _write_compacted(bootstrap, dice)
    _write_plainly(bootstrap, "trimmed", 150 * PARTITIONS, 500, dice)
    _write_plainly(bootstrap, "bulk", BULK_RECORDS, BULK_BYTES, dice)
    before = [TopicPartition("trimmed", index, TRIMMED_AT + index) for index in range(PARTITIONS)]
    for future in admin.delete_records(before).values():
        future.result(60)
    return _commit(bootstrap)


def _producer(bootstrap: str, **more: Any) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0, **more})


def _write_codecs(bootstrap: str, dice: random.Random) -> None:
    for codec in CODECS:
        producer = _producer(bootstrap, **{"compression.type": codec, "enable.idempotence": True})
        for number in range(30 * PARTITIONS):
            partition = number % PARTITIONS
            key = (None, b"", b"key %d" % number)[number % 3]
            value = (None, b"", dice.randbytes(300), b"text of %s " % codec.encode() * 40)[
                number // PARTITIONS % 4
            ]
            headers: list[tuple[str, bytes | None]] = [("codec", codec.encode())]
            if number % 4 == 0:
                headers += [("twice", b"1"), ("twice", None), ("", b"")]
            stamp = 1_700_000_000_000 + dice.randrange(10**9)
            producer.produce(
                "codecs",
                key=key,
                value=value,
                partition=partition,
                headers=headers,
                timestamp=stamp,
            )
        assert producer.flush(60) == 0


def _write_transactions(bootstrap: str, dice: random.Random) -> None:
    """Of four producers at a time, interleaved, a third of them aborted."""
    producers = [_producer(bootstrap, **{"transactional.id": f"id-{n}"}) for n in range(4)]
    for producer in producers:
        producer.init_transactions(60)
    for round_ in range(12):
        for producer in producers:
            producer.begin_transaction()
        for _ in range(3):
            for number, producer in enumerate(producers):
                for partition in range(PARTITIONS):
                    value = b"%d of %d " % (round_, number) + dice.randbytes(2000)
                    producer.produce("transactions", value, partition=partition)
                assert producer.flush(60) == 0
        for number, producer in enumerate(producers):
            if (round_ + number) % 3 == 0:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)


def _write_compacted(bootstrap: str, dice: random.Random) -> None:
    """Over the same keys, some of them deleted, until the cleaner has made holes everywhere."""
    producer = _producer(bootstrap, **{"compression.type": "lz4"})
    rounds = 0

    def write_more() -> bool:
        nonlocal rounds
        rounds += 1
        for number in range(200 * PARTITIONS):
            key = b"key %d" % dice.randrange(20)
            value = None if number % 11 == 0 else dice.randbytes(1500)
            producer.produce("compacted", value, key, partition=number % PARTITIONS)
        assert producer.flush(60) == 0
        found = records(bootstrap, ["compacted"])["compacted"]
        return rounds > 3 and all(has_holes(each) for each in found.values())

    processes.wait_until(write_more, 120, "compaction", every=0.5)


def has_holes(found: list[Found]) -> bool:
    offsets = [record.offset for record in found]
    return offsets[-1] - offsets[0] + 1 > len(offsets)


def _write_plainly(bootstrap: str, topic: str, count: int, size: int, dice: random.Random) -> None:
    producer = _producer(bootstrap, **{"batch.size": 60_000})
    for number in range(count):
        value = b"%d " % number + dice.randbytes(size)
        producer.produce(topic, value, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(120) == 0


def _commit(bootstrap: str) -> dict[str, dict[tuple[str, int], tuple[int, str]]]:
    told: dict[str, dict[tuple[str, int], tuple[int, str]]] = {}
    for group, protocol in GROUPS.items():
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.subscribe(["codecs", "transactions"])
        while not consumer.assignment():
            consumer.poll(0.1)
        offsets = {
            (topic, index): (10 * number + index, f"{group} {index}")
            for number, topic in enumerate(("codecs", "transactions"))
            for index in range(PARTITIONS)
        }
        consumer.commit(
            offsets=[TopicPartition(*key, *at) for key, at in offsets.items()], asynchronous=False
        )
        consumer.close()
        told[group] = offsets
    return told | {"exactly-once": _commit_in_transactions(bootstrap)}


def _commit_in_transactions(bootstrap: str) -> dict[tuple[str, int], tuple[int, str]]:
    """The last of these is aborted, and so does not count."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "exactly-once"})
    producer = _producer(bootstrap, **{"transactional.id": "with-offsets"})
    producer.init_transactions(60)
    for offset in (3, 5, 7):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition("codecs", 0, offset)], consumer.consumer_group_metadata()
        )
        (producer.abort_transaction if offset == 7 else producer.commit_transaction)(60)
    consumer.close()
    return {("codecs", 0): (5, "")}


def records(
    bootstrap: str, topics: Iterable[str], isolation: str = "read_uncommitted"
) -> dict[str, dict[int, list[Found]]]:
    """Everything, in log order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "whoever-compares",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    names = list(topics)
    found: dict[str, dict[int, list[Found]]] = {
        name: {index: [] for index in range(PARTITIONS)} for name in names
    }
    left = {(name, index) for name in names for index in range(PARTITIONS)}
    consumer.assign([TopicPartition(*key, 0) for key in left])

    def read() -> bool:
        for message in consumer.consume(1000, 0.5):
            key = (message.topic(), message.partition())
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                left.discard(key)
                continue
            found[key[0]][key[1]].append(
                Found(
                    message.offset(),
                    message.timestamp(),
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                )
            )
        return not left

    processes.wait_until(read, 120, f"the ends of {names}", every=0)
    consumer.close()
    return found


def bounds(bootstrap: str, topics: Iterable[str]) -> dict[tuple[str, int], tuple[int, int]]:
    """Log start and high watermark."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "whoever-compares"})
    found = {
        (name, index): consumer.get_watermark_offsets(TopicPartition(name, index), 60)
        for name in topics
        for index in range(PARTITIONS)
    }
    consumer.close()
    return found


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], tuple[int, str]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    wanted = [
        TopicPartition(name, index)
        for name in ("codecs", "transactions")
        for index in range(PARTITIONS)
    ]
    told = consumer.committed(wanted, 60)
    consumer.close()
    return {
        (each.topic, each.partition): (each.offset, each.metadata or "")
        for each in told
        if each.offset >= 0
    }
