"""franz-go, sarama, kafka-go and kafkajs write, and read what others wrote."""

import os

import pytest

from tests.support import clients, foreign, requests
from tests.support import record_batches as rb
from tests.support.clients import Message
from tests.support.fixtures import Broker
from tests.support.foreign import ForeignClient
from tests.support.odradek import OdradekBroker
from tests.support.requests import create_topic, now_ms
from tests.support.wire import Wire

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
READERS = [client for client in foreign.ALL if not client.reads_in_groups]
SARAMA_VERSIONS = ("1.0.0", "2.1.0", "2.8.0", "3.6.0")


@pytest.fixture(params=foreign.ALL, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> ForeignClient:
    found: ForeignClient = request.param
    return found


@pytest.fixture(params=READERS, ids=lambda client: client.name)
def reader(request: pytest.FixtureRequest) -> ForeignClient:
    found: ForeignClient = request.param
    return found


def messages(count: int, *, start: int = 0, size: int = 100) -> list[Message]:
    now = now_ms()
    return [
        Message(
            value=b"value %d " % (start + index) + b"." * size,
            key=b"key %d" % index,
            timestamp=now + index,
            headers=(("trace", b"%d" % index), ("b", b"\x00\xff")),
        )
        for index in range(count)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_what_it_writes_others_read(
    broker: Broker, wire: Wire, client: ForeignClient, codec: str
) -> None:
    name = create_topic(wire)
    sent = messages(50)
    assert client.write(broker.bootstrap, name, sent, codec=codec) == list(range(50))
    stored = list(rb.batches(requests.fetch(wire, name, 0).records))
    assert {rb.CODEC_NAMES[found.codec] for found in stored} == {codec}
    assert clients.ConfluentKafka().read(broker.bootstrap, name, 50) == sent


@pytest.mark.parametrize("codec", CODECS)
def test_it_reads_what_others_write(
    broker: Broker, wire: Wire, reader: ForeignClient, codec: str
) -> None:
    name = create_topic(wire)
    sent = messages(50)
    for writer in (clients.ConfluentKafka(), clients.AioKafka()):
        writer.write(broker.bootstrap, name, sent, codec=codec)
    found = reader.read(broker.bootstrap, name, 100)
    assert found == sent + sent
    assert [message.offset for message in found] == list(range(100))


def plain(headers: tuple[tuple[str, bytes | None], ...]) -> list[tuple[str, bytes]]:
    return [(name, value or b"") for name, value in headers]


def test_nulls_and_empties_come_back_as_they_were(
    broker: Broker, wire: Wire, client: ForeignClient
) -> None:
    # C178
    name = create_topic(wire)
    now = now_ms()
    sent = [
        Message(None, b"tombstone", now),
        Message(b"no key", None, now),
        Message(b"v", b"k", now, (("ä", b"\x00\xff"), ("empty", b""))),
        Message(b"v", b"k", now, (("twice", b"1"), ("twice", b"2"))),
        Message(b"", b"last and empty", now),
    ]
    client.write(broker.bootstrap, name, sent)
    assert clients.ConfluentKafka().read(broker.bootstrap, name, len(sent)) == sent
    for other in READERS:
        found = other.read(broker.bootstrap, name, len(sent))
        assert [one.key for one in found] == [one.key for one in sent], other.name
        assert [one.value or None for one in found] == [one.value or None for one in sent]
        # Go cannot tell an empty header from a null one everywhere.
        assert [plain(one.headers) for one in found] == [plain(one.headers) for one in sent]


def test_batches_that_end_in_nothing_are_read_to_their_end(
    broker: Broker, wire: Wire, reader: ForeignClient
) -> None:
    # C178
    name = create_topic(wire)
    now = now_ms()
    empty, null = rb.Record(b"", b"", now), rb.Record(b"", None, now)
    full = rb.Record(b"k", b"v", now)
    for batch in ([full] * 9 + [empty], [empty] * 10, [empty], [full] * 9 + [null]):
        requests.produce(wire, name, rb.batch(batch))
    found = reader.read(broker.bootstrap, name, 31)
    assert [message.offset for message in found] == list(range(31))


@pytest.mark.parametrize("name", ["franz-go", "sarama", "kafkajs"])
def test_an_idempotent_producer_writes_each_record_once(
    broker: Broker, wire: Wire, name: str
) -> None:
    client = ForeignClient(name)
    topic = create_topic(wire)
    requests.init_producer(wire)
    for turn in range(3):
        sent = messages(200, start=200 * turn)
        offsets = client.write(broker.bootstrap, topic, sent, idempotent=True)
        assert offsets == list(range(200 * turn, 200 * turn + 200))
    stored = list(rb.batches(requests.fetch(wire, topic, 0).records))
    assert all(found.producer_id >= 0 and found.base_sequence >= 0 for found in stored)
    assert len({found.producer_id for found in stored}) == 3


@pytest.mark.parametrize("acks", [0, 1])
def test_fewer_acknowledgements_work_as_well(
    broker: Broker, wire: Wire, client: ForeignClient, acks: int
) -> None:
    name = create_topic(wire)
    sent = messages(20)
    offsets = client.write(broker.bootstrap, name, sent, acks=acks)
    if acks:
        assert offsets == list(range(20))
    assert clients.ConfluentKafka().read(broker.bootstrap, name, 20) == sent


def test_reading_starts_where_it_is_told_to(
    broker: Broker, wire: Wire, reader: ForeignClient
) -> None:
    name = create_topic(wire, partitions=3)
    for partition in (0, 2):
        sent = messages(30, start=100 * partition)
        reader.write(broker.bootstrap, name, sent, partition=partition)
        for start in (1, 29):
            found = reader.read(
                broker.bootstrap, name, 30 - start, partition=partition, start=start
            )
            assert found == sent[start:]


def test_large_records(broker: Broker, wire: Wire, reader: ForeignClient) -> None:
    name = create_topic(wire, configs={"max.message.bytes": str(12 << 20)})
    now = now_ms()
    sent = [
        Message(b"small", None, now),
        Message(os.urandom(5 << 20), b"five megabytes", now),
        Message(b"small", None, now),
    ]
    for message in sent:
        reader.write(broker.bootstrap, name, [message])
    assert reader.read(broker.bootstrap, name, 3) == sent


def test_the_first_write_makes_the_topic(
    shared_odradek: OdradekBroker, client: ForeignClient
) -> None:
    # C176: no record is lost with the client's own few retries. (On Apache Kafka those of kafka-go
    # are used up before a new topic has its leader, and kafkajs writes some records twice.)
    names = [requests.new_topic_name() for _ in range(100)]
    message = Message(b"first", None, now_ms())
    offsets = client.write_each(shared_odradek.bootstrap, names, message, "-auto-create")
    assert offsets == [0] * 100
    with Wire(shared_odradek.address) as wire:
        for name in names:
            assert [record.value for record in requests.read_all(wire, name)] == [b"first"]


@pytest.mark.parametrize("version", SARAMA_VERSIONS)
def test_sarama_set_to_an_old_version(broker: Broker, wire: Wire, version: str) -> None:
    client = ForeignClient("sarama")
    name = create_topic(wire)
    sent = messages(20)
    told = client.write(broker.bootstrap, name, sent, more=["-version", version])
    assert told == list(range(20))
    assert client.read(broker.bootstrap, name, 20, more=["-version", version]) == sent
