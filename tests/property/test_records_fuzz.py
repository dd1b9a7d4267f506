"""Hostile bytes: decoders raise MalformedBatch, produce validation InvalidBatch, and nothing else.

Memory stays within the bound that each call names, whatever the bytes claim.
"""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.records.batch import iter_records
from broker.records.builder import assemble, build_batch
from broker.records.compression import Codec, decompress
from broker.records.control import parse_marker
from broker.records.header import (
    HEADER_SIZE,
    MalformedBatch,
    compute_crc,
    peek_header,
    renew_crc,
    walk_headers,
)
from broker.records.record import Record
from broker.records.validation import (
    InvalidBatch,
    ProduceRules,
    check_header,
    needs_walk,
    walk,
)

NOW = 1_800_000_000_000
LIMIT = 1 << 20
SEEDS = [
    path.read_bytes()
    for path in sorted((Path(__file__).parents[1] / "golden" / "batches").glob("*.bin"))
]
RULES = [
    ProduceRules(strict=strict, is_compacted=compacted, codec=codec, log_append_time=append_time,
                 max_decompressed_bytes=LIMIT)
    for strict in (False, True)
    for compacted in (False, True)
    for codec in (None, Codec.NONE, Codec.LZ4)
    for append_time in (False, True)
]  # fmt: skip

edits = st.lists(
    st.tuples(
        st.sampled_from(["flip", "set", "insert", "cut", "repeat"]),
        st.integers(0, 1 << 16),
        st.integers(0, 255),
    ),
    max_size=6,
)


@st.composite
def damaged(draw: st.DrawFn) -> bytearray:
    """A batch of a real client with a few bytes changed; length and CRC mostly put right again."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for kind, position, value in draw(edits):
        position %= len(data) + 1
        if kind == "flip" and position < len(data):
            data[position] ^= 1 << value % 8
        elif kind == "set" and position < len(data):
            data[position] = value
        elif kind == "insert":
            data.insert(position, value)
        elif kind == "cut":
            del data[position : position + value]
        elif kind == "repeat":
            data[position:position] = data[position : position + value]
    if len(data) >= HEADER_SIZE and draw(st.integers(0, 5)):
        struct.pack_into(">qi", data, 0, 0, len(data) - 12)
        data[16] = 2
        renew_crc(data, 0, len(data))
    return data


def validate(data: bytearray, rules: ProduceRules, version: int) -> None:
    buf = memoryview(data)
    try:
        header = check_header(buf, rules, NOW, version)
        stored = None
        was_walked = needs_walk(header, rules, NOW)
        if was_walked:
            stored = walk(buf, header, rules, NOW)
    except InvalidBatch:
        return
    result = data if stored is None else stored
    after = peek_header(result)
    assert after.size_in_bytes == len(result) <= rules.max_message_bytes
    assert after.crc == compute_crc(result, 0, len(result))
    assert after.record_count == after.last_offset_delta + 1 > 0
    if was_walked and (rules.strict or rules.is_compacted):
        records = list(iter_records(result, LIMIT))
        assert [record.offset for record in records] == list(range(after.record_count))


@settings(max_examples=600, deadline=None)
@given(damaged(), st.sampled_from(RULES), st.integers(3, 13))
def test_damaged_batches_are_refused_or_sound(
    data: bytearray, rules: ProduceRules, version: int
) -> None:
    validate(data, rules, version)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(RULES), st.integers(3, 13))
def test_any_bytes_are_refused_or_sound(data: bytes, rules: ProduceRules, version: int) -> None:
    validate(bytearray(data), rules, version)


@settings(max_examples=400, deadline=None)
@given(
    st.binary(max_size=400), st.integers(-1, 2**31 - 1), st.integers(0, 7),
    st.sampled_from(RULES),
)  # fmt: skip
def test_any_payload_behind_a_right_header(
    payload: bytes, count: int, codec: int, rules: ProduceRules
) -> None:
    data = assemble(
        payload,
        base_offset=0,
        leader_epoch=-1,
        attributes=codec,
        last_offset_delta=count - 1,
        base_timestamp=NOW,
        max_timestamp=NOW,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    with contextlib.suppress(MalformedBatch):
        list(iter_records(data, LIMIT))
    validate(data, rules, 13)


@settings(max_examples=400, deadline=None)
@given(damaged() | st.binary(max_size=400))
def test_decoders_raise_one_exception(data: bytes) -> None:
    for decode in (
        lambda: list(iter_records(data, LIMIT)),
        lambda: list(walk_headers(data)),
        lambda: peek_header(data),
        lambda: parse_marker(data),
    ):
        with contextlib.suppress(MalformedBatch):
            decode()


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_codecs_raise_one_exception_and_keep_their_bound(data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from(SEEDS))
    codec = peek_header(seed).codec or data.draw(st.integers(1, 7))
    payload = bytearray(seed[HEADER_SIZE:])
    for kind, position, value in data.draw(edits):
        position %= len(payload) + 1
        if kind == "insert":
            payload.insert(position, value)
        elif kind == "cut":
            del payload[position : position + value]
        elif position < len(payload):
            payload[position] = value
    bound = data.draw(st.sampled_from([1, 1_000, 100_000, LIMIT]))
    with contextlib.suppress(MalformedBatch):
        assert len(decompress(codec, payload, bound)) <= bound


def test_a_claim_of_two_billion_records_costs_nothing() -> None:
    """Counts and lengths are never trusted with memory: they are met record by record."""
    batch = build_batch([Record(0, NOW, b"k", b"v")])
    struct.pack_into(">i", batch, 23, 2**31 - 2)
    struct.pack_into(">i", batch, 57, 2**31 - 1)
    renew_crc(batch, 0, len(batch))
    tracemalloc.start()
    try:
        validate(batch, ProduceRules(strict=True), 13)
        with contextlib.suppress(MalformedBatch):
            list(iter_records(batch, LIMIT))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
