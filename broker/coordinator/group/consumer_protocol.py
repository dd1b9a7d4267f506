"""The little that the coordinator reads of what consumers tell each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from broker.coordinator.record_codec import RecordReader, string

#: The protocol type of groups whose members are consumers.
CONSUMER: Final = "consumer"

_HEAD = Struct(">hi")
_SHORT = Struct(">h")
_INT = Struct(">i")
#: No bytes of the user's: an empty array, as Kafka writes it.
_NO_USER_DATA: Final = _INT.pack(-1)
_NEWEST_ASSIGNMENT: Final = 3


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """Topics in a consumer's subscription; None when it is none.

    Read as version 0, with which all versions begin.
    """
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or count < 0:
            return None
        topics: set[str] = set()
        position = _HEAD.size
        for _ in range(count):
            (length,) = _SHORT.unpack_from(metadata, position)
            position += 2
            if length < 0 or position + length > len(metadata):
                return None
            topics.add(metadata[position : position + length].decode(errors="replace"))
            position += length
    except StructError:
        return None
    return topics


class Subscription(NamedTuple):
    version: int
    topics: tuple[str, ...]
    #: Topic to partitions that the member has not given up (from version 1 on).
    owned: Mapping[str, Sequence[int]]
    rack_id: str | None


def read_subscription(metadata: bytes) -> Subscription:
    """All of a consumer's subscription. Raises ``MalformedRecord``."""
    reader = RecordReader(metadata)
    topics = tuple(reader.string() for _ in range(reader.array_length()))
    reader.data()
    owned = _read_partitions(reader) if reader.version >= 1 else {}
    if reader.version >= 2:
        reader.int32()
    rack_id = reader.nullable_string() if reader.version >= 3 else None
    return Subscription(reader.version, topics, owned, rack_id)


def read_assignment(data: bytes) -> dict[str, list[int]]:
    """Raises ``MalformedRecord``."""
    return _read_partitions(RecordReader(data)) if data else {}


def write_assignment(version: int, partitions: Mapping[str, Sequence[int]]) -> bytes:
    """``version``: that of the member's subscription."""
    parts = [_HEAD.pack(min(version, _NEWEST_ASSIGNMENT), len(partitions))]
    for topic, indexes in partitions.items():
        parts += (string(topic), Struct(f">i{len(indexes)}i").pack(len(indexes), *indexes))
    return b"".join(parts) + _NO_USER_DATA


def _read_partitions(reader: RecordReader) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for _ in range(reader.array_length()):
        topic = reader.string()
        found.setdefault(topic, []).extend(reader.int32() for _ in range(reader.array_length()))
    return found
