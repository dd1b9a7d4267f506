"""The three questions of each look at a large cluster, encoded and decoded by hand.

All topics (Metadata), ends of logs (ListOffsets) and sizes of logs (DescribeLogDirs): with 30,000
partitions a decoder for any message holds Python's lock for hundreds of milliseconds, during which
no page is served. Here the repeated parts are fixed runs of bytes that ``struct`` takes apart, and
an answer that is the same as the last one is not taken apart again. Raises OSError for what
cannot be read.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dashboard.cluster import BrokerView, ClusterView, PartitionView, TopicView
from dashboard.wire import WireConnection, topic_id_text

METADATA: Final = (3, 12)
LIST_OFFSETS: Final = (2, 5)
LOG_DIRS: Final = (35, 2)
LOG_DIRS_WITH_VOLUMES: Final = (35, 4)
LATEST: Final = -1
EARLIEST: Final = -2

_PARTITION: Final = struct.Struct(">hiii")  # error, index, leader, leader epoch
_OFFSET: Final = struct.Struct(">ihqqi")  # index, error, timestamp, offset, leader epoch
_SIZE: Final = struct.Struct(">iqqbb")  # index, size, lag, is future, no tags
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_VOLUME: Final = struct.Struct(">qq")


class LogDirectory(NamedTuple):
    """``total_bytes`` and ``free_bytes`` are None where the broker is too old to tell."""

    path: str
    is_offline: bool
    total_bytes: int | None
    free_bytes: int | None


@dataclass(slots=True)
class LogSizes:
    """What one broker holds. ``lags`` are those of its followers' logs that lag."""

    directories: list[LogDirectory] = field(default_factory=list)
    sizes: dict[str, dict[int, int]] = field(default_factory=dict)
    lags: dict[tuple[str, int], int] = field(default_factory=dict)
    total: int = 0


class Cursor:
    """A place in an answer."""

    __slots__ = ("data", "place")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.place]
            self.place += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def count(self) -> int:
        """Of a compact array, bounded by what is left."""
        count = self.varint() - 1
        if count > len(self.data) - self.place:
            raise OSError("an answer is cut short")
        return max(count, 0)

    def text(self) -> str | None:
        length = self.varint() - 1
        if length < 0:
            return None
        self.place += length
        return self.data[self.place - length : self.place].decode()

    def int16(self) -> int:
        self.place += 2
        value: int = _INT16.unpack_from(self.data, self.place - 2)[0]
        return value

    def int32(self) -> int:
        self.place += 4
        value: int = _INT32.unpack_from(self.data, self.place - 4)[0]
        return value

    def ids(self) -> tuple[int, ...]:
        count = self.count()
        self.place += 4 * count
        return struct.unpack_from(f">{count}i", self.data, self.place - 4 * count)

    def tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            length = self.varint()
            self.place += length

    def tagged(self) -> dict[int, bytes]:
        """Tagged fields by their numbers, for whoever knows one of them."""
        found: dict[int, bytes] = {}
        for _ in range(self.varint()):
            tag, length = self.varint(), self.varint()
            self.place += length
            found[tag] = self.data[self.place - length : self.place]
        return found

    def run(self, layout: struct.Struct, count: int) -> bytes:
        size = layout.size * count
        self.place += size
        return self.data[self.place - size : self.place]


class TopologySurvey:
    """All brokers and topics, as one Metadata answer tells them."""

    def __init__(self) -> None:
        self._answer = b""
        self._known: ClusterView | None = None

    def ask(self, connection: WireConnection) -> ClusterView:
        """The same object as the last time when nothing has changed."""
        answer = connection.ask_raw(*METADATA, b"\0\0\0\0", is_flexible=True)
        if answer != self._answer or self._known is None:
            self._known = decode_metadata(answer)
            self._answer = answer
        return self._known


def decode_metadata(answer: bytes) -> ClusterView:
    try:
        return _decode_metadata(Cursor(answer))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise OSError(f"an answer that makes no sense: {error}") from None


