"""Records of ``__consumer_offsets`` as Apache Kafka 4.4 writes them, and as any Kafka wrote them.

The first two bytes of a key say what it is. 0 and 1: a committed offset of group, topic and
partition. 2: a group of the classic protocol. What is above belongs to group protocols that this
broker does not serve; every such key begins with its group's id, which is all that we read of it.

Values carry their version in front: offsets are written at 4 (1 if they have an expiry of their
own), groups at 3. All versions back to 0 are read.
"""

from __future__ import annotations

import uuid
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from broker.coordinator.record_codec import (
    MalformedRecord,
    RecordReader,
    nullable,
    string,
    unsigned,
)
from broker.coordinator.result import CoordinatorRecord
from broker.model.ids import ZERO_TOPIC_ID, TopicId

NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1

OFFSET_KEY: Final = 1
GROUP_KEY: Final = 2
OFFSET_VALUE_VERSION: Final = 4
#: The only version that has a place for an expiry.
OFFSET_VALUE_WITH_EXPIRY: Final = 1
GROUP_VALUE_VERSION: Final = 3
#: The first flexible version of both values.
FIRST_FLEXIBLE: Final = 4

_SHORT = Struct(">h")
_INT = Struct(">i")
_LONG = Struct(">q")
_OFFSET_V4 = Struct(">hqi")
_OFFSET_V1 = Struct(">hq")
_TWO_LONGS = Struct(">qq")
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"
_SMALLEST_V4: Final = 24


