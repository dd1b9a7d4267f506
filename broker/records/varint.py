"""Zigzag variable-length integers, as records use them (protobuf's ``sint32``/``sint64``).

Per record, so never on a path that runs per batch only.
"""

from __future__ import annotations

from broker.records.header import Buffer, MalformedBatch

BITS_32 = 32
BITS_64 = 64


def decode_varint(buf: Buffer, position: int) -> tuple[int, int]:
    """(value, next position) of a 32-bit value: lengths, offset deltas, header counts."""
    return _decode(buf, position, BITS_32)


def decode_varlong(buf: Buffer, position: int) -> tuple[int, int]:
    """(value, next position) of a 64-bit value: timestamp deltas."""
    return _decode(buf, position, BITS_64)


def _decode(buf: Buffer, position: int, bits: int) -> tuple[int, int]:
    try:
        raw, position = decode_raw(buf, position, bits)
    except IndexError:
        raise MalformedBatch("a record ends inside a number") from None
    return (raw >> 1) ^ -(raw & 1), position


def decode_raw(buf: Buffer, position: int, bits: int = BITS_32) -> tuple[int, int]:
    """(number before zigzag, next position); odd is negative. ``IndexError`` at the buffer's end."""
    byte = buf[position]
    if byte < 0x80:
        return byte, position + 1
    return decode_rest(buf, position + 1, byte, bits)


def decode_rest(buf: Buffer, position: int, first: int, bits: int = BITS_32) -> tuple[int, int]:
    """What ``decode_raw`` gives, when the first byte was read and is not the last one."""
    raw = first & 0x7F
    for shift in range(7, bits, 7):
        byte = buf[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                break
            return raw, position
    raise MalformedBatch(f"a number in a record does not fit in {bits} bits")


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
