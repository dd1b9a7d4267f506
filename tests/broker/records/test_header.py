"""The 61 bytes in front of a batch."""

from __future__ import annotations

import pytest

from broker.records.builder import build_batch
from broker.records.header import (
    HEADER,
    HEADER_SIZE,
    MalformedBatch,
    compute_crc,
    peek_header,
    set_max_timestamp_and_type,
    stamp,
    walk_headers,
)
from broker.records.record import Record


def a_batch(first_offset: int = 0, count: int = 3, **kwargs: object) -> bytearray:
    return build_batch(
        [
            Record(first_offset + index, 1_000 + index, b"key", b"value %d" % index)
            for index in range(count)
        ],
        **kwargs,
    )


def test_header_is_61_bytes() -> None:
    assert HEADER.size == HEADER_SIZE == 61


def test_every_field_is_read_back() -> None:
    batch = a_batch(
        10,
        leader_epoch=7,
        producer_id=99,
        producer_epoch=3,
        base_sequence=40,
        is_transactional=True,
        is_control=True,
    )
    header = peek_header(b"xyz" + batch, 3)
    assert header.size_in_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (10, 12, 13)
    assert (header.base_timestamp, header.max_timestamp) == (1_000, 1_002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (99, 3, 40)
    assert (header.last_sequence, header.record_count) == (42, 3)
    assert (header.magic, header.partition_leader_epoch) == (2, 7)
    assert header.is_transactional
    assert header.is_control
    assert header.has_producer_id
    assert not header.is_log_append_time
    assert not header.has_delete_horizon
    assert header.crc == compute_crc(batch, 0, len(batch))


def test_last_sequence_wraps_to_zero() -> None:
    batch = a_batch(producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert peek_header(batch).last_sequence == 0


def test_stamp_leaves_the_crc_right() -> None:
    batch = a_batch()
    before = bytes(batch)
    stamp(memoryview(batch), 0, 2**40, 2**31 - 1)
    header = peek_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 2**31 - 1)
    assert header.crc == compute_crc(batch, 0, len(batch))
    assert batch[16:] == before[16:]


def test_setting_the_timestamp_renews_the_crc() -> None:
    batch = bytearray(b"\xff" * 9) + a_batch()
    size = len(batch) - 9
    set_max_timestamp_and_type(memoryview(batch), 9, size, 5_000, is_log_append_time=True)
    header = peek_header(batch, 9)
    assert (header.is_log_append_time, header.max_timestamp) == (True, 5_000)
    assert header.crc == compute_crc(batch, 9, size)
    set_max_timestamp_and_type(batch, 9, size, 1_002, is_log_append_time=False)
    assert batch[9:] == a_batch()


def test_walk_yields_whole_batches_only() -> None:
    batches = [a_batch(0), a_batch(3, 1), a_batch(4, 2)]
    data = b"".join(batches)
    found = [(position, header.base_offset) for position, header in walk_headers(data)]
    assert found == [(0, 0), (len(batches[0]), 3), (len(batches[0] + batches[1]), 4)]
    assert [position for position, _ in walk_headers(data[:-1])] == [0, len(batches[0])]
    assert [position for position, _ in walk_headers(data + bytes(60))][-1] == found[-1][0]
    assert list(walk_headers(b"")) == []


@pytest.mark.parametrize(
    "wrong", [bytes(61), b"\xff" * 61, a_batch()[:16] + b"\x03" + a_batch()[17:]]
)
def test_walk_refuses_what_cannot_be_a_batch(wrong: bytes) -> None:
    walk = walk_headers(bytes(a_batch()) + wrong)
    next(walk)
    with pytest.raises(MalformedBatch):
        next(walk)


def test_peek_refuses_a_short_buffer() -> None:
    with pytest.raises(MalformedBatch):
        peek_header(bytes(60))
    with pytest.raises(MalformedBatch):
        peek_header(bytes(100), 80)
