"""A source's record batches, made ready to be appended here. Purely bytes; nothing is decompressed.

Every batch keeps its bytes but for the producer's id, which gets a bit that no cluster gives out: a producer of
this cluster can then never be taken for one of the other, in sequences or in transactions.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from broker.records.header import (
    HEADER_SIZE,
    MAGIC,
    MalformedBatch,
    compute_crc,
    renew_crc,
    walk_headers,
)

FOREIGN_PRODUCER: Final = 1 << 61
_PRODUCER_ID: Final = struct.Struct(">q")
_PRODUCER_ID_POSITION: Final = 43
_MAGIC_POSITION: Final = 16


class Ready(NamedTuple):
    """Whole batches; ``data`` may be empty."""

    data: bytearray
    base_offset: int
    next_offset: int
    record_count: int


def make_ready(data: bytes, position: int, end_offset: int) -> Ready:
    """What of ``data`` belongs into a copy that goes on at ``position`` and ends at ``end_offset``.

    Whole batches only, up to the first that begins at ``end_offset`` or behind it. Raises ``MalformedBatch``.
    """
    if len(data) > _MAGIC_POSITION and data[_MAGIC_POSITION] < MAGIC:
        raise MalformedBatch(
            "its records are of a format that was replaced in Kafka 0.11; Kafka 4 and Odradek have none such"
        )
    ready = bytearray(data)
    base_offset, next_offset, record_count, first, end = -1, position, 0, 0, 0
    for at, header in walk_headers(data):
        size = header.size_in_bytes
        if header.last_offset_delta < 0 or compute_crc(data, at, size) != header.crc:
            raise MalformedBatch(f"the sum of the batch at offset {header.base_offset} is wrong")
        if header.next_offset <= position:
            first = end = at + size
            continue
        if header.base_offset >= end_offset:
            break
        if base_offset < 0:
            base_offset = header.base_offset
        if header.producer_id >= 0:
            foreign = header.producer_id | FOREIGN_PRODUCER
            _PRODUCER_ID.pack_into(ready, at + _PRODUCER_ID_POSITION, foreign)
            renew_crc(ready, at, size)
        next_offset = header.next_offset
        record_count += header.record_count
        end = at + size
    return Ready(ready[first:end], base_offset, next_offset, record_count)


def is_part_of_one(data: bytes) -> bool:
    """Whether these bytes begin a batch that is larger than they are."""
    return 0 < len(data) < HEADER_SIZE or (bool(data) and not any(walk_headers(data)))
