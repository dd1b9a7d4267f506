"""Fetch (key 1), versions 15 and later, from the brokers that follow.

Only over a connection that has proved the cluster's secret; anybody else with a replica id is told
TOPIC_AUTHORIZATION_FAILED, as Kafka tells who may not act for the cluster. A follower has one session, which is
its connection's: it holds no place in the clients' cache. A request counts for every partition of the
session, named or not; what it acknowledges is ``LeaderMachine``'s to judge. Records up to the log end are
sent; the high watermark and the log start come with the next answer that names the partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.model.error_code import ErrorCode
from broker.model.file_region import FileRegion
from broker.model.ids import BrokerId
from broker.protocol.hot.fetch import FetchPartitionResult, FetchRequest, encode_response
from broker.replication.fetch_session import (
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
    FetchSession,
    SessionPartition,
    next_epoch,
)
from broker.replication.read_replica import RACK_AWARE
from broker.replication.replica_fetch import (
    NO_ANSWER,
    Accepted,
    Diverged,
    FetchRefused,
    FetchVerdict,
    ReplicaFetch,
)
from broker.replication.replicated_partition import ReplicatedPartition
from broker.replication.throttle import ReplicationThrottle, is_throttled
from broker.server.handlers.fetch import TOPIC_IDS_FROM, FetchOperation, failed
from broker.storage.cold import ColdRead

if TYPE_CHECKING:
    from broker.model.ids import TopicId
    from broker.protocol.request import RequestHeader
    from broker.replication.delayed import DelayedFetch
    from broker.replication.partition import Partition
    from broker.server.app import Broker
    from broker.server.connection import Answer, Connection

#: A connection has one session, so any number but 0 will do.
SESSION_ID: Final = 1


class ReplicaSession(FetchSession):
    """What a follower fetches over one connection."""

    __slots__ = ("answer_sent_ms", "replica_epoch", "replica_id")

    def __init__(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> None:
        super().__init__(SESSION_ID, uses_topic_ids, now_ms)
        self.replica_id = request.replica_id
        self.replica_epoch = request.replica_epoch
        #: When the answer was sent that the next request shows to have arrived.
        self.answer_sent_ms: int | None = None


def handle(
    broker: Broker, connection: Connection, header: RequestHeader, request: FetchRequest
) -> Answer | None:
    proving = connection.proving
    if proving is None or not proving.is_proved:
        return _refuse_stranger(header, request)
    now_ms = broker.clock.monotonic_ms()
    is_full = request.session_epoch == INITIAL_EPOCH
    if is_full:
        session = ReplicaSession(request, header.api_version >= TOPIC_IDS_FROM, now_ms)
        proving.fetch_session = session
        sent_ms = None
    else:
        known = proving.fetch_session
        if not isinstance(known, ReplicaSession) or not _is_next(known, request):
            return _refuse_session(header, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session, sent_ms = known, known.answer_sent_ms
        session.epoch = next_epoch(session.epoch)
    session.apply(request)
    operation = ReplicaFetchOperation(broker, header, request, session, not is_full, sent_ms)
    operation.count_quiet()
    if not operation.is_large:
        operation.collect()
        if operation.is_answerable:
            return operation.answer()
    operation.wait(connection.defer(header))
    return None


def _is_next(session: ReplicaSession, request: FetchRequest) -> bool:
    return (session.id, session.epoch, session.replica_id, session.replica_epoch) == (
        request.session_id,
        request.session_epoch,
        request.replica_id,
        request.replica_epoch,
    )


def _refuse_session(header: RequestHeader, code: ErrorCode) -> Answer:
    return encode_response(
        header.api_version, header.correlation_id, 0, code, INVALID_SESSION_ID, [], []
    )


def _refuse_stranger(header: RequestHeader, request: FetchRequest) -> Answer:
    topics = [
        (key, [failed(each.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for each in partitions])
        for key, partitions in request.topics
    ]
    return encode_response(
        header.api_version, header.correlation_id, 0, 0, INVALID_SESSION_ID, topics, []
    )


class ReplicaFetchOperation(FetchOperation):
    """One request of a follower. What it acknowledges counts once, at the first look."""

    __slots__ = ("_replica_session", "_sent_ms", "_tells_at_once", "_verdicts")

    def __init__(
        self,
        broker: Broker,
        header: RequestHeader,
        request: FetchRequest,
        session: ReplicaSession,
        is_incremental: bool,
        sent_ms: int | None,
    ) -> None:
        super().__init__(broker, header, request, session, is_incremental)
        self._max_bytes = request.max_bytes
        self._replica_session = session
        #: A high watermark: consumers that read from followers wait for it.
        self._tells_at_once = broker.config.replica_selector_class == RACK_AWARE
        self._sent_ms = sent_ms
        self._verdicts: dict[tuple[str | TopicId, int], FetchVerdict] = {}

    def count_quiet(self) -> None:
        """Partitions of which there is nothing to tell are not looked at; what their fetches show
        counts all the same."""
        for entry in self._entries:
            replica = entry.replica
            if (
                replica is not None
                and replica.version == entry.quiet_version
                and not isinstance(self._verdict(entry, replica), Accepted)
            ):
                entry.quiet_version = -1

    def _look(self, entry: SessionPartition) -> None:
        super()._look(entry)
        replica = entry.replica
        if replica is not None and entry.fetch_offset < replica.log.log_end_offset:
            entry.quiet_version = -1  # it found no room in this answer

    def _verdict(self, entry: SessionPartition, replica: Partition) -> FetchVerdict:
        key = (entry.topic, entry.partition)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = self._judge(entry, replica)
        return verdict

    def _judge(self, entry: SessionPartition, replica: Partition) -> FetchVerdict:
        if not isinstance(replica, ReplicatedPartition):
            return FetchRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # it is on its way here
        session = self._replica_session
        fetch = ReplicaFetch(
            BrokerId(session.replica_id),
            session.replica_epoch,
            entry.current_leader_epoch,
            entry.fetch_offset,
            entry.last_fetched_epoch,
            NO_ANSWER,
        )
        broker = self._broker
        epochs, now_ms = broker.replicas.broker_epochs, broker.clock.monotonic_ms()
        start_offset = entry.log_start_offset
        return replica.on_replica_fetch(fetch, start_offset, epochs, now_ms, self._sent_ms)

    def _read_partition(self, entry: SessionPartition, replica: Partition) -> FetchPartitionResult:
        verdict = self._verdict(entry, replica)
        log = replica.log
        result = FetchPartitionResult(
            entry.partition,
            0,
            replica.high_watermark,
            replica.last_stable_offset,
            log.log_start_offset,
        )
        if isinstance(verdict, FetchRefused):
            result.error_code = int(verdict.error)
            return result
        if isinstance(verdict, Diverged):
            result.diverging_epoch = (verdict.leader_epoch, verdict.end_offset)
            return result
        if entry.log_start_offset < log.log_start_offset != entry.seen_log_start_offset:
            self._has_urgent = True  # somebody may wait until records are deleted everywhere
        if entry.seen_high_watermark < replica.high_watermark and self._tells_at_once:
            self._has_urgent = True
        end_offset = log.log_end_offset
        limit = min(entry.max_bytes, self._max_bytes - self._size)
        if limit <= 0 and self._size:
            return result
        throttle = self._throttle_of(entry, replica)
        if throttle is not None and throttle.wait_ms(self._broker.clock.monotonic_ms()) > 0:
            return result
        found = replica.read(entry.fetch_offset, limit, end_offset, self._size == 0)
        if isinstance(found, ColdRead):
            return self._missed(entry, found, result)
        if found.region is not None:
            result.records = found.region
            self._size += found.region.length
            if found.next_offset < end_offset:
                self._has_more = True
        return result

    def _throttle_of(
        self, entry: SessionPartition, replica: Partition
    ) -> ReplicationThrottle | None:
        """What its records count in, where the follower is not in sync and is held up."""
        throttled = replica.log.config.leader_replication_throttled_replicas
        if not throttled or not isinstance(replica, ReplicatedPartition):
            return None
        cluster = self._broker.cluster
        if cluster is None or self._replica_session.replica_id in replica.leader.isr.committed:
            return None
        if not is_throttled(throttled, entry.partition, cluster.broker_id):
            return None
        return cluster.replication.leader_throttle

    def _waiting_places(self, replicas: set[Partition]) -> list[set[DelayedFetch]]:
        return [each.replica_waiters for each in replicas if isinstance(each, ReplicatedPartition)]

    def answer(self) -> Answer:
        self._replica_session.answer_sent_ms = self._broker.clock.monotonic_ms()
        return super().answer()

    def _count(self, entry: SessionPartition, result: FetchPartitionResult) -> None:
        """What clients fetch is counted; this is not, but in a throttle."""
        replica, records = entry.replica, result.records
        if replica is not None and isinstance(records, FileRegion):
            throttle = self._throttle_of(entry, replica)
            if throttle is not None:
                throttle.record(records.length, self._broker.clock.monotonic_ms())
