"""Unsigned varints and tagged fields of flexible versions (KIP-482), as hot codecs read them.

Lengths are at most 32 bits: a varint of more than five bytes is malformed. Readers return
``(value, offset behind it)``.
"""

from __future__ import annotations

from typing import Final

from broker.protocol.errors import MalformedRequest
from broker.protocol.limits import MAX_TAGGED_FIELDS


def read_unsigned_varint(frame: memoryview, offset: int) -> tuple[int, int]:
    try:
        byte = frame[offset]
        if byte < 0x80:
            return byte, offset + 1
        value = byte & 0x7F
        for shift in (7, 14, 21, 28):
            offset += 1
            byte = frame[offset]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFFFFFF:
                    break
                return value, offset + 1
    except IndexError:
        raise MalformedRequest("a varint is cut short") from None
    raise MalformedRequest("a varint is longer than 32 bits")


def encode_unsigned_varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def skip_tagged_fields(frame: memoryview, offset: int) -> int:
    """Offset behind a section of tagged fields, none of which is wanted.

    Hot loops test for the single zero byte of an empty section themselves.
    """
    count, offset = _read_field_count(frame, offset)
    for _ in range(count):
        _, offset = read_unsigned_varint(frame, offset)
        size, offset = read_unsigned_varint(frame, offset)
        offset += size
        if offset > len(frame):
            raise MalformedRequest("a tagged field reaches behind the frame")
    return offset


def read_tagged_fields(frame: memoryview, offset: int) -> tuple[list[tuple[int, int, int]], int]:
    """``(tag, start, end)`` of each tagged field, and the offset behind the section."""
    count, offset = _read_field_count(frame, offset)
    fields = []
    for _ in range(count):
        tag, offset = read_unsigned_varint(frame, offset)
        size, start = read_unsigned_varint(frame, offset)
        offset = start + size
        if offset > len(frame):
            raise MalformedRequest("a tagged field reaches behind the frame")
        fields.append((tag, start, offset))
    return fields, offset


def _read_field_count(frame: memoryview, offset: int) -> tuple[int, int]:
    count, offset = read_unsigned_varint(frame, offset)
    if count > MAX_TAGGED_FIELDS:
        raise MalformedRequest(f"{count} tagged fields in one section")
    return count, offset
