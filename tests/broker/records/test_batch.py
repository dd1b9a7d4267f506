"""Records of batches that Kafka's own classes and real clients wrote (tests/golden/batches)."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.records.batch import iter_records, scan_records
from broker.records.builder import build_batch
from broker.records.compression import Codec, DecompressedTooLarge
from broker.records.header import HEADER_SIZE, MalformedBatch, compute_crc, peek_header
from broker.records.record import Record
from tests.golden.capture_batches import LARGE, NARROW, SMALL

BATCHES = Path(__file__).parents[2] / "golden" / "batches"
LIMIT = 1 << 24
PLAIN_GOLDEN = sorted(
    path.stem
    for path in BATCHES.glob("*.bin")
    if path.stem.split("-")[-1] in ("none", "gzip", "snappy", "lz4", "zstd", "large")
)


def golden(name: str) -> bytes:
    return (BATCHES / f"{name}.bin").read_bytes()


def as_records(plain: list, base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, one.timestamp, one.key, one.value, list(one.headers))
        for index, one in enumerate(plain)
    ]


def expected_records(name: str) -> list[Record]:
    if name.endswith("-large"):
        return as_records(LARGE)
    return as_records(NARROW if name.startswith("kafka-python") else SMALL)


def test_every_client_and_codec_is_there() -> None:
    clients = {"java", "librdkafka", "kafka-python", "aiokafka"}
    assert len(PLAIN_GOLDEN) == len(clients) * 9


@pytest.mark.parametrize("name", PLAIN_GOLDEN)
def test_batches_of_real_clients_are_read(name: str) -> None:
    data = golden(name)
    header = peek_header(data)
    assert header.size_in_bytes == len(data)
    assert header.crc == compute_crc(data, 0, len(data))
    assert Codec(header.codec).name.lower() == name.removesuffix("-large").split("-")[-1]
    records = list(iter_records(data, LIMIT))
    assert records == expected_records(name)
    assert header.max_timestamp == max(record.timestamp for record in records)


@pytest.mark.parametrize("name", ["java-lz4-level-17", "java-zstd-level-minus-5"])
def test_levels_make_no_difference_to_readers(name: str) -> None:
    assert list(iter_records(golden(name), LIMIT)) == as_records(LARGE)


def test_idempotent_batch_whose_sequence_wraps() -> None:
    data = golden("java-idempotent")
    header = peek_header(data)
    assert (header.producer_id, header.producer_epoch) == (4711, 3)
    assert (header.base_sequence, header.last_sequence) == (2**31 - 2, 3)
    assert list(iter_records(data, LIMIT)) == as_records(SMALL)


def test_transactional_batch() -> None:
    data = golden("java-transactional")
    header = peek_header(data)
    assert header.is_transactional
    assert not header.is_control
    assert (header.base_offset, header.partition_leader_epoch) == (1000, 12)
    assert list(iter_records(data, LIMIT)) == as_records(SMALL, 1000)


def test_append_time_stands_in_for_every_timestamp() -> None:
    data = golden("java-log-append-time")
    header = peek_header(data)
    assert header.is_log_append_time
    records = list(iter_records(data, LIMIT))
    assert {record.timestamp for record in records} == {header.max_timestamp}
    assert [record.key for record in records] == [one.key for one in SMALL]
    assert [record.offset for record in records] == [5, 6, 7, 8, 9, 10]


def test_compacted_batch_keeps_its_offsets() -> None:
    data = golden("java-compacted")
    header = peek_header(data)
    assert (header.base_offset, header.last_offset, header.record_count) == (100, 105, 3)
    everything = as_records(SMALL, 100)
    assert list(iter_records(data, LIMIT)) == [everything[1], everything[3], everything[5]]


def test_batch_without_records_is_legal() -> None:
    data = golden("java-compacted-empty")
    header = peek_header(data)
    assert (header.base_offset, header.last_offset, header.record_count) == (100, 105, 0)
    assert list(iter_records(data, LIMIT)) == []
    ours = build_batch(
        [],
        base_offset=100,
        last_offset=105,
        leader_epoch=header.partition_leader_epoch,
        producer_id=4711,
        producer_epoch=3,
        base_sequence=7,
    )
    # Kafka keeps the old max timestamp in such a header; the rest is the same.
    assert peek_header(ours)._replace(crc=0, max_timestamp=0) == header._replace(
        crc=0, max_timestamp=0
    )


def test_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    data = golden("java-delete-horizon")
    header = peek_header(data)
    assert header.has_delete_horizon
    assert header.base_timestamp == 1_800_000_000_000
    assert list(iter_records(data, LIMIT)) == as_records(SMALL[3:4], 100)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_output_bound_is_kept(codec: Codec) -> None:
    batch = build_batch([Record(0, 0, None, bytes(100_000))], codec=codec)
    assert len(list(iter_records(batch, 101_000))) == 1
    with pytest.raises(DecompressedTooLarge):
        list(iter_records(batch, 99_000))


def test_names_that_are_not_utf8_survive() -> None:
    record = Record(0, 0, None, b"", [("\udcff\udcfe", b"x")])
    batch = build_batch([record])
    assert b"\xff\xfe" in batch
    assert list(iter_records(batch, LIMIT)) == [record]


def test_faults_behind_the_header_are_named() -> None:
    batch = bytes(build_batch([Record(0, 0, b"k", b"v"), Record(1, 0, b"k", b"v")]))
    for wrong in (
        batch[:-1],
        batch + b"x",
        batch[:57] + b"\0\0\0\x03" + batch[61:],
        batch[:57] + b"\0\0\0\x01" + batch[61:],
        batch[:57] + b"\0\0\0\x00" + batch[61:],
        batch[:57] + b"\xff\xff\xff\xff" + batch[61:],
        batch[:16] + b"\x01" + batch[17:],
        batch[:61] + b"\x01" + batch[62:],
        batch[:22] + b"\x07" + batch[23:],
    ):
        with pytest.raises(MalformedBatch):
            list(iter_records(wrong, LIMIT))


def test_scan_sums_up_what_a_leader_must_know() -> None:
    batch = build_batch(
        [
            Record(0, 500, b"k", b"v"),
            Record(1, 900, None, None, [("a", None), ("b", b"x" * 200)]),
            Record(2, 100, None, b"v" * 1000),
            Record(3, 500, b"", b""),
        ]
    )
    scan = scan_records(memoryview(batch)[HEADER_SIZE:], peek_header(batch))
    assert (scan.min_timestamp, scan.max_timestamp, scan.null_key_count) == (100, 900, 2)
    assert scan.max_record_bytes == 1008


@pytest.mark.parametrize("name", [name for name in PLAIN_GOLDEN if "-none" in name])
def test_scan_accepts_what_real_clients_write(name: str) -> None:
    data = golden(name)
    scan = scan_records(memoryview(data)[HEADER_SIZE:], peek_header(data))
    records = expected_records(name)
    assert scan.min_timestamp == min(record.timestamp for record in records)
    assert scan.null_key_count == sum(record.key is None for record in records)


def test_more_than_64_and_8192_records_have_longer_offsets() -> None:
    records = [Record(index, index * 1000, b"k", b"v") for index in range(10_000)]
    batch = build_batch(records)
    scan = scan_records(memoryview(batch)[HEADER_SIZE:], peek_header(batch))
    assert scan.max_timestamp == 9_999_000
    assert [record.offset for record in iter_records(batch, LIMIT)] == list(range(10_000))
