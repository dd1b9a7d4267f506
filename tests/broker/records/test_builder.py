"""Batches that we write, beside those of a plain twin and of Kafka's own classes."""

from __future__ import annotations

import pytest

from broker.records.builder import build_batch
from broker.records.compression import Codec
from broker.records.header import compute_crc, peek_header
from broker.records.record import Record
from tests.broker.records.test_batch import as_records, golden
from tests.golden.capture_batches import SMALL
from tests.support import record_batches


def test_bytes_equal_those_of_kafkas_builder() -> None:
    assert build_batch(as_records(SMALL)) == golden("java-none")
    assert (
        build_batch(
            as_records(SMALL, 1000),
            leader_epoch=12,
            producer_id=4711,
            producer_epoch=3,
            base_sequence=7,
            is_transactional=True,
        )
        == golden("java-transactional")
    )  # fmt: skip
    assert build_batch(
        as_records(SMALL[3:4], 100), leader_epoch=5, delete_horizon_ms=1_800_000_000_000
    ) == golden("java-delete-horizon")


@pytest.mark.parametrize("codec", Codec)
def test_a_plain_reader_reads_them(codec: Codec) -> None:
    records = as_records(SMALL, 70)
    data = bytes(build_batch(records, codec=codec, base_sequence=5, producer_id=1))
    (batch,) = record_batches.batches(data)
    assert batch.is_crc_right
    assert batch.codec == codec
    assert [one.offset for one in batch.records()] == [one.offset for one in records]
    assert [one.value for one in batch.records()] == [one.value for one in records]
    assert [one.timestamp for one in batch.records()] == [one.timestamp for one in records]


def test_append_time_is_the_max_timestamp() -> None:
    batch = build_batch([Record(0, 5, b"", b""), Record(1, 9, b"", b"")], log_append_time_ms=7)
    header = peek_header(batch)
    assert (header.is_log_append_time, header.max_timestamp, header.base_timestamp) == (True, 7, 5)
    assert header.crc == compute_crc(batch, 0, len(batch))


def test_compacted_batch_keeps_the_range_of_the_old_one() -> None:
    batch = build_batch([Record(103, 5, b"k", b"v")], base_offset=100, last_offset=109)
    header = peek_header(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (100, 109, 1)
