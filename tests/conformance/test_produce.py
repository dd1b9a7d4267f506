"""Produce: what is stored as sent, what is refused, and that refused means nothing is stored."""

import uuid
from typing import Any

import pytest

from tests.support import record_batches as rb
from tests.support import requests
from tests.support.apache import ApacheKafka
from tests.support.odradek import OdradekBroker
from tests.support.record_batches import Record, batch
from tests.support.requests import create_topic, fetch, now_ms, produce, read_all, try_produce
from tests.support.wire import Wire, WireError

Broker = ApacheKafka | OdradekBroker
CORRUPT, UNKNOWN_TOPIC, MESSAGE_TOO_LARGE, INVALID_REQUIRED_ACKS = 2, 3, 10, 21
INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION, INVALID_RECORD, UNKNOWN_TOPIC_ID = 32, 76, 87, 100
VALUES = [b"a", b"b", b"c"]
NOW = now_ms()


def strict_topic(broker: Broker, wire: Wire, **configs: str) -> str:
    """A topic whose batches are walked record by record, as Apache Kafka always does."""
    given = {key.replace("_", "."): value for key, value in configs.items()}
    if broker.name == "odradek":
        given["odradek.produce.validation"] = "strict"
    return create_topic(wire, configs=given)


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends(wire: Wire, version: int) -> None:
    name = create_topic(wire)
    topic = requests.topic_id(wire, name) if version >= 13 else name
    data = batch(VALUES, timestamp=NOW)
    for turn in range(2):
        answer = try_produce(wire, topic, data, version=version)
        assert (answer.error_code, answer.base_offset) == (0, 3 * turn)
        assert answer.log_append_time == -1
        assert getattr(answer, "log_start_offset", 0) == 0
        assert getattr(answer, "record_errors", []) == []
        assert getattr(answer, "error_message", None) is None
    assert [(r.offset, r.value) for r in read_all(wire, name)] == list(enumerate(VALUES * 2))


@pytest.mark.parametrize("codec", range(5), ids=rb.CODEC_NAMES.values())
def test_a_batch_is_stored_as_sent_but_for_offset_and_epoch(wire: Wire, codec: int) -> None:
    name = create_topic(wire)
    records = [
        Record(b"k%d" % index, b"v" * 50, NOW + index, (("h", b"1"), ("n", None)))
        for index in range(20)
    ]
    data = batch(records, codec=codec)
    for turn in range(3):
        assert produce(wire, name, data) == 20 * turn
    stored = fetch(wire, name, 20).records[: len(data)]
    (found,) = rb.batches(stored)
    assert (found.base_offset, found.partition_leader_epoch >= 0) == (20, True)
    assert stored[16:] == data[16:]
    expected = [(20 + i, r.key, r.value, r.timestamp, r.headers) for i, r in enumerate(records)]
    assert [(r.offset, r.key, r.value, r.timestamp, r.headers) for r in found.records()] == expected


def test_raw_snappy_is_as_good_as_framed(wire: Wire) -> None:
    name = create_topic(wire)
    for xerial in (True, False):
        produce(wire, name, batch(VALUES, codec=rb.SNAPPY, xerial=xerial, timestamp=NOW))
    assert [record.value for record in read_all(wire, name)] == VALUES * 2


