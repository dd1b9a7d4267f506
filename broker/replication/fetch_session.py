"""Incremental fetch sessions (KIP-227): what a client already told and was already told.

A session remembers each partition's fetch parameters, so that later requests name only changes,
and what was last answered, so that answers name only partitions with news. The cache is bounded
by ``max.incremental.fetch.session.cache.slots`` and in its partitions; a full cache gives a slot to a newcomer only
when a session has been idle for two minutes (as Apache Kafka's default), else the newcomer is
answered without a session (id 0), which every client understands.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from broker.model.ids import TopicId
from broker.protocol.hot.fetch import FetchPartition, FetchPartitionResult, FetchRequest

if TYPE_CHECKING:
    from broker.replication.partition import Partition

#: Topic name up to Fetch v12, topic id from v13.
TopicKey = str | TopicId

INVALID_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EVICTION_IDLE_MS: Final = 120_000
#: Partitions that one session may hold; more are fetched without a session.
MAX_SESSION_PARTITIONS: Final = 20_000
#: Partitions that all sessions together may hold: about 100 MB.
MAX_CACHED_PARTITIONS: Final = 250_000


class SessionPartition:
    """Fetch parameters of one partition, and what the client was last told of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "quiet_version",
        "replica",
        "seen_error",
        "seen_high_watermark",
        "seen_log_start_offset",
        "topic",
    )

    def __init__(self, topic: TopicKey, wanted: FetchPartition) -> None:
        self.topic = topic
        self.partition = wanted.partition
        #: Where it was found last; a closed one has a version that equals no quiet version.
        self.replica: Partition | None = None
        self.seen_high_watermark = -1
        self.seen_log_start_offset = -1
        self.seen_error = 0
        self.update(wanted)

    def update(self, wanted: FetchPartition) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        #: The reader's own, where it is a follower.
        self.log_start_offset = wanted.log_start_offset
        #: ``Partition.version`` at which there was nothing to tell; -1 when unknown.
        self.quiet_version = -1

    def has_news(self, result: FetchPartitionResult) -> bool:
        """Whether an incremental answer must name this partition."""
        return (
            bool(result.records)
            or result.error_code != 0
            or self.seen_error != 0
            or result.high_watermark != self.seen_high_watermark
            or result.log_start_offset != self.seen_log_start_offset
            or result.diverging_epoch is not None
            or result.preferred_read_replica >= 0
        )

    def told(self, result: FetchPartitionResult) -> None:
        self.seen_high_watermark = result.high_watermark
        self.seen_log_start_offset = result.log_start_offset
        self.seen_error = result.error_code


class FetchSession:
    """One client's session. ``partitions`` is in the order in which they are read."""

    __slots__ = ("epoch", "id", "last_used_ms", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.last_used_ms = now_ms
        self.partitions: OrderedDict[tuple[TopicKey, int], SessionPartition] = OrderedDict()

    def apply(self, request: FetchRequest) -> None:
        """Take over the request's additions, changes and forgotten partitions."""
        partitions = self.partitions
        for topic, wanted_partitions in request.topics:
            for wanted in wanted_partitions:
                key = (topic, wanted.partition)
                known = partitions.get(key)
                if known is None:
                    partitions[key] = SessionPartition(topic, wanted)
                else:
                    known.update(wanted)
        for topic, indexes in request.forgotten:
            for index in indexes:
                partitions.pop((topic, index), None)

    def rotate(self, keys: Iterable[tuple[TopicKey, int]]) -> None:
        """Move served partitions to the end, so that none starves behind a busy one."""
        for key in keys:
            if key in self.partitions:
                self.partitions.move_to_end(key)


def next_epoch(epoch: int) -> int:
    """Session epochs wrap to 1: 0 and -1 have meanings of their own."""
    return 1 if epoch == 0x7FFFFFFF else epoch + 1


class FetchSessionCache:
    """All sessions of this broker, least recently used first."""

    def __init__(self, slots: int, rng: random.Random) -> None:
        self._slots = slots
        self._rng = rng
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        #: Partitions in all of them.
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def update(self, session: FetchSession, request: FetchRequest, now_ms: int) -> bool:
        """Take over what an incremental request changes; False when the session grew too large and
        was ended: the client begins anew, without one."""
        before = len(session.partitions)
        session.apply(request)
        self._partition_count += len(session.partitions) - before
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.id)
        if (
            len(session.partitions) <= MAX_SESSION_PARTITIONS
            and self._partition_count <= MAX_CACHED_PARTITIONS
        ):
            return True
        self.remove(session.id)
        return False

    def create(
        self, request: FetchRequest, uses_topic_ids: bool, now_ms: int
    ) -> FetchSession | None:
        """A new session filled from a full fetch, or None when there is no room for it."""
        size = sum(len(partitions) for _, partitions in request.topics)
        if size == 0 or size > MAX_SESSION_PARTITIONS or not self._make_room(size, now_ms):
            return None
        session = FetchSession(self._new_id(), uses_topic_ids, now_ms)
        session.apply(request)
        self._sessions[session.id] = session
        self._partition_count += len(session.partitions)
        return session

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)

    def _make_room(self, size: int, now_ms: int) -> bool:
        while (
            len(self._sessions) >= self._slots
            or self._partition_count + size > MAX_CACHED_PARTITIONS
        ):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms < EVICTION_IDLE_MS:
                return False
            self.remove(oldest.id)
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randint(1, 0x7FFFFFFF)
            if session_id not in self._sessions:
                return session_id
