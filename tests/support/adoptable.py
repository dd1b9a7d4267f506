"""Topics of every kind for a Kafka that is going to be adopted, written by real clients and by hand.

`fill` makes them, `go_on` writes more after a restart of the broker. Producers with an open
transaction are returned and must be kept: their transactions are open as long as they live.
"""

import random
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support import processes, record_batches, requests
from tests.support.record_batches import Record
from tests.support.wire import ConnectionClosed, Wire

DAY_MS = 24 * 3600 * 1000
HOUR_MS = 3600 * 1000
#: The smallest that Kafka allows.
SEGMENT = {"segment.bytes": str(1 << 20)}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "codecs": (2, SEGMENT | {"retention.ms": "-1"}),
    "transactions": (2, SEGMENT | {"retention.ms": str(400 * DAY_MS)}),
    "trimmed": (2, SEGMENT | {"retention.bytes": str(100 << 20)}),
    "compacted": (
        1,
        SEGMENT
        | {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "1",
        },
    ),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"}),
    "clients": (3, {"max.message.bytes": "2000000"}),
    "plain": (1, {}),
    "empty": (2, {"min.insync.replicas": "1", "retention.ms": "123456789"}),
    "a.dotted_name": (1, {"cleanup.policy": "compact,delete", "retention.ms": "99999999999"}),
}
#: Kafka's own settings for a Kafka that shall be filled: compaction that does not wait.
PROPERTIES = {
    "log.cleaner.backoff.ms": "100",
    "log.retention.hours": "4321",
    "log.index.interval.bytes": "2048",
    "log.segment.delete.delay.ms": "0",
    "producer.id.expiration.ms": "90000000",
}


def fill(address: tuple[str, int]) -> list[Producer]:
    dice = random.Random(11)
    bootstrap = f"{address[0]}:{address[1]}"
    with Wire(address, timeout=60) as wire:
        for name, (partitions, configs) in TOPICS.items():
            requests.create_topic(wire, name, partitions=partitions, configs=configs)
        requests.delete_topic(wire, requests.create_topic(wire, "gone", partitions=2))
        requests.delete_topic(wire, requests.create_topic(wire, "again"))
        requests.create_topic(wire, "again", partitions=2)
        _write_codecs(wire, dice)
        _write_plainly(wire, "again", 3)
        _write_trimmed(wire, dice)
        _write_stamped(wire)
        _write_idempotently(wire)
        _write_plainly(wire, "plain", 5)
        _compact(wire, dice, address)
    _produce_by_client(bootstrap)
    _commit_offsets(bootstrap)
    return [*_fill_groups(bootstrap), *_transactions(bootstrap, dice)]


def go_on(address: tuple[str, int]) -> list[Producer]:
    """More of the same, by new producers, in the leader epoch of now."""
    dice = random.Random(12)
    with Wire(address, timeout=60) as wire:
        for name in ("codecs", "plain", "again", "trimmed", "transactions"):
            requests.wait_for_leaders(wire, name, TOPICS.get(name, (2,))[0])
        _write_codecs(wire, dice, count=2)
        _write_plainly(wire, "plain", 4)
        _write_idempotently(wire)
    return _transactions(f"{address[0]}:{address[1]}", dice, prefix="later", rounds=3)


def append_by_hand(address: tuple[str, int], seed: int) -> None:
    """What needs neither a transaction nor a group: more for most of the topics."""
    dice = random.Random(seed)
    with Wire(address, timeout=60) as wire:
        _write_codecs(wire, dice, count=2)
        _write_plainly(wire, "plain", 3)
        _write_plainly(wire, "again", 3)
        _write_idempotently(wire)
        _write_stamped(wire)
        keyed = Record(b"key 1", b"from here", requests.now_ms())
        requests.produce(wire, "compacted", record_batches.batch([keyed]))
    _write_after_open(f"{address[0]}:{address[1]}")


def close(producers: list[Producer]) -> None:
    """Let clients go whose broker has gone."""
    for producer in producers:
        producer.purge()
    while _kept:
        _kept.pop().close()


