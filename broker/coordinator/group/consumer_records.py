"""Records of consumer groups (KIP-848) in ``__consumer_offsets``, as Apache Kafka 4.4 writes them.

By the type of their key: 3 the group's epoch, 5 a member and what it asks for, 6 the epoch of the
target, 7 a member's target, 8 where a member stands, 16 the topics that a regular expression was
found to match. 4 was written by Kafka 4.0 only: it is known in order to be deleted.

Values are at version 0, which is flexible; what Kafka added since stands in tagged fields.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from struct import Struct
from typing import Final, NamedTuple

from broker.coordinator.group.consumer_member import (
    Assignment,
    ClassicMembership,
    ConsumerMember,
    MemberState,
    Owned,
)
from broker.coordinator.group.requests import Protocol
from broker.coordinator.record_codec import MalformedRecord, RecordReader, string, unsigned
from broker.coordinator.result import CoordinatorRecord
from broker.model.ids import ZERO_TOPIC_ID, TopicId

EPOCH_KEY: Final = 3
PARTITION_METADATA_KEY: Final = 4
MEMBER_KEY: Final = 5
TARGET_EPOCH_KEY: Final = 6
TARGET_KEY: Final = 7
CURRENT_KEY: Final = 8
PATTERN_KEY: Final = 16
KEYS: Final = frozenset({3, 4, 5, 6, 7, 8, PATTERN_KEY})

_SHORT = Struct(">h")
_BYTE = Struct(">b")
_INT = Struct(">i")
_LONG = Struct(">q")
_TWO_INTS = Struct(">ii")
_TWO_LONGS = Struct(">qq")
_VERSION: Final = b"\x00\x00"
_NO_TAGS: Final = b"\x00"
_NULL: Final = b"\x00"


class ResolvedPattern(NamedTuple):
    """Topics that a regular expression matched, and when."""

    topics: frozenset[str]
    #: Of the cluster's image then. Numbers start anew with each of our processes.
    version: int
    timestamp_ms: int


class TargetEpoch(NamedTuple):
    assignment_epoch: int
    #: When it was computed, by the wall clock; 0: unknown.
    timestamp_ms: int = 0


# --- Keys -------------------------------------------------------------------------------------


def _key(kind: int, *texts: str) -> bytes:
    return _SHORT.pack(kind) + b"".join(map(string, texts))


def read_second_text(key: bytes) -> tuple[str, str]:
    """Of a key that names a group and a member, or a group and a regular expression."""
    reader = RecordReader(key)
    return reader.string(), reader.string()


# --- Writing ----------------------------------------------------------------------------------


def epoch_record(group_id: str, group_epoch: int, metadata_hash: int) -> CoordinatorRecord:
    tags = _long_tag(metadata_hash)
    return _record(_key(EPOCH_KEY, group_id), _INT.pack(group_epoch), tags)


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    parts = [
        _nullable(member.group_instance_id),
        _nullable(member.rack_id),
        _text(member.client_id),
        _text(member.client_host),
        _array(_text(topic) for topic in sorted(member.topics)),
        _nullable(member.pattern),
        _INT.pack(member.rebalance_timeout_ms),
        _nullable(member.assignor),
    ]
    tags = _NO_TAGS if member.classic is None else _tag(0, b"\x01" + _classic(member.classic))
    return _record(_key(MEMBER_KEY, group_id, member.member_id), *parts, tags)


def _classic(classic: ClassicMembership) -> bytes:
    protocols = (
        _text(protocol.name) + unsigned(len(protocol.metadata) + 1) + protocol.metadata + _NO_TAGS
        for protocol in classic.protocols
    )
    return _INT.pack(classic.session_timeout_ms) + _array(protocols) + _NO_TAGS


def target_epoch_record(group_id: str, target: TargetEpoch) -> CoordinatorRecord:
    tags = _long_tag(target.timestamp_ms)
    return _record(_key(TARGET_EPOCH_KEY, group_id), _INT.pack(target.assignment_epoch), tags)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    topics = (
        topic_id.bytes + _numbers(sorted(partitions)) + _NO_TAGS
        for topic_id, partitions in target.items()
    )
    return _record(_key(TARGET_KEY, group_id, member_id), _array(topics), _NO_TAGS)


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    return _record(
        _key(CURRENT_KEY, group_id, member.member_id),
        _TWO_INTS.pack(member.member_epoch, member.previous_member_epoch),
        _BYTE.pack(member.state),
        _owned(member.assigned),
        _owned(member.revoking),
        _NO_TAGS,
    )


def _owned(owned: Owned) -> bytes:
    return _array(
        topic_id.bytes
        + _numbers(sorted(partitions))
        + _tag(0, _numbers([partitions[partition] for partition in sorted(partitions)]))
        for topic_id, partitions in owned.items()
    )


def pattern_record(group_id: str, pattern: str, resolved: ResolvedPattern) -> CoordinatorRecord:
    return _record(
        _key(PATTERN_KEY, group_id, pattern),
        _array(_text(topic) for topic in sorted(resolved.topics)),
        _TWO_LONGS.pack(resolved.version, resolved.timestamp_ms),
        _NO_TAGS,
    )


def tombstone(kind: int, *texts: str) -> CoordinatorRecord:
    return CoordinatorRecord(_key(kind, *texts), None)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    return [tombstone(kind, group_id, member_id) for kind in (CURRENT_KEY, TARGET_KEY, MEMBER_KEY)]


def _record(key: bytes, *parts: bytes) -> CoordinatorRecord:
    return CoordinatorRecord(key, _VERSION + b"".join(parts))


def _text(text: str) -> bytes:
    data = text.encode(errors="surrogatepass")
    return unsigned(len(data) + 1) + data


def _nullable(text: str | None) -> bytes:
    return _NULL if text is None else _text(text)


def _array(items: Iterable[bytes]) -> bytes:
    listed = list(items)
    return unsigned(len(listed) + 1) + b"".join(listed)


def _numbers(numbers: list[int]) -> bytes:
    return unsigned(len(numbers) + 1) + Struct(f">{len(numbers)}i").pack(*numbers)


def _tag(number: int, data: bytes) -> bytes:
    """The only tagged field of its struct."""
    return b"\x01" + unsigned(number) + unsigned(len(data)) + data


def _long_tag(number: int) -> bytes:
    return _tag(0, _LONG.pack(number)) if number else _NO_TAGS


# --- Reading ----------------------------------------------------------------------------------


def read_epoch(value: bytes) -> tuple[int, int]:
    """Epoch and hash of what is known of the topics."""
    reader = RecordReader(value, 0)
    return reader.int32(), _read_long_tag(reader)


def read_member(member_id: str, value: bytes, known: ConsumerMember | None) -> ConsumerMember:
    """``known`` as this record changes it."""
    reader = RecordReader(value, 0)
    instance_id, rack_id = reader.nullable_string(), reader.nullable_string()
    client_id, client_host = reader.string(), reader.string()
    topics = frozenset(reader.string() for _ in range(reader.array_length()))
    pattern = reader.nullable_string()
    rebalance_timeout_ms = reader.int32()
    assignor = reader.nullable_string()
    classic = None
    for tag, data in reader.tags():
        if tag == 0:
            classic = _read_classic(data)
    return (known or ConsumerMember(member_id))._replace(
        group_instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topics=topics,
        pattern=pattern,
        rebalance_timeout_ms=rebalance_timeout_ms,
        assignor=assignor,
        classic=classic,
    )


def _read_classic(data: bytes) -> ClassicMembership | None:
    if not data or data[:1] == _NULL:
        return None
    # A struct that may be null: a byte says that it is not. The reader skips a version of its own.
    reader = RecordReader(_VERSION + data[1:], 0)
    session_timeout_ms = reader.int32()
    protocols = []
    for _ in range(reader.array_length()):
        protocols.append(Protocol(reader.string(), reader.data()))
        reader.tags()
    return ClassicMembership(session_timeout_ms, tuple(protocols))


def read_target_epoch(value: bytes) -> TargetEpoch:
    reader = RecordReader(value, 0)
    return TargetEpoch(reader.int32(), _read_long_tag(reader))


def read_target(value: bytes) -> dict[TopicId, frozenset[int]]:
    reader = RecordReader(value, 0)
    found: dict[TopicId, frozenset[int]] = {}
    for _ in range(reader.array_length()):
        topic_id = _read_topic_id(reader)
        found[topic_id] = frozenset(_read_numbers(reader))
        reader.tags()
    return found


def read_current(value: bytes, known: ConsumerMember) -> ConsumerMember:
    """``known`` as this record changes it."""
    reader = RecordReader(value, 0)
    member_epoch, previous_member_epoch = reader.int32(), reader.int32()
    number = reader.int8()
    is_known = number in MemberState.__members__.values()
    return known._replace(
        member_epoch=member_epoch,
        previous_member_epoch=previous_member_epoch,
        state=MemberState(number) if is_known else MemberState.UNKNOWN,
        assigned=_read_owned(reader, member_epoch),
        revoking=_read_owned(reader, member_epoch),
    )


def _read_owned(reader: RecordReader, member_epoch: int) -> Mapping[TopicId, Mapping[int, int]]:
    found: dict[TopicId, dict[int, int]] = {}
    for _ in range(reader.array_length()):
        topic_id = _read_topic_id(reader)
        partitions = _read_numbers(reader)
        # Before Kafka 4.4 nobody wrote down since when.
        epochs = [member_epoch] * len(partitions)
        for tag, data in reader.tags():
            if tag == 0:
                epochs = _read_numbers(RecordReader(_VERSION + data, 0))
        if len(epochs) != len(partitions):
            raise MalformedRecord(f"{len(partitions)} partitions with {len(epochs)} epochs")
        found[topic_id] = dict(zip(partitions, epochs, strict=True))
    return found


def read_pattern(value: bytes) -> ResolvedPattern:
    reader = RecordReader(value, 0)
    topics = frozenset(reader.string() for _ in range(reader.array_length()))
    return ResolvedPattern(topics, reader.int64(), reader.int64())


def _read_numbers(reader: RecordReader) -> list[int]:
    return [reader.int32() for _ in range(reader.array_length())]


def _read_topic_id(reader: RecordReader) -> TopicId:
    data = reader.raw(16)
    return uuid.UUID(bytes=data) if any(data) else ZERO_TOPIC_ID


def _read_long_tag(reader: RecordReader) -> int:
    found = 0
    for tag, data in reader.tags():
        if tag == 0:
            (found,) = _LONG.unpack(data)
    return found