class OffsetKey(NamedTuple):
    group_id: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """One committed offset. ``record_offset`` is where in the log it was read (or written)."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    #: -1: whatever the broker's retention says.
    expire_ms: int
    #: Zero where the writer did not know it.
    topic_id: TopicId
    record_offset: int = -1


class StoredMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """A group as it was when it became stable or empty."""

    protocol_type: str
    generation_id: int
    protocol_name: str | None
    leader_id: str | None
    state_ms: int
    members: tuple[StoredMember, ...]


# --- Writing ----------------------------------------------------------------------------------


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _SHORT.pack(OFFSET_KEY) + string(group_id) + string(topic) + _INT.pack(partition)


def group_key(group_id: str) -> bytes:
    return _SHORT.pack(GROUP_KEY) + string(group_id)


def offset_record(
    group_id: str, topic: str, partition: int, committed: CommittedOffset
) -> CoordinatorRecord:
    return CoordinatorRecord(offset_key(group_id, topic, partition), _offset_value(committed))


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(offset_key(group_id, topic, partition), None)


def group_record(group_id: str, group: StoredGroup) -> CoordinatorRecord:
    parts = [
        _SHORT.pack(GROUP_VALUE_VERSION),
        string(group.protocol_type),
        _INT.pack(group.generation_id),
        nullable(group.protocol_name),
        nullable(group.leader_id),
        _LONG.pack(group.state_ms),
        _INT.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            string(member.member_id),
            nullable(member.group_instance_id),
            string(member.client_id),
            string(member.client_host),
            _INT.pack(member.rebalance_timeout_ms),
            _INT.pack(member.session_timeout_ms),
            _INT.pack(len(member.subscription)),
            member.subscription,
            _INT.pack(len(member.assignment)),
            member.assignment,
        )
    return CoordinatorRecord(group_key(group_id), b"".join(parts))


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(group_key(group_id), None)


def _offset_value(committed: CommittedOffset) -> bytes:
    if committed.expire_ms != NO_TIMESTAMP:
        return (
            _OFFSET_V1.pack(OFFSET_VALUE_WITH_EXPIRY, committed.offset)
            + string(committed.metadata)
            + _TWO_LONGS.pack(committed.commit_ms, committed.expire_ms)
        )
    metadata = committed.metadata.encode(errors="surrogatepass")
    is_topic_known = committed.topic_id != ZERO_TOPIC_ID
    return (
        _OFFSET_V4.pack(OFFSET_VALUE_VERSION, committed.offset, committed.leader_epoch)
        + unsigned(len(metadata) + 1)
        + metadata
        + _LONG.pack(committed.commit_ms)
        + (_TOPIC_ID_TAG + committed.topic_id.bytes if is_topic_known else b"\x00")
    )


# --- Reading ----------------------------------------------------------------------------------


def read_offset_key(key: bytes) -> OffsetKey:
    """One pass without a reader: loading spends most of its time on these, and on their values."""
    try:
        group_end = 4 + _SHORT.unpack_from(key, 2)[0]
        topic_begin = group_end + 2
        topic_end = topic_begin + _SHORT.unpack_from(key, group_end)[0]
        partition = _INT.unpack_from(key, topic_end)[0]
    except StructError:
        raise MalformedRecord(f"an offset's key of {len(key)} bytes") from None
    if group_end < 4 or topic_end < topic_begin:
        raise MalformedRecord("null where a text must be")
    return OffsetKey(
        key[4:group_end].decode(errors="replace"),
        key[topic_begin:topic_end].decode(errors="replace"),
        partition,
    )


def read_group_id(key: bytes) -> str:
    """The group that a key of any type belongs to."""
    return RecordReader(key).string()


def read_offset_value(value: bytes, record_offset: int) -> CommittedOffset:
    found = _read_usual_value(value, record_offset)
    return _read_any_value(value, record_offset) if found is None else found


def _read_usual_value(value: bytes, record_offset: int) -> CommittedOffset | None:
    """Version 4 with metadata below 127 bytes, and no tags but a topic id; None: something else."""
    size = len(value)
    if size < _SMALLEST_V4 or value[1] != OFFSET_VALUE_VERSION or not 0 < value[14] < 0x80:
        return None
    metadata_end = 14 + value[14]
    tags = metadata_end + 8
    if size == tags + 1 and value[tags] == 0:
        topic_id = ZERO_TOPIC_ID
    elif size == tags + 19 and value[tags : tags + 3] == _TOPIC_ID_TAG:
        topic_id = _topic_id(value[tags + 3 :])
    else:
        return None
    version, offset, leader_epoch = _OFFSET_V4.unpack_from(value)
    if version != OFFSET_VALUE_VERSION:
        return None
    return CommittedOffset(
        offset,
        leader_epoch,
        value[15:metadata_end].decode(errors="replace"),
        _LONG.unpack_from(value, metadata_end)[0],
        NO_TIMESTAMP,
        topic_id,
        record_offset,
    )


def _read_any_value(value: bytes, record_offset: int) -> CommittedOffset:
    reader = RecordReader(value, FIRST_FLEXIBLE)
    version = reader.version
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_LEADER_EPOCH
    metadata = reader.string()
    commit_ms = reader.int64()
    expire_ms = reader.int64() if version == OFFSET_VALUE_WITH_EXPIRY else NO_TIMESTAMP
    topic_id = ZERO_TOPIC_ID
    for tag, data in reader.tags():
        if tag == 0:
            topic_id = _topic_id(data)
    return CommittedOffset(
        offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id, record_offset
    )


def read_group_value(value: bytes) -> StoredGroup:
    reader = RecordReader(value, FIRST_FLEXIBLE)
    version = reader.version
    protocol_type = reader.string()
    generation_id = reader.int32()
    protocol_name = reader.nullable_string()
    leader_id = reader.nullable_string()
    state_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
    members = tuple(_read_member(reader, version) for _ in range(reader.array_length()))
    reader.tags()
    return StoredGroup(protocol_type, generation_id, protocol_name, leader_id, state_ms, members)


def _read_member(reader: RecordReader, version: int) -> StoredMember:
    member_id = reader.string()
    group_instance_id = reader.nullable_string() if version >= 3 else None
    client_id = reader.string()
    client_host = reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription = reader.data()
    assignment = reader.data()
    reader.tags()
    return StoredMember(
        member_id,
        group_instance_id,
        client_id,
        client_host,
        session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )


@lru_cache(maxsize=4096)
def _topic_id(data: bytes) -> TopicId:
    if len(data) != 16:
        raise MalformedRecord(f"a topic id of {len(data)} bytes")
    return uuid.UUID(bytes=data) if any(data) else ZERO_TOPIC_ID
