"""Who lags behind a partition's leader, by how many records and since when: DescribeQuorum at the leader.

Any partition of an Odradek cluster is told of (decision 15); Apache Kafka tells of its metadata only, and
answers the rest with an error, which is nothing told. Many partitions go into one request, encoded by hand as
in ``survey_wire``. Raises OSError for what cannot be read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from dashboard.survey_wire import Cursor, Wanted
from dashboard.wire import WireConnection

DESCRIBE_QUORUM: Final = (55, 1)
OBSERVED_SINCE_TAG: Final = 10_000
PARTITIONS_PER_REQUEST: Final = 500
#: Which partitions are asked of at a time; of the rest nothing is told.
MAX_PARTITIONS: Final = 5000

_PARTITION: Final = struct.Struct(">ihiiq")  # index, error, leader, leader epoch, high watermark
_REPLICA: Final = struct.Struct(">iqqq")  # id, log end offset, fetched at, caught up at
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")

Place = tuple[str, int]


class Behind(NamedTuple):
    """A follower as its leader sees it. ``lag`` in records, as of its last fetch; None: it has not fetched since
    this leader leads."""

    lag: int | None
    since_ms: int | None
    """When it was in sync last; None: not known."""
    is_since_known: bool
    """False: the leader leads since then only, and has never seen it in sync."""


NOTHING_TOLD: Final = Behind(None, None, False)
Followers = dict[Place, dict[int, Behind]]


def ask_followers(connection: WireConnection, wanted: Wanted) -> Followers:
    """Of partitions that this broker leads; others are left out of the answer."""
    found: Followers = {}
    places = islice(
        ((topic, index) for topic, indexes in wanted for index in indexes), MAX_PARTITIONS
    )
    while piece := list(islice(places, PARTITIONS_PER_REQUEST)):
        answer = connection.ask_raw(*DESCRIBE_QUORUM, _request(piece), is_flexible=True)
        try:
            found.update(_decode(Cursor(answer)))
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise OSError(f"an answer that makes no sense: {error}") from None
    return found


def _request(places: Sequence[Place]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, index in places:
        by_topic.setdefault(topic, []).append(index)
    parts = [_count(len(by_topic))]
    for topic, indexes in by_topic.items():
        name = topic.encode()
        parts += [_count(len(name)), name, _count(len(indexes))]
        parts += [_INT32.pack(index) + b"\0" for index in indexes]
        parts.append(b"\0")
    return b"".join(parts) + b"\0"


def _count(count: int) -> bytes:
    """Of a compact array or string."""
    value, encoded = count + 1, bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _decode(cursor: Cursor) -> Iterator[tuple[Place, dict[int, Behind]]]:
    if cursor.int16():
        return  # nothing is told here
    for _ in range(cursor.count()):
        topic = cursor.text() or ""
        for _ in range(cursor.count()):
            (head,) = _PARTITION.iter_unpack(cursor.run(_PARTITION, 1))
            index, error, leader_id = head[0], head[1], head[2]
            voters = {replica[0]: replica for replica in _replicas(cursor)}
            list(_replicas(cursor))  # observers
            cursor.tags()
            leader = voters.pop(leader_id, None)
            if not error and leader is not None:
                yield (
                    (topic, index),
                    {each[0]: _behind(each, leader[1]) for each in voters.values()},
                )
        cursor.tags()


Replica = tuple[int, int, int, int]


def _replicas(cursor: Cursor) -> Iterator[Replica]:
    """(id, log end offset, caught up at, observed since); times are -1 where they are not known."""
    for _ in range(cursor.count()):
        (told,) = _REPLICA.iter_unpack(cursor.run(_REPLICA, 1))
        tagged = cursor.tagged()
        since = tagged.get(OBSERVED_SINCE_TAG)
        observed_ms = -1 if since is None else _INT64.unpack(since)[0]
        yield told[0], told[1], told[3], observed_ms


def _behind(replica: Replica, leader_end: int) -> Behind:
    _, end, caught_up_ms, observed_ms = replica
    lag = max(0, leader_end - end) if end >= 0 else None
    if caught_up_ms >= 0:
        return Behind(lag, caught_up_ms, True)
    return Behind(lag, observed_ms if observed_ms >= 0 else None, False)
