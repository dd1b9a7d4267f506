"""Fetch version 17 from the follower's side: its requests out, the leader's answers in.

An answer's records are views of its frame: nothing is copied until they are appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from broker.model.ids import TopicId
from broker.protocol.errors import MalformedRequest
from broker.protocol.hot.layout import read_uuid
from broker.protocol.varint import (
    encode_unsigned_varint,
    read_tagged_fields,
    read_unsigned_varint,
    skip_tagged_fields,
)

VERSION: Final = 17
_FETCH: Final = 1

_HEAD: Final = Struct(">hhih")  # key, version, correlation id, length of the client's name
_BODY: Final = Struct(
    ">iiibii"
)  # max wait, min and max bytes, isolation level, session id and epoch
_PARTITION: Final = Struct(">iiqiqib")
_REPLICA_STATE: Final = Struct(">bbbiqb")  # one tagged field: 1, of 13 bytes
_INT32: Final = Struct(">i")
_ANSWER: Final = Struct(">bihi")  # tags of the header, throttle, error, session id
_RESULT: Final = Struct(">ihqqq")  # index, error, high watermark, last stable offset, log start
_DIVERGING: Final = Struct(">iq")


class WantedPartition(NamedTuple):
    """In the order of the wire."""

    index: int  # type: ignore[assignment]  # hides a method that nobody calls
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchedPartition:
    """``diverging_epoch``: epoch and end offset (KIP-595)."""

    __slots__ = (
        "diverging_epoch",
        "error_code",
        "high_watermark",
        "index",
        "log_start_offset",
        "records",
        "topic_id",
    )

    def __init__(
        self,
        topic_id: TopicId,
        index: int,
        error_code: int,
        high_watermark: int,
        log_start_offset: int,
        diverging_epoch: tuple[int, int] | None,
        records: memoryview,
    ) -> None:
        self.topic_id = topic_id
        self.index = index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.diverging_epoch = diverging_epoch
        self.records = records


class FetchedAnswer:
    __slots__ = ("error_code", "partitions", "session_id")

    def __init__(
        self, error_code: int, session_id: int, partitions: list[FetchedPartition]
    ) -> None:
        self.error_code = error_code
        self.session_id = session_id
        self.partitions = partitions


def encode_request(
    client_id: bytes,
    *,
    replica_id: int,
    replica_epoch: int,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    session: tuple[int, int],
    topics: Iterable[tuple[TopicId, Sequence[WantedPartition]]],
    forgotten: Iterable[tuple[TopicId, Sequence[int]]],
) -> bytes:
    """Without its length; the correlation id is for whoever sends it to fill in.

    ``session``: id and epoch.
    """
    wanted = list(topics)
    parts = [
        _HEAD.pack(_FETCH, VERSION, 0, len(client_id)),
        client_id,
        b"\0",
        _BODY.pack(max_wait_ms, min_bytes, max_bytes, 0, *session),
        encode_unsigned_varint(len(wanted) + 1),
    ]
    for topic_id, partitions in wanted:
        parts += [topic_id.bytes, encode_unsigned_varint(len(partitions) + 1)]
        parts += [_PARTITION.pack(*partition, 0) for partition in partitions]
        parts.append(b"\0")
    left = list(forgotten)
    parts.append(encode_unsigned_varint(len(left) + 1))
    for topic_id, indexes in left:
        parts += [topic_id.bytes, encode_unsigned_varint(len(indexes) + 1)]
        parts += [_INT32.pack(index) for index in indexes]
        parts.append(b"\0")
    parts.append(b"\x01")  # no rack
    parts.append(_REPLICA_STATE.pack(1, 1, 13, replica_id, replica_epoch, 0))
    return b"".join(parts)


def decode_answer(frame: memoryview) -> FetchedAnswer:
    """What comes behind the correlation id; raises ``MalformedRequest``."""
    try:
        return _decode_answer(frame)
    except (StructError, IndexError, ValueError):
        raise MalformedRequest("an answer to a fetch is cut short") from None


def _decode_answer(frame: memoryview) -> FetchedAnswer:
    _, _, error_code, session_id = _ANSWER.unpack_from(frame, 0)
    topic_count, offset = read_unsigned_varint(frame, _ANSWER.size)
    found: list[FetchedPartition] = []
    for _ in range(topic_count - 1):
        topic_id = read_uuid(frame, offset)
        count, offset = read_unsigned_varint(frame, offset + 16)
        for _ in range(count - 1):
            partition, offset = _decode_partition(frame, offset, topic_id)
            found.append(partition)
        offset = skip_tagged_fields(frame, offset)
    return FetchedAnswer(error_code, session_id, found)


def _decode_partition(
    frame: memoryview, offset: int, topic_id: TopicId
) -> tuple[FetchedPartition, int]:
    index, code, high_watermark, _, log_start_offset = _RESULT.unpack_from(frame, offset)
    aborted_count, offset = read_unsigned_varint(frame, offset + _RESULT.size)
    for _ in range(aborted_count - 1):
        offset = skip_tagged_fields(frame, offset + 16)
    size, offset = read_unsigned_varint(frame, offset + 4)  # behind the preferred read replica
    end = offset + max(size - 1, 0)
    if end > len(frame):
        raise MalformedRequest("records reach behind the frame")
    records = frame[offset:end]
    diverging: tuple[int, int] | None = None
    if frame[end]:
        fields, offset = read_tagged_fields(frame, end)
        for tag, start, _ in fields:
            if tag == 0:
                epoch, end_offset = _DIVERGING.unpack_from(frame, start)
                diverging = (epoch, end_offset)
    else:
        offset = end + 1
    partition = FetchedPartition(
        topic_id, index, code, high_watermark, log_start_offset, diverging, records
    )
    return partition, offset