HEADER_FAULTS: list[tuple[str, dict[str, Any], set[int]]] = [
    ("a wrong checksum", {"crc": 1}, {CORRUPT}),
    ("a count one too high", {"record_count": 4}, {CORRUPT, INVALID_RECORD}),
    ("a count one too low", {"record_count": 2}, {CORRUPT, INVALID_RECORD}),
    ("a last offset delta too high", {"last_offset_delta": 5}, {CORRUPT, INVALID_RECORD}),
    ("a length beyond the bytes", {"batch_length": 500}, {CORRUPT, INVALID_RECORD}),
    ("a length short of the bytes", {"batch_length": 60}, {CORRUPT, INVALID_RECORD}),
    ("a length below a header's", {"batch_length": 20}, {CORRUPT, INVALID_RECORD}),
    ("no length", {"batch_length": 0}, {CORRUPT, INVALID_RECORD}),
    ("a negative length", {"batch_length": -5}, {CORRUPT, INVALID_RECORD}),
    ("magic 3", {"magic": 3}, {CORRUPT, INVALID_RECORD}),
    ("magic 1", {"magic": 1}, {CORRUPT, INVALID_RECORD}),
    ("the control bit", {"attributes": rb.CONTROL}, {INVALID_RECORD}),
    (
        "the control bit of a producer",
        {
            "attributes": rb.CONTROL,
            "producer_id": 5,
            "producer_epoch": 0,
            "base_sequence": 0,
        },
        {INVALID_RECORD},
    ),
    (
        "a negative base sequence",
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": -3},
        {INVALID_RECORD},
    ),
]


@pytest.mark.parametrize(
    ("header", "error_codes"),
    [(header, codes) for _, header, codes in HEADER_FAULTS],
    ids=[title.replace(" ", "_") for title, _, _ in HEADER_FAULTS],
)
def test_a_batch_with_a_bad_header_is_refused(
    wire: Wire, header: dict[str, Any], error_codes: set[int]
) -> None:
    # C027
    name = create_topic(wire)
    produce(wire, name, batch(VALUES, timestamp=NOW))
    answer = try_produce(wire, name, batch(VALUES, timestamp=NOW, **header))
    assert answer.error_code in error_codes, answer
    assert answer.base_offset == -1
    assert produce(wire, name, batch(VALUES, timestamp=NOW)) == 3


def test_two_batches_in_one_entry_are_refused(wire: Wire) -> None:
    name = create_topic(wire)
    one = batch(VALUES, timestamp=NOW)
    assert try_produce(wire, name, one + one).error_code == INVALID_RECORD
    assert requests.end_offset(wire, name) == 0


def test_no_batch_at_all_is_refused(wire: Wire) -> None:
    name = create_topic(wire)
    assert try_produce(wire, name, b"").error_code in (CORRUPT, INVALID_RECORD)
    for payload in (batch([], timestamp=NOW), batch([], timestamp=NOW, last_offset_delta=0)):
        assert try_produce(wire, name, payload).error_code in (CORRUPT, INVALID_RECORD)
    assert requests.end_offset(wire, name) == 0


def test_the_base_offset_of_a_client_does_not_count(wire: Wire) -> None:
    name = create_topic(wire)
    answer = try_produce(wire, name, batch(VALUES, timestamp=NOW, base_offset=777))
    assert answer.error_code in (0, INVALID_RECORD)
    assert answer.base_offset in (0, -1)
    assert requests.end_offset(wire, name) in (0, 3)


PAYLOAD_FAULTS: list[tuple[str, dict[str, Any], set[int]]] = [
    (
        "count and delta one too high",
        {"record_count": 4, "last_offset_delta": 3},
        {CORRUPT, INVALID_RECORD},
    ),
    (
        "count and delta one too low",
        {"record_count": 2, "last_offset_delta": 1},
        {CORRUPT, INVALID_RECORD},
    ),
    ("garbage behind the records", {"payload": None}, {CORRUPT, INVALID_RECORD}),
    ("garbage for gzip", {"codec": rb.GZIP, "payload": b"garbage"}, {-1, CORRUPT, INVALID_RECORD}),
    ("garbage for zstd", {"codec": rb.ZSTD, "payload": b"garbage"}, {-1, CORRUPT, INVALID_RECORD}),
    (
        "a record longer than its bytes",
        {
            "payload": b"\x0e\x00\x00\x00\x01\x02a\x01",
            "record_count": 1,
            "last_offset_delta": 0,
        },
        {CORRUPT, INVALID_RECORD},
    ),
]