def _write_codecs(wire: Wire, dice: random.Random, count: int = 12) -> None:
    """Batches of each codec, with headers, nulls, and timestamps that go up and down."""
    begin = requests.now_ms() - 30 * DAY_MS
    for number in range(count):
        for codec in range(5):
            stamp = begin + number * HOUR_MS + codec * 1000
            records = [
                Record(b"key", dice.randbytes(30_000), stamp, (("h", b"v"), ("null", None))),
                Record(None, b"without a key", stamp - 5000, (("h", b""),)),
                Record(b"without a value", None, stamp + 700),
                Record(b"", b"", stamp + 3, (("twice", b"1"), ("twice", b"2"))),
            ]
            data = record_batches.batch(records, codec=codec, xerial=bool(number % 2))
            requests.produce(wire, "codecs", data, partition=number % 2)


def _write_plainly(wire: Wire, topic: str, count: int) -> None:
    for number in range(count):
        requests.produce_values(wire, topic, [b"%d" % number, None, b"x" * 100])


def _write_trimmed(wire: Wire, dice: random.Random) -> None:
    for partition in (0, 1):
        for _ in range(12):
            data = record_batches.batch(
                [dice.randbytes(60_000) for _ in range(4)], timestamp=requests.now_ms()
            )
            requests.produce(wire, "trimmed", data, partition=partition)
    assert requests.delete_records(wire, "trimmed", 30).error_code == 0
    assert requests.delete_records(wire, "trimmed", 3, partition=1).error_code == 0


def _write_stamped(wire: Wire) -> None:
    for number in range(4):
        data = record_batches.batch([b"a", b"b"], timestamp=number, codec=number)
        requests.produce(wire, "stamped", data)


def _write_idempotently(wire: Wire) -> None:
    for partition, batches in ((0, 1), (1, 7)):
        producer_id, producer_epoch = requests.init_producer(wire)
        for number in range(batches):
            data = record_batches.batch(
                [b"a", b"b", b"c"],
                timestamp=requests.now_ms(),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=3 * number,
            )
            requests.produce(wire, "clients", data, partition=partition)


def _compact(wire: Wire, dice: random.Random, address: tuple[str, int]) -> None:
    """Write over the same keys until the cleaner has made holes."""
    written = 0
    for number in range(70):
        values = [
            Record(b"key %d" % dice.randrange(40), dice.randbytes(15_000), requests.now_ms())
            for _ in range(4)
        ]
        if number % 9 == 0:
            values.append(Record(b"key %d" % dice.randrange(40), None, requests.now_ms()))
        data = record_batches.batch(values, codec=number % 5)
        written += len(data)
        requests.produce(wire, "compacted", data)

    def is_cleaned() -> bool:
        # Kafka closes a connection on which it is sending a segment that the cleaner replaces.
        try:
            with Wire(address, timeout=60) as other:
                part = requests.fetch(other, "compacted", 0, max_wait=0)
        except ConnectionClosed:
            return False
        first = next(record_batches.batches(part.records), None)
        return first is not None and first.record_count < first.last_offset_delta + 1

    processes.wait_until(is_cleaned, 60, "compaction", every=0.2)
    time.sleep(1)  # the swap of the last cleaned segment; nothing tells of it


def _produce_by_client(bootstrap: str) -> None:
    for index, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 5,
            }
        )
        for number in range(60):
            producer.produce(
                "clients",
                key=b"%d" % number,
                value=b"value %d of %d " % (number, index) * 10,
                headers=[("number", b"%d" % number)],
                partition=number % 3,
            )
        assert producer.flush(30) == 0