def _decode_metadata(cursor: Cursor) -> ClusterView:
    cursor.int32()  # throttle time
    brokers = []
    for _ in range(cursor.count()):
        broker_id, host, port, rack = cursor.int32(), cursor.text(), cursor.int32(), cursor.text()
        cursor.tags()
        brokers.append(BrokerView(broker_id, host or "", port, rack))
    cluster_id, controller_id = cursor.text(), cursor.int32()
    topics = []
    for _ in range(cursor.count()):
        cursor.int16()  # its error: a topic that is being made or deleted
        name = cursor.text() or ""
        topic_id = uuid.UUID(bytes=cursor.data[cursor.place : cursor.place + 16])
        is_internal = cursor.data[cursor.place + 16] != 0
        cursor.place += 17
        partitions = sorted(
            (_partition(cursor) for _ in range(cursor.count())), key=lambda one: one.index
        )
        cursor.int32()  # authorised operations
        cursor.tags()
        topics.append(TopicView(name, topic_id_text(topic_id), is_internal, tuple(partitions)))
    topics.sort(key=lambda topic: topic.name)
    brokers.sort(key=lambda broker: broker.broker_id)
    return ClusterView(
        cluster_id, controller_id if controller_id >= 0 else None, tuple(brokers), tuple(topics)
    )


def _partition(cursor: Cursor) -> PartitionView:
    _, index, leader, leader_epoch = _PARTITION.unpack_from(cursor.data, cursor.place)
    cursor.place += _PARTITION.size
    replicas, isr = cursor.ids(), cursor.ids()
    cursor.ids()  # offline replicas
    cursor.tags()
    return PartitionView(
        index,
        leader if leader >= 0 else None,
        leader_epoch if leader_epoch >= 0 else None,
        replicas,
        isr,
    )


Wanted = Sequence[tuple[str, Sequence[int]]]


def ask_offsets(
    connection: WireConnection, wanted: Wanted, timestamp: int
) -> Iterable[tuple[str, int, int, int]]:
    """(topic, partition, error code, offset) of some partitions that this broker leads."""
    parts = [struct.pack(">ibi", -1, 0, len(wanted))]
    for topic, indexes in wanted:
        name = topic.encode()
        parts.append(_INT16.pack(len(name)) + name + _INT32.pack(len(indexes)))
        parts += [struct.pack(">iiq", index, -1, timestamp) for index in indexes]
    answer = connection.ask_raw(*LIST_OFFSETS, b"".join(parts), is_flexible=False)
    try:
        return list(_decode_offsets(Cursor(answer)))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise OSError(f"an answer that makes no sense: {error}") from None


def _decode_offsets(cursor: Cursor) -> Iterable[tuple[str, int, int, int]]:
    cursor.int32()  # throttle time
    for _ in range(cursor.int32()):
        length = cursor.int16()
        cursor.place += length
        name = cursor.data[cursor.place - length : cursor.place].decode()
        run = cursor.run(_OFFSET, cursor.int32())
        for index, error, _, offset, _ in _OFFSET.iter_unpack(run):
            yield name, index, error, offset


def ask_log_sizes(connection: WireConnection, *, with_volumes: bool) -> LogSizes:
    request = LOG_DIRS_WITH_VOLUMES if with_volumes else LOG_DIRS
    answer = connection.ask_raw(*request, b"\0\0", is_flexible=True)
    try:
        return _decode_log_sizes(Cursor(answer), with_volumes)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise OSError(f"an answer that makes no sense: {error}") from None


def _decode_log_sizes(cursor: Cursor, with_volumes: bool) -> LogSizes:
    found = LogSizes()
    cursor.int32()  # throttle time
    if with_volumes:
        cursor.int16()
    for _ in range(cursor.count()):
        error, path = cursor.int16(), cursor.text() or ""
        for _ in range(cursor.count()):
            name = cursor.text() or ""
            of_topic = found.sizes.setdefault(name, {})
            run = cursor.run(_SIZE, cursor.count())
            for index, size, lag, is_future, tags in _SIZE.iter_unpack(run):
                if tags:
                    raise OSError("an answer with fields that nobody has told us of")
                if not is_future:
                    of_topic[index] = size
                    found.total += size
                    if lag > 0:
                        found.lags[name, index] = lag
            cursor.tags()
        total = free = -1
        if with_volumes:
            total, free = _VOLUME.unpack_from(cursor.data, cursor.place)
            cursor.place += _VOLUME.size
        cursor.tags()
        found.directories.append(
            LogDirectory(
                path, error != 0, total if total >= 0 else None, free if free >= 0 else None
            )
        )
    return found
