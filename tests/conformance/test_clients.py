"""confluent-kafka, kafka-python and aiokafka write and read, each what any other wrote."""

import os
import time

import pytest

from tests.support import clients, judge, requests
from tests.support import record_batches as rb
from tests.support.clients import Client, Message
from tests.support.fixtures import Broker
from tests.support.requests import create_topic, now_ms
from tests.support.wire import Wire

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(params=clients.ALL, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    return found


def need_codec(client: Client, codec: str) -> None:
    missing = client.missing_codec(codec)
    if missing:
        judge.missing(missing)


def messages(count: int, *, start: int = 0, size: int = 100) -> list[Message]:
    now = now_ms()
    return [
        Message(
            value=b"value %d " % (start + index) + b"." * size,
            key=b"key %d" % index,
            timestamp=now + index,
            headers=(("trace", b"%d" % index),),
        )
        for index in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_what_one_client_writes_every_client_reads(
    broker: Broker, wire: Wire, client: Client, codec: str
) -> None:
    need_codec(client, codec)
    name = create_topic(wire)
    sent = messages(50)
    offsets = client.write(broker.bootstrap, name, sent, codec=codec)
    assert offsets == list(range(50))
    stored = list(rb.batches(requests.fetch(wire, name, 0).records))
    assert {rb.CODEC_NAMES[found.codec] for found in stored} == {codec}
    for reader in clients.ALL:
        need_codec(reader, codec)
        found = reader.read(broker.bootstrap, name, 50)
        assert found == sent, reader.name
        assert [message.offset for message in found] == list(range(50))


def test_nulls_empties_and_odd_headers_come_back_as_they_were(
    broker: Broker, wire: Wire, client: Client
) -> None:
    name = create_topic(wire)
    now = now_ms()
    sent = [
        Message(None, b"tombstone", now),
        Message(b"", b"", now),
        Message(b"no key", None, now),
        Message(b"v", b"k", now, (("ä", b"\x00\xff"), ("empty", b""), ("twice", b"1"))),
        Message(b"v", b"k", now, (("twice", b"1"), ("twice", b"2"))),
        Message(b"last and empty", None, now),
        Message(None, b"null and last", now),
    ]
    client.write(broker.bootstrap, name, sent)
    for reader in clients.ALL:
        assert reader.read(broker.bootstrap, name, len(sent)) == sent, reader.name


def test_an_idempotent_producer_writes_each_record_once(
    broker: Broker, wire: Wire, client: Client
) -> None:
    name = create_topic(wire)
    requests.init_producer(wire)
    for turn in range(3):
        sent = messages(200, start=200 * turn)
        offsets = client.write(broker.bootstrap, name, sent, idempotent=True)
        assert offsets == list(range(200 * turn, 200 * turn + 200))
    values = [record.value for record in requests.read_all(wire, name)]
    assert [value.split(b" ")[1] for value in values] == [b"%d" % index for index in range(600)]
    stored = list(rb.batches(requests.fetch(wire, name, 0).records))
    assert all(found.producer_id >= 0 and found.base_sequence >= 0 for found in stored)


@pytest.mark.parametrize("acks", [0, 1])
def test_fewer_acknowledgements_work_as_well(
    broker: Broker, wire: Wire, client: Client, acks: int
) -> None:
    name = create_topic(wire)
    sent = messages(20)
    client.write(broker.bootstrap, name, sent, acks=acks)
    assert client.read(broker.bootstrap, name, 20) == sent


def test_reading_starts_where_it_is_told_to(broker: Broker, wire: Wire, client: Client) -> None:
    name = create_topic(wire, partitions=3)
    for partition in range(3):
        sent = messages(30, start=100 * partition)
        client.write(broker.bootstrap, name, sent, partition=partition)
        for start in (0, 1, 17, 29):
            found = client.read(
                broker.bootstrap, name, 30 - start, partition=partition, start=start
            )
            assert found == sent[start:]
    assert client.watermarks(broker.bootstrap, name, 2) == (0, 30)


def test_watermarks_follow_deleted_records(broker: Broker, wire: Wire, client: Client) -> None:
    name = create_topic(wire)
    sent = messages(10)
    client.write(broker.bootstrap, name, sent)
    requests.delete_records(wire, name, 4)
    assert client.watermarks(broker.bootstrap, name) == (4, 10)
    assert client.read(broker.bootstrap, name, 6, start=4) == sent[4:]


def test_offsets_by_time(broker: Broker, wire: Wire, client: Client) -> None:
    name = create_topic(wire)
    sent = messages(10)
    client.write(broker.bootstrap, name, sent)
    first = sent[0].timestamp
    assert client.offset_for_time(broker.bootstrap, name, first) == 0
    assert client.offset_for_time(broker.bootstrap, name, first + 7) == 7
    # librdkafka answers the end where others answer nothing.
    assert client.offset_for_time(broker.bootstrap, name, first + 1000) in (None, 10)


def test_large_records(broker: Broker, wire: Wire, client: Client) -> None:
    name = create_topic(wire, configs={"max.message.bytes": str(12 << 20)})
    now = now_ms()
    sent = [
        Message(b"small", None, now),
        Message(os.urandom(5 << 20), b"five megabytes", now),
        Message(os.urandom(1 << 20), b"one megabyte", now),
        Message(b"small", None, now),
    ]
    client.write(broker.bootstrap, name, sent)
    for reader in clients.ALL:
        assert reader.read(broker.bootstrap, name, len(sent)) == sent, reader.name


def test_a_reader_with_small_limits_still_gets_a_large_record(broker: Broker, wire: Wire) -> None:
    # C179
    from confluent_kafka import TopicPartition

    name = create_topic(wire, configs={"max.message.bytes": str(5 << 20)})
    confluent = clients.ConfluentKafka()
    now = now_ms()
    sent = [
        Message(b"s", None, now),
        Message(b"x" * (3 << 20), None, now),
        Message(b"e", None, now),
    ]
    confluent.write(broker.bootstrap, name, sent)
    consumer = confluent.consumer(
        broker.bootstrap,
        **{"fetch.message.max.bytes": 1000, "fetch.max.bytes": 4000, "message.max.bytes": 2000},
    )
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        found = []
        end = time.monotonic() + 30
        while len(found) < 3 and time.monotonic() < end:
            found += [message.value() for message in consumer.consume(3, 0.5)]
        assert found == [message.value for message in sent]
    finally:
        consumer.close()


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_clients_reset_when_their_offset_is_gone(broker: Broker, wire: Wire, reset: str) -> None:
    # C188
    from confluent_kafka import TopicPartition

    name = create_topic(wire)
    confluent = clients.ConfluentKafka()
    for turn in range(10):
        requests.produce_values(wire, name, [b"%d" % turn])
    requests.delete_records(wire, name, 5)
    for start in (2, 5000):
        consumer = confluent.consumer(broker.bootstrap, **{"auto.offset.reset": reset})
        try:
            consumer.assign([TopicPartition(name, 0, start)])
            found: list[bytes] = []
            end = time.monotonic() + 30
            while not found and time.monotonic() < end:
                found += [m.value() for m in consumer.consume(10, 0.3) if m.error() is None]
                if reset == "latest":
                    requests.produce_values(wire, name, [b"late"])
            assert found[0] == (b"5" if reset == "earliest" else b"late")
        finally:
            consumer.close()


def test_protocol_debugging_of_librdkafka_shows_no_error(broker: Broker, wire: Wire) -> None:
    # C004
    import logging

    from confluent_kafka import Producer

    name = create_topic(wire)
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger = logging.getLogger("librdkafka of the test")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(Keep())
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "debug": "protocol,feature,broker"}, logger=logger
    )
    producer.produce(name, b"v")
    assert producer.flush(20) == 0
    producer.poll(0)
    assert not [line for line in lines if "PROTOERR" in line or "PARSE" in line]
    assert lines