def _commit_offsets(bootstrap: str) -> None:
    """Of a group without members, as tools and stream processors do it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "log_level": 0})
    try:
        consumer.commit(
            offsets=[TopicPartition("clients", index, 7 + index) for index in range(3)],
            asynchronous=False,
        )
    finally:
        consumer.close()


#: Groups that ``_fill_groups`` leaves, and one that nobody ever heard of.
GROUPS = ("readers", "members", "modern", "left", "exactly-once", "aborted", "open", "deleted",
          "mixed", "unheard-of")  # fmt: skip


def _fill_groups(bootstrap: str) -> list[Producer]:
    """Groups of every kind. Returned is a producer that left its offsets in an open transaction."""
    for group_id, protocol in (("members", "classic"), ("modern", "consumer"), ("left", "classic")):
        consumer = _consumer(bootstrap, group_id, protocol)
        consumer.subscribe(["clients"])
        while not consumer.assignment():
            consumer.poll(0.1)
        for round_ in range(5):
            _commit(consumer, {index: round_ * 10 + index for index in range(3)}, metadata="m")
        if group_id == "left":
            consumer.close()
        else:
            _kept.append(consumer)  # its membership is in the log until its session ends
    plain = _consumer(bootstrap, "deleted")
    _commit(plain, {0: 5})
    plain.close()
    with Wire(_address(bootstrap), timeout=60) as wire:
        answer = wire.request("delete_groups", 2, groups_names=["deleted"])
        assert answer.results[0].error_code == 0, answer
    opened = []
    for group_id in ("exactly-once", "aborted", "mixed", "open"):
        consumer = _consumer(bootstrap, group_id)
        _commit(consumer, {0: 1})
        producer = _transactional(bootstrap, f"offsets-{group_id}")
        producer.begin_transaction()
        producer.produce("transactions", value=b"with offsets", partition=0)
        producer.send_offsets_to_transaction(
            [TopicPartition("clients", index, 100 + index) for index in range(2)],
            consumer.consumer_group_metadata(),
        )
        if group_id == "mixed":
            _commit(consumer, {0: 55})  # behind the transaction's, and so the one that counts
        if group_id == "open":
            opened.append(producer)
        elif group_id == "aborted":
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
        consumer.close()
    return opened


#: Clients that must live until their broker has gone.
_kept: list[Consumer] = []


def _consumer(bootstrap: str, group_id: str, protocol: str = "classic") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )


def _commit(consumer: Consumer, offsets: dict[int, int], metadata: str = "") -> None:
    consumer.commit(
        offsets=[
            TopicPartition("clients", index, offset, metadata) for index, offset in offsets.items()
        ],
        asynchronous=False,
    )


def _address(bootstrap: str) -> tuple[str, int]:
    host, port = bootstrap.rsplit(":", 1)
    return host, int(port)


def committed_offsets(address: tuple[str, int]) -> dict[str, Any]:
    """What the broker tells of the committed offsets of every group: all of them, and one by one
    with the wish that they be stable."""
    told: dict[str, Any] = {}
    with Wire(address, timeout=60) as wire:
        for group_id in GROUPS:
            processes.wait_until(
                lambda group_id=group_id: (
                    wire.request("find_coordinator", 4, key_type=0, coordinator_keys=[group_id])
                    .coordinators[0]
                    .error_code
                    == 0
                    and wire.request("offset_fetch", 7, group_id=group_id, topics=None).error_code
                    == 0
                ),
                60,
                f"the coordinator of {group_id}",
            )
            everything = wire.request("offset_fetch", 7, group_id=group_id, topics=None)
            stable = wire.request(
                "offset_fetch",
                7,
                group_id=group_id,
                topics=[{"name": "clients", "partition_indexes": [0, 1, 2, 3]}],
                require_stable=True,
            )
            told[group_id] = [
                sorted(
                    (
                        topic.name,
                        each.partition_index,
                        each.error_code,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.metadata,
                    )
                    for topic in answer.topics
                    for each in topic.partitions
                )
                for answer in (everything, stable)
            ]
    return told


def _transactions(
    bootstrap: str, dice: random.Random, prefix: str = "first", rounds: int = 10
) -> list[Producer]:
    """Committed, aborted and interleaved ones over several segments; two are left open."""
    producers = [_transactional(bootstrap, f"{prefix}-{index}") for index in range(3)]
    for number in range(rounds):
        for producer in producers:
            producer.begin_transaction()
        for _ in range(3):
            for index, producer in enumerate(producers):
                for partition in (0, 1):
                    producer.produce(
                        "transactions",
                        key=b"%d" % index,
                        value=dice.randbytes(12_000),
                        partition=partition,
                    )
                producer.flush(30)
        for index, producer in enumerate(producers):
            if (number + index) % 3 == 0:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
    for index, producer in enumerate(producers[:2]):
        producer.begin_transaction()
        producer.produce("transactions", b"open %d" % index, partition=index)
        producer.flush(30)
    _write_after_open(bootstrap)
    return producers


def _write_after_open(bootstrap: str) -> None:
    host, port = bootstrap.split(":")
    with Wire((host, int(port))) as wire:
        for partition in (0, 1):
            requests.produce_values(wire, "transactions", [b"behind"], partition=partition)


def _transactional(bootstrap: str, name: str) -> Any:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 900_000,
            "compression.type": "lz4",
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(60)
    return producer
