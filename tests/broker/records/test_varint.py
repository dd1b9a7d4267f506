"""Zigzag numbers."""

from __future__ import annotations

import pytest

from broker.records.header import MalformedBatch
from broker.records.varint import decode_varint, decode_varlong, encode_varint

KNOWN = {
    0: b"\x00",
    -1: b"\x01",
    1: b"\x02",
    63: b"\x7e",
    -64: b"\x7f",
    64: b"\x80\x01",
    -65: b"\x81\x01",
    8191: b"\xfe\x7f",
    8192: b"\x80\x80\x01",
    2**31 - 1: b"\xfe\xff\xff\xff\x0f",
    -(2**31): b"\xff\xff\xff\xff\x0f",
}


@pytest.mark.parametrize(("value", "encoded"), KNOWN.items())
def test_known_encodings(value: int, encoded: bytes) -> None:
    assert encode_varint(value) == encoded
    assert decode_varint(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))
    assert decode_varlong(memoryview(encoded), 0) == (value, len(encoded))


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**62, -(2**40)])
def test_64_bit_values_need_the_long_form(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varlong(encoded, 0) == (value, len(encoded))
    with pytest.raises(MalformedBatch):
        decode_varint(encoded, 0)


@pytest.mark.parametrize(
    "wrong",
    [b"", b"\x80", b"\xff\xff\xff\xff", b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x1f"],
)
def test_what_is_no_32_bit_number_is_refused(wrong: bytes) -> None:
    with pytest.raises(MalformedBatch):
        decode_varint(wrong, 0)


@pytest.mark.parametrize("wrong", [b"\x80" * 9, b"\x80" * 10 + b"\x01", b"\xff" * 9 + b"\x02"])
def test_what_is_no_64_bit_number_is_refused(wrong: bytes) -> None:
    with pytest.raises(MalformedBatch):
        decode_varlong(wrong, 0)