@pytest.mark.parametrize(
    ("header", "error_codes"),
    [(header, codes) for _, header, codes in PAYLOAD_FAULTS],
    ids=[title.replace(" ", "_") for title, _, _ in PAYLOAD_FAULTS],
)
def test_strict_validation_refuses_what_only_a_walk_can_see(
    broker: Broker, wire: Wire, header: dict[str, Any], error_codes: set[int]
) -> None:
    name = strict_topic(broker, wire)
    header = dict(header)
    if "payload" in header and header["payload"] is None:
        records = [Record(value=value, timestamp=NOW) for value in VALUES]
        header["payload"] = rb.encode_records(records, NOW) + b"zz"
    answer = try_produce(wire, name, batch(VALUES, timestamp=NOW, **header))
    assert answer.error_code in error_codes, answer
    assert requests.end_offset(wire, name) == 0


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(wire: Wire, codec: int) -> None:
    name = create_topic(wire)
    answer = try_produce(wire, name, batch(VALUES, timestamp=NOW, attributes=codec))
    # Apache Kafka stumbles into UNKNOWN_SERVER_ERROR.
    assert answer.error_code in (-1, CORRUPT, UNSUPPORTED_COMPRESSION, INVALID_RECORD)
    assert requests.end_offset(wire, name) == 0


def test_zstd_is_known_from_version_7_on(wire: Wire) -> None:
    name = create_topic(wire)
    data = batch(VALUES, codec=rb.ZSTD, timestamp=NOW)
    assert try_produce(wire, name, data, version=6).error_code == UNSUPPORTED_COMPRESSION
    assert try_produce(wire, name, data, version=7).error_code == 0


def test_records_missing_from_an_entry_are_no_reason_to_hang(
    odradek_broker: OdradekBroker,
) -> None:
    # Apache Kafka 4.4 never answers this; we answer or close.
    with Wire(odradek_broker.address, timeout=10) as wire:
        name = create_topic(wire)
        try:
            assert try_produce(wire, name, None).error_code in (CORRUPT, INVALID_RECORD)
        except WireError:
            return
        assert requests.end_offset(wire, name) == 0


@pytest.mark.parametrize("acks", [2, -2, 77])
def test_other_acks_are_refused(wire: Wire, acks: int) -> None:
    name = create_topic(wire)
    answer = try_produce(wire, name, batch(VALUES, timestamp=NOW), acks=acks)
    assert answer.error_code == INVALID_REQUIRED_ACKS
    assert requests.end_offset(wire, name) == 0


def test_one_acknowledgement_works_as_well(wire: Wire) -> None:
    name = create_topic(wire)
    assert produce(wire, name, batch(VALUES, timestamp=NOW), acks=1) == 0


@pytest.mark.parametrize("version", [3, 5, 8, 9, 12])
def test_unknown_partitions_are_told(wire: Wire, version: int) -> None:
    data = batch(VALUES, timestamp=NOW)
    name = create_topic(wire)
    for topic, partition in (
        (requests.new_topic_name(), 0),
        (name, 7),
        (name, -1),
    ):
        answer = try_produce(wire, topic, data, partition=partition, version=version)
        assert (answer.index, answer.error_code) == (partition, UNKNOWN_TOPIC)
        assert answer.base_offset == -1


def test_an_unknown_topic_id_is_told(wire: Wire) -> None:
    data = batch(VALUES, timestamp=NOW)
    answer = try_produce(wire, uuid.uuid4(), data, version=13)
    assert answer.error_code == UNKNOWN_TOPIC_ID


def test_good_and_bad_partitions_of_a_request_are_judged_apart(wire: Wire) -> None:
    name = create_topic(wire, partitions=3)
    good, bad = batch(VALUES, timestamp=NOW), batch(VALUES, timestamp=NOW, crc=7)
    answer = wire.request(
        "produce",
        9,
        acks=-1,
        timeout=5000,
        topic_data=[
            {
                "name": name,
                "partition_data": [
                    {"index": 0, "records": good},
                    {"index": 1, "records": bad},
                    {"index": 2, "records": good},
                    {"index": 9, "records": good},
                ],
            }
        ],
    )
    found = {p.index: p.error_code for p in answer.responses[0].partition_responses}
    assert found == {0: 0, 1: CORRUPT, 2: 0, 9: UNKNOWN_TOPIC}
    assert [requests.end_offset(wire, name, partition=index) for index in range(3)] == [3, 0, 3]


