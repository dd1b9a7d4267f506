"""Record batches as other software writes them, in tests/golden/batches/.

    python -m tests.golden.capture_batches [HOST:PORT]

`java-*` are written by Batches.java, which calls Apache Kafka 4.4.0's own record classes (a JDK and
the jars of tests/support/apache.py are needed). The others were produced to an Apache Kafka 4.4.0
by confluent-kafka 2.16.1 (librdkafka), aiokafka 0.14.0 and kafka-python 3.0.12 (with python-snappy,
lz4 and zstandard installed beside it) and fetched back. A broker stores such a batch as it was sent,
but for the base offset and the leader epoch, which are set back to 0 and -1 here. Every client sends
SMALL (kafka-python: NARROW) and, where there is a codec, LARGE.
"""

import asyncio
import struct
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from tests.support import record_batches
from tests.support.apache import ApacheKafka, class_path, require_jars
from tests.support.record_batches import Record
from tests.support.wire import Wire

BATCHES = Path(__file__).with_name("batches")
START = 1_700_000_000_000

SMALL = [
    Record(b"key", b"value " * 40, START),
    Record(
        b"with headers",
        b"v",
        START + 500,
        (("name", b"value"), ("empty", b""), ("null", None), ("é世", b"\x00\xff")),
    ),
    Record(None, b"no key, earlier", START - 1_000),
    Record(b"tombstone", None, START + 1),
    Record(b"", b"", START + 2),
    Record(None, None, START + 3),
]
LARGE = [Record(b"key-%d" % i, b"line %d " % i * 200, START + i) for i in range(300)]

#: What kafka-python agrees to send: no null header, and no record without key and value.
NARROW = [
    Record(one.key, one.value, one.timestamp, tuple(h for h in one.headers if h[1] is not None))
    for one in SMALL[:-1]
]
ATTEMPTS = 20
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def capture_java() -> None:
    libs = require_jars()
    source = Path(__file__).with_name("Batches.java")
    subprocess.run(
        ["java", "-cp", class_path(libs, with_log=False), str(source), str(BATCHES)], check=True
    )


def fetch_one_batch(address: tuple[str, int], topic: str) -> bytes:
    with Wire(address) as wire:
        answer = wire.request(
            "fetch",
            11,
            replica_id=-1,
            max_wait=5_000,
            min_bytes=1,
            max_bytes=1 << 24,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[
                {
                    "topic": topic,
                    "partitions": [
                        {
                            "partition": 0,
                            "current_leader_epoch": -1,
                            "fetch_offset": 0,
                            "log_start_offset": -1,
                            "partition_max_bytes": 1 << 24,
                        }
                    ],
                }
            ],
            forgotten_topics_data=[],
            rack_id="",
        )
    data = bytearray(answer.responses[0].partitions[0].records)
    (_,) = record_batches.batches(bytes(data))
    struct.pack_into(">q", data, 0, 0)
    struct.pack_into(">i", data, 12, -1)
    return bytes(data)


def send_confluent(bootstrap: str, topic: str, codec: str, records: list[Record]) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 500,
            "batch.size": 1 << 20,
        }
    )
    # The first record to a new topic waits for its leader, and would go alone.
    producer.list_topics(topic, timeout=20)
    for record in records:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            timestamp=record.timestamp,
            headers=list(record.headers),
            partition=0,
        )
    assert producer.flush(20) == 0


def send_kafka_python(bootstrap: str, topic: str, codec: str, records: list[Record]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        linger_ms=500,
        batch_size=1 << 20,
    )
    producer.partitions_for(topic)
    sent = [
        producer.send(
            topic,
            key=record.key,
            value=record.value,
            timestamp_ms=record.timestamp,
            headers=list(record.headers),
            partition=0,
        )
        for record in records
    ]
    for future in sent:
        future.get(20)
    producer.close()


def send_aiokafka(bootstrap: str, topic: str, codec: str, records: list[Record]) -> None:
    from aiokafka import AIOKafkaProducer

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            max_batch_size=1 << 20,
        )
        await producer.start()
        try:
            await producer.partitions_for(topic)
            batch = producer.create_batch()
            for record in records:
                assert batch.append(
                    key=record.key,
                    value=record.value,
                    timestamp=record.timestamp,
                    headers=list(record.headers),
                )
            batch.close()
            sent = await producer.send_batch(batch, topic, partition=0)
            await sent
        finally:
            await producer.stop()

    asyncio.run(run())


SENDERS = {
    "librdkafka": send_confluent,
    "kafka-python": send_kafka_python,
    "aiokafka": send_aiokafka,
}


def capture_clients(address: tuple[str, int]) -> None:
    bootstrap = f"{address[0]}:{address[1]}"
    for client, send in SENDERS.items():
        for codec in CODECS:
            for suffix, records in (("", SMALL), ("-large", LARGE)):
                if suffix and codec == "none":
                    continue
                name = f"{client}-{codec}{suffix}"
                if client == "kafka-python" and not suffix:
                    records = NARROW
                for _ in range(ATTEMPTS):
                    topic = f"{name}-{uuid.uuid4().hex[:8]}"
                    try:
                        send(bootstrap, topic, codec, records)
                        data = fetch_one_batch(address, topic)
                    except ValueError:
                        continue  # the client cut it into several batches
                    except (AssertionError, RuntimeError) as error:
                        print(f"{name}: not captured: {error}")
                    else:
                        (BATCHES / f"{name}.bin").write_bytes(data)
                    break
                else:
                    print(f"{name}: never in one batch")


def main(argv: list[str]) -> None:
    BATCHES.mkdir(exist_ok=True)
    capture_java()
    if argv:
        host, port = argv[0].rsplit(":", 1)
        capture_clients((host, int(port)))
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        ApacheKafka(Path(directory) / "kafka") as kafka,
    ):
        capture_clients(kafka.address)


if __name__ == "__main__":
    main(sys.argv[1:])
