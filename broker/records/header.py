"""The 61-byte header of a record batch (magic 2): read it, stamp it, check its sum.

Layout (big endian; ``DefaultRecordBatch`` in Kafka's Java sources): base offset 8, batch length 4
(counted from behind itself), partition leader epoch 4, magic 1, CRC-32C 4, attributes 2, last
offset delta 4, base timestamp 8, max timestamp 8, producer id 8, producer epoch 2, base sequence 4,
record count 4. The CRC covers everything behind itself, so base offset and leader epoch can be
stamped into a received batch without touching the rest.

Hot path: ``peek_header`` and ``stamp`` run once per batch. One ``Struct.unpack_from`` and one
``tuple.__new__`` (0.42 us; by ``BatchHeader(*fields)`` 0.65 us); the CRC costs 0.26 us for a tiny
batch, 0.6 us for 11 KB, 40 us for 600 KB (Python 3.11, 2-core Xeon), on a view, without a copy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.records.crc import crc32c

Buffer = bytes | bytearray | memoryview

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
#: Base offset and batch length: the part that ``batch_length`` does not count.
LOG_OVERHEAD: Final = 12
#: First byte that the CRC covers (the attributes).
CRC_START: Final = 21
MAGIC: Final = 2

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

#: Sequence numbers run from 0 to 2^31-1 and start anew at 0.
SEQUENCE_MODULUS: Final = 1 << 31

_BASE_OFFSET: Final = struct.Struct(">q")
_LEADER_EPOCH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_LEADER_EPOCH_POSITION: Final = 12
_CRC_POSITION: Final = 17
_MAX_TIMESTAMP_POSITION: Final = 35

_unpack_header: Final = HEADER.unpack_from
_new_tuple: Final = tuple.__new__


class MalformedBatch(Exception):
    """These bytes are not a record batch. The one exception of every decoder in this package."""


class BatchHeader(NamedTuple):
    """Every field of the header, in wire order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    #: Timestamp of the first record, or the delete horizon if ``has_delete_horizon``.
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_in_bytes(self) -> int:
        """Of the whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """First offset behind this batch, also when compaction removed its last records."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def newest_timestamp(self) -> int:
        """Of the records that are there; NO_TIMESTAMP if compaction has left none of them."""
        return self.max_timestamp if self.record_count else NO_TIMESTAMP

    @property
    def codec(self) -> int:
        """Number of the codec (``compression.Codec`` if it is a known one)."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 without a sequence; wraps to 0 after 2^31-1 (G29)."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS


def peek_header(buf: Buffer, position: int = 0) -> BatchHeader:
    """Header at ``position``; nothing is checked but that 61 bytes are there."""
    try:
        return _new_tuple(BatchHeader, _unpack_header(buf, position))
    except struct.error:
        raise MalformedBatch(
            f"{max(len(buf) - position, 0)} bytes cannot hold a batch header"
        ) from None


def stamp(buf: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch in place; the CRC stays right."""
    _BASE_OFFSET.pack_into(buf, position, base_offset)
    _LEADER_EPOCH.pack_into(buf, position + _LEADER_EPOCH_POSITION, leader_epoch)


def compute_crc(buf: Buffer, position: int, size: int) -> int:
    """CRC-32C of the batch of ``size`` bytes at ``position``, as its header should have it."""
    return crc32c(memoryview(buf)[position + CRC_START : position + size])


def renew_crc(buf: bytearray | memoryview, position: int, size: int) -> None:
    """Store the right CRC after a change behind it."""
    _CRC.pack_into(buf, position + _CRC_POSITION, compute_crc(buf, position, size))


def set_max_timestamp_and_type(
    buf: bytearray | memoryview,
    position: int,
    size: int,
    max_timestamp: int,
    *,
    is_log_append_time: bool,
) -> None:
    """Write max timestamp and timestamp type in place and renew the CRC (both lie in its range).

    With LogAppendTime readers take every record's timestamp from the max timestamp, so the
    records need no change.
    """
    attributes_position = position + CRC_START
    (attributes,) = _ATTRIBUTES.unpack_from(buf, attributes_position)
    attributes = (
        attributes | LOG_APPEND_TIME_FLAG
        if is_log_append_time
        else attributes & ~LOG_APPEND_TIME_FLAG
    )
    _ATTRIBUTES.pack_into(buf, attributes_position, attributes)
    _MAX_TIMESTAMP.pack_into(buf, position + _MAX_TIMESTAMP_POSITION, max_timestamp)
    renew_crc(buf, position, size)


def walk_headers(buf: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch, front to back; a partial one at the end is left out.

    Raises ``MalformedBatch`` where no batch can begin (magic, or a length below a header's). CRCs
    are not compared.
    """
    end = len(buf)
    while end - position >= HEADER_SIZE:
        header = peek_header(buf, position)
        size = header.batch_length + LOG_OVERHEAD
        if header.magic != MAGIC or size < HEADER_SIZE:
            raise MalformedBatch(
                f"no batch at byte {position}: magic {header.magic}, length {header.batch_length}"
            )
        if size > end - position:
            return
        yield position, header
        position += size