def test_fifty_partitions_in_one_request(wire: Wire) -> None:
    name = create_topic(wire, partitions=50)
    answer = wire.request(
        "produce",
        9,
        acks=-1,
        timeout=5000,
        topic_data=[
            {
                "name": name,
                "partition_data": [
                    {"index": index, "records": batch([b"%d" % index], timestamp=NOW)}
                    for index in range(50)
                ],
            }
        ],
    )
    found = answer.responses[0].partition_responses
    assert sorted((p.index, p.error_code, p.base_offset) for p in found) == [
        (index, 0, 0) for index in range(50)
    ]
    for index in (0, 17, 49):
        assert [r.value for r in read_all(wire, name, partition=index)] == [b"%d" % index]


# -------------------------------------------------------------------------------- timestamps


def test_a_timestamp_too_far_ahead_is_refused_record_by_record(wire: Wire) -> None:
    name = create_topic(wire)
    records = [
        Record(value=b"a", timestamp=NOW),
        Record(value=b"b", timestamp=now_ms() + 3_700_000),
    ]
    answer = try_produce(wire, name, batch(records))
    assert (answer.error_code, answer.base_offset) == (INVALID_TIMESTAMP, -1)
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert answer.record_errors[0].batch_index_error_message
    assert answer.error_message
    assert requests.end_offset(wire, name) == 0
    assert produce(wire, name, batch([b"a"], timestamp=now_ms() + 3_500_000)) == 0


def test_a_timestamp_too_old_is_refused_where_a_limit_is_set(wire: Wire) -> None:
    name = create_topic(wire, configs={"message.timestamp.before.max.ms": "60000"})
    answer = try_produce(wire, name, batch([b"a"], timestamp=now_ms() - 120_000))
    assert answer.error_code == INVALID_TIMESTAMP
    assert produce(wire, name, batch([b"a"], timestamp=now_ms() - 30_000)) == 0


def test_a_missing_max_timestamp_is_found_in_the_records(wire: Wire) -> None:
    # Old Sarama leaves it at -1, which would break retention.
    name = create_topic(wire)
    records = [
        Record(value=b"a", timestamp=NOW),
        Record(value=b"b", timestamp=NOW + 9),
        Record(value=b"c", timestamp=NOW + 4),
    ]
    for codec in (rb.NONE, rb.GZIP):
        produce(wire, name, batch(records, codec=codec, max_timestamp=-1))
    for found in rb.batches(fetch(wire, name, 0).records):
        assert found.is_crc_right
        assert (found.base_timestamp, found.max_timestamp) == (NOW, NOW + 9)
    assert requests.list_offset(wire, name, NOW + 5).offset == 1


