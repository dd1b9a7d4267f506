"""One record: what it holds and how it is written inside a batch.

A record is a length, an attributes byte (unused, 0), timestamp and offset as deltas to the batch
header's, key, value and headers. Lengths of -1 mean null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.records.varint import encode_varint

#: Name and value; the value may be null, the name may not.
RecordHeader = tuple[str, bytes | None]


class Record(NamedTuple):
    """A decoded record with absolute offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[RecordHeader] = ()


_NULL = encode_varint(-1)


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """Bytes of ``record`` inside a batch with this base offset and base timestamp."""
    parts = [
        b"\0",
        encode_varint(record.timestamp - base_timestamp),
        encode_varint(record.offset - base_offset),
        _sized(record.key),
        _sized(record.value),
        encode_varint(len(record.headers)),
    ]
    for name, value in record.headers:
        parts.append(_sized(name.encode(errors="surrogateescape")))
        parts.append(_sized(value))
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return _NULL if data is None else encode_varint(len(data)) + data
