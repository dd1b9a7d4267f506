"""broker/records beside its plain twin."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.records.batch import iter_payload, iter_records, scan_records
from broker.records.builder import build_batch
from broker.records.compression import Codec
from broker.records.header import MalformedBatch, compute_crc, peek_header
from broker.records.record import Record
from broker.records.validation import (
    InvalidBatch,
    ProduceRules,
    check_header,
    needs_walk,
    walk,
)
from broker.records.varint import decode_varint, decode_varlong, encode_varint
from tests.property import reference_records as reference
from tests.property.reference_records import BadRecords, Refusal
from tests.support import record_batches

NOW = 1_800_000_000_000
LIMIT = 1 << 24

blobs = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3)
sane_times = st.integers(NOW - 1_000, NOW + 1_000)
odd_times = sane_times | st.sampled_from(
    [-1, -2, 0, NOW + 3_600_000, NOW + 3_600_001, NOW + 10**12, NOW - 10**12]
)


def record_lists(times: st.SearchStrategy[int]) -> st.SearchStrategy[list[Record]]:
    parts = st.tuples(times, blobs, blobs, headers)
    return st.lists(parts, min_size=1, max_size=8).map(
        lambda made: [Record(index, *one) for index, one in enumerate(made)]
    )


def as_plain(records: list[Record]) -> list[record_batches.Record]:
    return [
        record_batches.Record(one.key, one.value, one.timestamp, tuple(one.headers))
        for one in records
    ]


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_come_back(value: int) -> None:
    encoded = encode_varint(value)
    assert encoded == record_batches.varint(value)
    assert decode_varlong(encoded, 0) == (value, len(encoded))
    if -(2**31) <= value < 2**31:
        assert decode_varint(encoded, 0) == (value, len(encoded))


@settings(deadline=None)
@given(st.binary(max_size=12), st.sampled_from([32, 64]))
def test_numbers_are_read_as_the_plain_reader_does(data: bytes, bits: int) -> None:
    reader = reference.Reader(data)
    decode = decode_varint if bits == 32 else decode_varlong
    try:
        value = reader.number(bits)
    except BadRecords:
        with pytest.raises(MalformedBatch):
            decode(data, 0)
    else:
        assert decode(data, 0) == (value, len(data) - len(reader.data))


@settings(deadline=None)
@given(record_lists(odd_times), st.integers(-1, 2**62), st.integers(-1, 2**15 - 1))
def test_built_batches_equal_the_plain_ones(
    records: list[Record], producer_id: int, producer_epoch: int
) -> None:
    ours = build_batch(records, producer_id=producer_id, producer_epoch=producer_epoch)
    theirs = record_batches.batch(
        as_plain(records), producer_id=producer_id, producer_epoch=producer_epoch
    )
    assert ours == theirs


@settings(deadline=None)
@given(record_lists(odd_times), st.sampled_from(Codec), st.integers(0, 2**60))
def test_records_come_back_in_every_codec(
    records: list[Record], codec: Codec, base_offset: int
) -> None:
    moved = [one._replace(offset=one.offset + base_offset) for one in records]
    batch = build_batch(moved, codec=codec)
    assert list(iter_records(batch, LIMIT)) == moved


def mutations(data: bytes) -> st.SearchStrategy[bytes]:
    def change(edits: list[tuple[str, int, int]]) -> bytes:
        out = bytearray(data)
        for kind, position, value in edits:
            position %= len(out) + 1
            if kind == "set" and position < len(out):
                out[position] = value
            elif kind == "insert":
                out.insert(position, value)
            elif kind == "cut":
                del out[position : position + value % 8]
        return bytes(out)

    edit = st.tuples(
        st.sampled_from(["set", "insert", "cut"]),
        st.integers(0, 10_000),
        st.integers(0, 255) | st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]),
    )
    return st.lists(edit, max_size=3).map(change)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_payloads_are_scanned_and_decoded_as_the_plain_reader_does(data: st.DataObject) -> None:
    records = data.draw(record_lists(odd_times))
    batch = build_batch(records)
    payload = data.draw(mutations(bytes(batch[61:])))
    header = peek_header(batch)
    try:
        plain = reference.read_records(payload, len(records))
    except BadRecords:
        with pytest.raises(MalformedBatch):
            scan_records(memoryview(payload), header)
        with pytest.raises(MalformedBatch):
            list(iter_payload(payload, header))
        return
    decoded = list(iter_payload(memoryview(payload), header))
    assert [(one.key, one.value) for one in decoded] == [(one.key, one.value) for one in plain]
    assert [one.offset for one in decoded] == [one.offset_delta for one in plain]
    times = [header.base_timestamp + one.timestamp_delta for one in plain]
    assert [one.timestamp for one in decoded] == times
    if [one.offset_delta for one in plain] != list(range(len(plain))):
        with pytest.raises(MalformedBatch):
            scan_records(payload, header)
        return
    scan = scan_records(payload, header)
    assert (scan.min_timestamp, scan.max_timestamp) == (min(times), max(times))
    assert scan.null_key_count == sum(one.key is None for one in plain)
    assert scan.max_record_bytes == max(one.size for one in plain)


HEADER_FIELDS: dict[str, st.SearchStrategy[int]] = {
    "base_offset": st.sampled_from([0, 1, -1]),
    "batch_length": st.integers(-2, 400),
    "magic": st.sampled_from([-1, 0, 1, 2, 3]),
    "crc": st.integers(0, 2**32 - 1),
    "last_offset_delta": st.integers(-2, 9) | st.just(2**31 - 1),
    "record_count": st.integers(-2, 10) | st.just(-(2**31)),
    "base_timestamp": odd_times,
    "max_timestamp": odd_times,
    "producer_id": st.sampled_from([-2, -1, 0, 7]),
    "base_sequence": st.sampled_from([-2, -1, 0, 7, 2**31 - 1]),
    "attributes": st.sampled_from([0x08, 0x10, 0x20, 0x40, 0x80, 5, 6, 7, -0x8000, 0x7F00]),
}

rule_sets = st.builds(
    ProduceRules,
    max_message_bytes=st.sampled_from([150, 1_048_588]),
    is_compacted=st.booleans(),
    log_append_time=st.booleans(),
    after_max_ms=st.sampled_from([500, 3_600_000]),
    before_max_ms=st.sampled_from([500, 2**63 - 1]),
    strict=st.booleans(),
)


@st.composite
def produced(draw: Any) -> bytes:
    """Mostly a good batch with one or two things wrong, its CRC mostly right."""
    records = draw(record_lists(draw(st.sampled_from([sane_times, odd_times]))))
    codec = draw(st.sampled_from([0, 0, 1, 2, 3, 4]))
    names = draw(st.sets(st.sampled_from(sorted(HEADER_FIELDS)), max_size=2))
    fields = {name: draw(HEADER_FIELDS[name]) for name in names}
    if codec and fields.get("attributes", 0) & 7:
        del fields["attributes"]
    if codec == 0 and draw(st.integers(0, 4)) == 0:
        fields["payload"] = draw(
            mutations(record_batches.encode_records(as_plain(records), records[0].timestamp))
        )
    data = record_batches.batch(as_plain(records), codec=codec, **fields)
    kind = draw(st.integers(0, 12))
    if kind == 0:
        return data[: draw(st.integers(0, len(data)))]
    if kind == 1:
        return data + draw(st.binary(max_size=80))
    if kind == 2:
        return data + record_batches.batch(as_plain(records))
    return data


def leader_refuses(buf: memoryview, rules: ProduceRules, version: int) -> InvalidBatch | None:
    try:
        header = check_header(buf, rules, NOW, version)
        if needs_walk(header, rules, NOW):
            assert walk(buf, header, rules, NOW) is None
    except InvalidBatch as error:
        return error
    return None


@settings(max_examples=1_000, deadline=None)
@given(produced(), rule_sets, st.sampled_from([3, 6, 7, 8, 13]))
def test_verdicts_equal_the_plain_ones(data: bytes, rules: ProduceRules, version: int) -> None:
    expected = reference.judge(data, rules, NOW, version)
    buf = memoryview(bytearray(data))
    refusal = leader_refuses(buf, rules, version)
    if isinstance(expected, Refusal):
        assert refusal is not None
        assert refusal.code is expected.code
        assert [index for index, _ in refusal.record_errors] == expected.indexes
        return
    assert refusal is None, refusal
    stored = peek_header(buf)
    assert stored.max_timestamp == expected
    assert stored.is_log_append_time is rules.log_append_time
    assert stored.crc == compute_crc(buf, 0, len(buf)) == crc32c(buf[21:])
    assert bytes(buf[:17]) == data[:17]
    assert bytes(buf[43:]) == data[43:]
    assert struct.unpack(">q", buf[27:35]) == struct.unpack(">q", data[27:35])


@settings(max_examples=150, deadline=None)
@given(record_lists(sane_times), st.sampled_from(Codec), st.sampled_from(Codec), rule_sets)
def test_conversion_changes_no_record(
    records: list[Record], source: Codec, target: Codec, rules: ProduceRules
) -> None:
    rules.codec, rules.is_compacted, rules.max_message_bytes = target, False, LIMIT
    rules.before_max_ms = rules.after_max_ms = 2_000
    batch = build_batch(records, codec=source, producer_id=5, producer_epoch=0, base_sequence=9)
    buf = memoryview(batch)
    header = check_header(buf, rules, NOW, 13)
    stored = walk(buf, header, rules, NOW) if needs_walk(header, rules, NOW) else None
    result = batch if stored is None else stored
    assert (stored is not None) is (source is not target)
    kept = list(iter_records(result, LIMIT))
    assert [one._replace(timestamp=0) for one in kept] == [
        one._replace(timestamp=0) for one in records
    ]
    if rules.log_append_time:
        assert {one.timestamp for one in kept} == {NOW}
    else:
        assert [one.timestamp for one in kept] == [one.timestamp for one in records]
    after = peek_header(result)
    assert after.codec == target
    assert after.crc == compute_crc(result, 0, len(result))
    assert (after.producer_id, after.base_sequence, after.record_count) == (5, 9, len(records))
