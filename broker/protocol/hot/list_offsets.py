"""ListOffsets: request versions 1 to 11 in, responses out.

Hot path: once per request, plus one step per partition: lag exporters ask for thousands at once. A
hundred partitions encode in 25 us (``tests.broker.protocol.measure``).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError

from broker.protocol.errors import MalformedRequest
from broker.protocol.hot.layout import (
    INT16,
    INT32,
    check_count,
    compact_text,
    plain_text,
    read_text,
)
from broker.protocol.limits import MAX_REQUEST_ELEMENTS
from broker.protocol.varint import (
    encode_unsigned_varint,
    read_unsigned_varint,
    skip_tagged_fields,
)

FLEXIBLE_FROM = 6
TIMEOUT_FROM = 10

_PARTITION_V1 = Struct(">iq")  # index, timestamp
_PARTITION_V4 = Struct(">iiq")  # index, current leader epoch, timestamp
_REPLICA_ISOLATION = Struct(">ib")

#: partition index, current leader epoch (-1: not told), timestamp or special value
ListOffsetsPartition = tuple[int, int, int]


class ListOffsetsRequest:
    """``timeout_ms`` is 0 before version 10."""

    __slots__ = ("isolation_level", "replica_id", "timeout_ms", "topics")

    def __init__(self, replica_id: int, isolation_level: int) -> None:
        self.replica_id = replica_id
        self.isolation_level = isolation_level
        self.topics: list[tuple[str, list[ListOffsetsPartition]]] = []
        self.timeout_ms = 0


def decode_request(version: int, frame: memoryview, offset: int) -> ListOffsetsRequest:
    """The request that begins at ``offset``; raises ``MalformedRequest``."""
    try:
        if version < FLEXIBLE_FROM:
            return _decode_plain(version, frame, offset)
        return _decode_flexible(version, frame, offset)
    except (StructError, IndexError):
        raise MalformedRequest("a list offsets request is cut short") from None


def _decode_plain(version: int, frame: memoryview, offset: int) -> ListOffsetsRequest:
    isolation_level = 0
    if version >= 2:
        replica_id, isolation_level = _REPLICA_ISOLATION.unpack_from(frame, offset)
        offset += 5
    else:
        (replica_id,) = INT32.unpack_from(frame, offset)
        offset += 4
    request = ListOffsetsRequest(replica_id, isolation_level)
    (topic_count,) = INT32.unpack_from(frame, offset)
    offset += 4
    elements_left = check_count(topic_count, 6, len(frame) - offset, MAX_REQUEST_ELEMENTS)
    for _ in range(topic_count):
        (length,) = INT16.unpack_from(frame, offset)
        name = read_text(frame, offset + 2, length)
        offset += 2 + length
        (count,) = INT32.unpack_from(frame, offset)
        offset += 4
        elements_left = check_count(count, 12, len(frame) - offset, elements_left)
        partitions: list[ListOffsetsPartition] = []
        if version >= 4:
            end = offset + 16 * count
            partitions += _PARTITION_V4.iter_unpack(frame[offset:end])
        else:
            end = offset + 12 * count
            pairs = _PARTITION_V1.iter_unpack(frame[offset:end])
            partitions += [(index, -1, timestamp) for index, timestamp in pairs]
        if end > len(frame):
            raise MalformedRequest(f"{count} partitions in {len(frame) - offset} bytes")
        offset = end
        request.topics.append((name, partitions))
    return request


def _decode_flexible(version: int, frame: memoryview, offset: int) -> ListOffsetsRequest:
    request = ListOffsetsRequest(*_REPLICA_ISOLATION.unpack_from(frame, offset))
    count, offset = read_unsigned_varint(frame, offset + 5)
    elements_left = check_count(count - 1, 3, len(frame) - offset, MAX_REQUEST_ELEMENTS)
    for _ in range(count - 1):
        length, offset = read_unsigned_varint(frame, offset)
        name = read_text(frame, offset, length - 1)
        count, offset = read_unsigned_varint(frame, offset + length - 1)
        elements_left = check_count(count - 1, 17, len(frame) - offset, elements_left)
        partitions: list[ListOffsetsPartition] = []
        for _ in range(count - 1):
            partitions.append(_PARTITION_V4.unpack_from(frame, offset))
            offset += 16
            offset = skip_tagged_fields(frame, offset) if frame[offset] else offset + 1
        request.topics.append((name, partitions))
        offset = skip_tagged_fields(frame, offset)
    if version >= TIMEOUT_FROM:
        (request.timeout_ms,) = INT32.unpack_from(frame, offset)
        offset += 4
    skip_tagged_fields(frame, offset)
    return request


# --- Response ---------------------------------------------------------------------------------

#: partition index, error code, timestamp, offset, leader epoch; -1 where there is none
PartitionOffset = tuple[int, int, int, int, int]

_RESULT_V1 = Struct(">ihqq")
_RESULT_V4 = Struct(">ihqqi")
_RESULT_V6 = Struct(">ihqqib")
_FRAME = Struct(">ii")


def encode_response(
    version: int,
    correlation_id: int,
    throttle_ms: int,
    topics: Sequence[tuple[str, Sequence[PartitionOffset]]],
) -> bytes:
    """The whole frame."""
    parts = [b""]
    if version >= FLEXIBLE_FROM:
        parts.append(b"\0" + INT32.pack(throttle_ms) + encode_unsigned_varint(len(topics) + 1))
        for name, partitions in topics:
            parts.append(compact_text(name) + encode_unsigned_varint(len(partitions) + 1))
            parts += [_RESULT_V6.pack(*partition, 0) for partition in partitions]
            parts.append(b"\0")
        parts.append(b"\0")
    else:
        if version >= 2:
            parts.append(INT32.pack(throttle_ms))
        parts.append(INT32.pack(len(topics)))
        for name, partitions in topics:
            parts.append(plain_text(name) + INT32.pack(len(partitions)))
            if version >= 4:
                parts += [_RESULT_V4.pack(*partition) for partition in partitions]
            else:
                parts += [_RESULT_V1.pack(*partition[:4]) for partition in partitions]
    parts[0] = _FRAME.pack(sum(map(len, parts)) + 4, correlation_id)
    return b"".join(parts)