@pytest.mark.parametrize("api_version", [(0, 11), (1, 0), (2, 1), (2, 5), (3, 0), None])
def test_kafka_python_with_fixed_versions(
    broker: Broker, wire: Wire, api_version: tuple[int, ...] | None
) -> None:
    # C021
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    name = create_topic(wire)
    settings = {} if api_version is None else {"api_version": api_version}
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, enable_idempotence=False, **settings
    )
    try:
        assert producer.send(name, b"v").get(timeout=20).offset == 0
    finally:
        producer.close(timeout=20)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, enable_auto_commit=False, **settings
    )
    try:
        where = TopicPartition(name, 0)
        consumer.assign([where])
        consumer.seek_to_beginning(where)
        end = time.monotonic() + 20
        found: list[bytes] = []
        while not found and time.monotonic() < end:
            for records in consumer.poll(timeout_ms=200).values():
                found += [record.value for record in records]
        assert found == [b"v"]
    finally:
        consumer.close()


def test_the_admin_client_of_confluent_kafka(broker: Broker, wire: Wire) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        NewTopic,
        OffsetSpec,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    name = requests.new_topic_name()
    admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "5555"})])[name].result(30)
    requests.wait_for_leaders(wire, name, 2)
    admin.create_partitions([NewPartitions(name, 3)])[name].result(30)
    requests.wait_for_leaders(wire, name, 3)
    listed = admin.list_topics(name, timeout=30).topics[name]
    assert sorted(listed.partitions) == [0, 1, 2]
    resource = ConfigResource(ResourceType.TOPIC, name)
    described = admin.describe_configs([resource])[resource].result(30)
    assert described["retention.ms"].value == "5555"
    change = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[
            ConfigEntry("retention.ms", "7777", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin.incremental_alter_configs([change])[change].result(30)
    described = {}
    end = time.monotonic() + 20
    while time.monotonic() < end:
        described = admin.describe_configs([resource])[resource].result(30)
        if described["retention.ms"].value == "7777":
            break
    assert described["retention.ms"].value == "7777"
    clients.ConfluentKafka().write(broker.bootstrap, name, messages(10))
    where = TopicPartition(name, 0)
    offsets = admin.list_offsets({where: OffsetSpec.latest()})[where].result(30)
    assert offsets.offset == 10
    newest = admin.list_offsets({where: OffsetSpec.max_timestamp()})[where].result(30)
    assert newest.offset == 9
    deleted = admin.delete_records([TopicPartition(name, 0, 4)])
    assert next(iter(deleted.values())).result(30).low_watermark == 4
    cluster = admin.describe_cluster().result(30)
    assert [node.port for node in cluster.nodes] == [broker.port]
    admin.delete_topics([name])[name].result(30)


def test_the_admin_client_of_kafka_python(broker: Broker, wire: Wire) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import NewTopic

    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        name = requests.new_topic_name()
        admin.create_topics([NewTopic(name=name, num_partitions=2, replication_factor=1)])
        requests.wait_for_leaders(wire, name, 2)
        assert name in admin.list_topics()
        (described,) = admin.describe_topics([name])
        assert len(described["partitions"]) == 2
        assert len(admin.describe_cluster()["brokers"]) == 1
        admin.delete_topics([name])
    finally:
        admin.close()
