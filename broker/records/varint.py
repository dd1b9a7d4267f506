"""Zigzag variable-length integers, as records use them (protobuf's ``sint32``/``sint64``).

Decoders return ``(value, next position)`` and raise ``MalformedBatch`` at the end of the buffer
or when the value does not fit its width. Per record, so never on a path that runs per batch only.
"""

from __future__ import annotations

from broker.records.header import Buffer, MalformedBatch


def decode_varint(buf: Buffer, position: int) -> tuple[int, int]:
    """32-bit value (lengths, offset deltas, header counts)."""
    return _decode(buf, position, 5, 0xFFFF_FFFF)


def decode_varlong(buf: Buffer, position: int) -> tuple[int, int]:
    """64-bit value (timestamp deltas)."""
    return _decode(buf, position, 10, 0xFFFF_FFFF_FFFF_FFFF)


def _decode(buf: Buffer, position: int, max_bytes: int, mask: int) -> tuple[int, int]:
    try:
        byte = buf[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        raw = byte & 0x7F
        for index in range(1, max_bytes):
            byte = buf[position + index]
            raw |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                raw &= mask
                return (raw >> 1) ^ -(raw & 1), position + index + 1
    except IndexError:
        raise MalformedBatch("a record ends inside a number") from None
    raise MalformedBatch(f"a number in a record is longer than {max_bytes} bytes")


def encode_varint(value: int) -> bytes:
    """Either width: the encoding of a value does not depend on it."""
    raw = (value << 1) ^ (value >> 63)
    if raw < 0x80:
        return bytes((raw,))
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def size_of_varint(value: int) -> int:
    """Encoded length in bytes."""
    raw = (value << 1) ^ (value >> 63)
    return max(1, (raw.bit_length() + 6) // 7)