def test_log_append_time_is_stamped_and_answered(wire: Wire) -> None:
    name = create_topic(wire, configs={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    for codec in range(5):
        # The limits of timestamps do not apply: the client's are not used.
        data = batch(VALUES, codec=codec, timestamp=now_ms() + 7_000_000)
        answer = try_produce(wire, name, data)
        assert answer.error_code == 0
        assert before <= answer.log_append_time <= now_ms()
        (found,) = rb.batches(fetch(wire, name, 3 * codec).records)
        assert found.is_crc_right
        assert found.codec == codec
        assert found.attributes & rb.LOG_APPEND_TIME
        assert found.max_timestamp == answer.log_append_time
        assert [record.value for record in found.records()] == VALUES


def test_create_time_topics_clear_the_append_time_bit(wire: Wire) -> None:
    name = create_topic(wire)
    produce(wire, name, batch(VALUES, timestamp=NOW, attributes=rb.LOG_APPEND_TIME))
    (found,) = rb.batches(fetch(wire, name, 0).records)
    assert found.is_crc_right
    assert [record.timestamp for record in found.records()] == [NOW] * 3


# -------------------------------------------------------------------------------- topic rules


def test_max_message_bytes_bounds_a_batch(wire: Wire) -> None:
    name = create_topic(wire, configs={"max.message.bytes": "2000"})
    small, large = batch([b"x" * 1900], timestamp=NOW), batch([b"x" * 2000], timestamp=NOW)
    assert produce(wire, name, small) == 0
    answer = try_produce(wire, name, large)
    assert (answer.error_code, answer.base_offset) == (MESSAGE_TOO_LARGE, -1)
    requests.alter_config(wire, name, "max.message.bytes", "3000")
    for _ in range(100):
        if try_produce(wire, name, large).error_code == 0:
            break
    assert requests.end_offset(wire, name) == 2


def test_compacted_topics_refuse_records_without_a_key(wire: Wire) -> None:
    name = create_topic(wire, configs={"cleanup.policy": "compact"})
    records = [
        Record(b"k", b"v", NOW),
        Record(None, b"v", NOW),
        Record(b"k", None, NOW),
        Record(None, b"v", NOW),
    ]
    for codec in range(5):
        answer = try_produce(wire, name, batch(records, codec=codec))
        assert (answer.error_code, answer.base_offset) == (INVALID_RECORD, -1)
        assert [error.batch_index for error in answer.record_errors] == [1, 3]
        assert all(error.batch_index_error_message for error in answer.record_errors)
        assert answer.error_message
    assert requests.end_offset(wire, name) == 0
    for codec in range(5):
        produce(wire, name, batch([records[0], records[2]], codec=codec))
    assert len(read_all(wire, name)) == 10


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_converts_to_its_compression_type(wire: Wire, target: str) -> None:
    name = create_topic(wire, configs={"compression.type": target})
    expected = []
    for codec in range(5):
        records = [
            Record(b"k%d" % index, b"value %d" % codec * 30, NOW + index, (("h", b"x"),))
            for index in range(10)
        ]
        produce(wire, name, batch(records, codec=codec))
        expected += [(r.key, r.value, r.timestamp, r.headers) for r in records]
    wanted = 0 if target == "uncompressed" else list(rb.CODEC_NAMES.values()).index(target)
    stored = list(rb.batches(fetch(wire, name, 0).records))
    assert [found.codec for found in stored] == [wanted] * 5
    assert all(found.is_crc_right for found in stored)
    assert [(r.key, r.value, r.timestamp, r.headers) for r in read_all(wire, name)] == expected


def test_conversion_keeps_producer_and_sequence(wire: Wire) -> None:
    name = create_topic(wire, configs={"compression.type": "zstd"})
    producer_id, epoch = requests.init_producer(wire)
    for turn in range(3):
        data = batch(
            VALUES,
            codec=rb.GZIP,
            timestamp=NOW,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=3 * turn,
        )
        assert produce(wire, name, data) == 3 * turn
    found = list(rb.batches(fetch(wire, name, 0).records))
    assert [(f.producer_id, f.producer_epoch, f.base_sequence) for f in found] == [
        (producer_id, epoch, 0),
        (producer_id, epoch, 3),
        (producer_id, epoch, 6),
    ]


@pytest.mark.parametrize("codec", range(5), ids=rb.CODEC_NAMES.values())
def test_plain_stays_plain_and_each_codec_stays(wire: Wire, codec: int) -> None:
    # C174: under `producer` nobody changes the codec of stored batches.
    name = create_topic(wire, configs={"compression.type": "producer"})
    produce(wire, name, batch(VALUES, codec=codec, timestamp=NOW))
    (found,) = rb.batches(fetch(wire, name, 0).records)
    assert found.codec == codec


@pytest.mark.parametrize(
    "records",
    [
        [Record(b"k", b"v", NOW)] * 9 + [Record(b"", b"", NOW)],
        [Record(b"", b"", NOW)] * 10,
        [Record(b"", b"", NOW)],
        [Record(b"k", b"v", NOW)] * 9 + [Record(None, None, NOW)],
        [Record(None, None, NOW)] * 10,
    ],
    ids=["last_empty", "all_empty", "one_empty", "last_null", "all_null"],
)
def test_empty_and_null_values_are_kept(wire: Wire, records: list[Record]) -> None:
    # C178
    name = create_topic(wire)
    for codec in range(5):
        produce(wire, name, batch(records, codec=codec))
    found = read_all(wire, name)
    assert [(r.key, r.value) for r in found] == [(r.key, r.value) for r in records] * 5
    for stored in rb.batches(fetch(wire, name, 0).records):
        assert stored.last_offset_delta == len(records) - 1


# ------------------------------------------------------------------------------------ acks=0


def test_no_acknowledgement_means_no_answer(wire: Wire) -> None:
    # C019
    name = create_topic(wire)
    for turn in range(100):
        wire.send(
            "produce",
            9,
            answered=False,
            **requests.produce_fields(name, 0, batch([b"%d" % turn], timestamp=NOW), acks=0),
        )
        if turn % 10 == 0:
            assert wire.request("metadata", 9, topics=[]).brokers
    assert [r.value for r in read_all(wire, name)] == [b"%d" % turn for turn in range(100)]


@pytest.mark.parametrize("fault", ["too large", "unknown topic", "unknown partition", "corrupt"])
def test_a_failure_without_acknowledgement_closes_the_connection(
    broker: Broker, wire: Wire, fault: str
) -> None:
    name, partition = create_topic(wire), 0
    data = batch(VALUES, timestamp=NOW)
    if fault == "too large":
        data = batch([b"x" * 1_100_000], timestamp=NOW)
    elif fault == "unknown topic":
        name = requests.new_topic_name()
    elif fault == "unknown partition":
        partition = 7
    else:
        data = batch(VALUES, timestamp=NOW, crc=1)
    with Wire(broker.address) as other:
        other.send(
            "produce",
            9,
            answered=False,
            **requests.produce_fields(name, partition, data, acks=0),
        )
        assert other.is_closed_by_peer()
    assert wire.request("metadata", 9, topics=[]).brokers


# ------------------------------------------------------------------------------- pipelining


def test_pipelined_requests_are_answered_in_order(wire: Wire) -> None:
    name = create_topic(wire)
    for turn in range(200):
        data = batch([b"%d" % turn], timestamp=NOW)
        wire.send("produce", 9, **requests.produce_fields(name, 0, data))
        if turn % 7 == 0:
            wire.send("metadata", 9, topics=[])
    offsets = []
    for turn in range(200):
        answer = wire.receive()
        offsets.append(answer.responses[0].partition_responses[0].base_offset)
        if turn % 7 == 0:
            assert wire.receive().brokers
    assert offsets == list(range(200))
    assert [r.value for r in read_all(wire, name)] == [b"%d" % turn for turn in range(200)]


def test_large_batches_on_many_connections_do_not_mix(broker: Broker, wire: Wire) -> None:
    name = create_topic(wire, partitions=4, configs={"max.message.bytes": "4000000"})
    writers = [Wire(broker.address) for _ in range(4)]
    try:
        for turn in range(5):
            for index, writer in enumerate(writers):
                value = bytes([index]) * (500_000 + turn)
                data = batch([value], timestamp=NOW)
                writer.send("produce", 9, **requests.produce_fields(name, index, data))
        for writer in writers:
            for turn in range(5):
                found = writer.receive().responses[0].partition_responses[0]
                assert (found.error_code, found.base_offset) == (0, turn)
    finally:
        for writer in writers:
            writer.close()
    for index in range(4):
        found = read_all(wire, name, partition=index)
        assert [r.value for r in found] == [bytes([index]) * (500_000 + t) for t in range(5)]
