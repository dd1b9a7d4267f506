"""Captures ``exchanges.jsonl``: requests of real clients and the answers of Apache Kafka 4.4.

    KAFKA_LIBS=... python -m tests.golden.protocol.capture_exchanges

A broker (tests/support/apache.py) advertises the address of a recording relay. Through the relay work
the console producer and consumer of Apache Kafka 4.4, librdkafka (confluent-kafka), kafka-python and
aiokafka; a transaction is aborted so that a read_committed Fetch names it; after a restart of the
broker, ApiVersions at version 99 and Fetch requests with a stale, an unknown and a diverging leader
epoch are sent by hand. Kept is one
exchange per client, API, version and size class, of the APIs below; each line has the client, the
request frame and the response frame (both without length, in hex).
"""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
import threading
import uuid
from pathlib import Path
from typing import Any

import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker.protocol import schema
from broker.protocol.api_versions import ApiKey
from broker.protocol.codec import entity_codec
from broker.protocol.request import parse_header
from tests.support.apache import ApacheKafka, run_tool

OUTPUT = Path(__file__).with_name("exchanges.jsonl")
KEPT_APIS = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.API_VERSIONS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.CREATE_TOPICS,
}
MAX_FRAME = 3000


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def read_frame(sock: socket.socket) -> bytes:
    return read_exactly(sock, int.from_bytes(read_exactly(sock, 4), "big"))


class Relay:
    """Passes frames on, and remembers each request with its answer under the client at work."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.broker: ApacheKafka | None = None
        self.client = ""
        self.exchanges: list[tuple[str, bytes, bytes]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self.listener.accept()
            assert self.broker is not None
            server = socket.create_connection(self.broker.address)
            waiting: dict[int, bytes] = {}
            for source, target, is_request in ((client, server, True), (server, client, False)):
                threading.Thread(
                    target=self._pump, args=(source, target, is_request, waiting), daemon=True
                ).start()

    def _pump(
        self,
        source: socket.socket,
        target: socket.socket,
        is_request: bool,
        waiting: dict[int, bytes],
    ) -> None:
        try:
            while True:
                frame = read_frame(source)
                if is_request:
                    waiting[int.from_bytes(frame[4:8], "big")] = frame
                else:
                    request = waiting.pop(int.from_bytes(frame[:4], "big"))
                    self.exchanges.append((self.client, request, frame))
                target.sendall(len(frame).to_bytes(4, "big") + frame)
        except OSError:
            source.close()
            target.close()


def with_java(address: str) -> None:
    run_tool(
        "ConsoleProducer",
        ["--bootstrap-server", address, "--topic", "java"],
        stdin="one\ntwo\n",
    ).ok()
    consume = ["--from-beginning", "--max-messages", "2", "--timeout-ms", "20000"]
    run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        ["--bootstrap-server", address, "--topic", "java", *consume],
    ).ok()
    run_tool("GetOffsetShell", ["--bootstrap-server", address, "--topic", "java"]).ok()


def with_librdkafka(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "tx"})
    producer.init_transactions()
    for commit in (True, False):
        producer.begin_transaction()
        producer.produce("confluent", b"value", b"key", partition=0)
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    plain = Producer({"bootstrap.servers": address, "compression.type": "gzip"})
    plain.produce("confluent", b"more" * 20, partition=0)
    plain.flush()
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "g",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition("confluent", 0, 0)])
    assert [m.value()[:4] for m in consumer.consume(2, 20) if not m.error()] == [b"valu", b"more"]
    consumer.close()


def with_kafka_python(address: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=address)
    producer.send("python", b"value").get(20)
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    consumer.assign([kafka.TopicPartition("python", 0)])
    consumer.seek_to_beginning()
    assert next(iter(consumer)).value == b"value"
    consumer.close()


def with_aiokafka(address: str) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address) as producer:
            await producer.send_and_wait("aio", b"value")
        async with AIOKafkaConsumer(
            "aio", bootstrap_servers=address, auto_offset_reset="earliest"
        ) as consumer:
            assert (await consumer.getone()).value == b"value"

    asyncio.run(run())


def fetch_request(version: int, topic_id: uuid.UUID, **partition: Any) -> bytes:
    request = schema.request_type(ApiKey.FETCH, version)
    module = schema._module(ApiKey.FETCH, version, "request")
    fields = {
        "partition": 0,
        "fetch_offset": 0,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    } | partition
    topic = {"topic_id": topic_id} if version >= 13 else {"topic": "confluent"}
    message = request(
        max_wait=0,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[module.FetchTopic(partitions=[module.FetchPartition(**fields)], **topic)],
        forgotten_topics_data=(),
        rack_id="",
    )
    out = bytearray()
    entity_codec(request).write(out, message)
    head = ApiKey.FETCH.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7\0\3raw\0"
    return head + bytes(out)


def with_raw_requests(port: int, topic_id: uuid.UUID) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        unknown = bytes.fromhex("0012006300000007000372617700036d6504312e3000")
        sock.sendall(len(unknown).to_bytes(4, "big") + unknown)
        read_frame(sock)
        for version in (12, 17):
            for partition in (
                {"current_leader_epoch": 0},
                {"current_leader_epoch": 99},
                {"last_fetched_epoch": 0, "fetch_offset": 1000},
            ):
                frame = fetch_request(version, topic_id, **partition)
                sock.sendall(len(frame).to_bytes(4, "big") + frame)
                read_frame(sock)


def topic_id_of(address: str, topic: str) -> uuid.UUID:
    admin = AdminClient({"bootstrap.servers": address})
    described = admin.describe_topics(TopicCollection([topic]))
    halves = described[topic].result(20).topic_id
    most, least = halves.get_most_significant_bits(), halves.get_least_significant_bits()
    return uuid.UUID(int=(most % 2**64 << 64) | least % 2**64)


def kept(exchanges: list[tuple[str, bytes, bytes]]) -> list[dict[str, str]]:
    seen = set()
    lines = []
    for client, request, response in exchanges:
        header = parse_header(memoryview(request))
        if header.api_key not in KEPT_APIS or max(len(request), len(response)) > MAX_FRAME:
            continue
        # Responses of one length differ in numbers only.
        kind = (client, header.api_key, header.api_version)
        kind += (len(response),) if header.api_key == ApiKey.FETCH else ()
        if kind in seen or (header.api_key == ApiKey.FETCH and not header.api_version):
            continue
        seen.add(kind)
        lines.append({"client": client, "request": request.hex(), "response": response.hex()})
    return lines


def main() -> None:
    relay = Relay()
    address = f"127.0.0.1:{relay.port}"
    advertised = {"advertised.listeners": f"PLAINTEXT://{address}"}
    with (
        tempfile.TemporaryDirectory() as directory,
        ApacheKafka(Path(directory), advertised) as broker,
    ):
        relay.broker = broker
        topics = [NewTopic(name, 1, 1) for name in ("java", "confluent", "python", "aio")]
        admin = AdminClient({"bootstrap.servers": address})
        for future in admin.create_topics(topics).values():
            future.result(20)
        for client, work in (
            ("Apache Kafka 4.4 tools", with_java),
            ("librdkafka", with_librdkafka),
            ("kafka-python", with_kafka_python),
            ("aiokafka", with_aiokafka),
        ):
            relay.client = client
            work(address)
        relay.client = ""
        topic_id = topic_id_of(address, "confluent")
        broker.restart()
        relay.client = "raw"
        with_raw_requests(relay.port, topic_id)
    lines = [json.dumps(line) for line in kept([e for e in relay.exchanges if e[0]])]
    OUTPUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
