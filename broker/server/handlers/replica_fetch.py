"""Fetch (key 1), versions 15 and later, from the brokers that follow.

Only over a connection that has proved the cluster's secret; anybody else with a replica id is told
TOPIC_AUTHORIZATION_FAILED, as Kafka tells who may not act for the cluster. A follower has one session, which is
its connection's: it holds no place in the clients' cache. A request counts for every partition of the
session, named or not; what it acknowledges is ``LeaderMachine``'s to judge. Records up to the log end are
sent; the high watermark and the log start come with the next answer that names the partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.model.error_code import ErrorCode
from broker.model.file_region import FileRegion
from broker.protocol.hot.fetch import FetchPartitionResult, FetchRequest, encode_response
from broker.replication.fetch_session import (
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
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
from broker.replication.replica_session import ReplicaEntry, ReplicaSession
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
        session.apply(request)
    else:
        known = proving.fetch_session
        if not isinstance(known, ReplicaSession) or not _is_next(known, request):
            return _refuse_session(header, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session, sent_ms = known, known.answer_sent_ms
        session.apply(request)
        if broker.replicas.broker_epochs.get(session.replica_id) == session.replica_epoch:
            session.pulse.beat(now_ms, sent_ms)
        else:
            session.rouse_all()
        session.epoch = next_epoch(session.epoch)
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
        self._entries = session.loud.keys()
        self._max_bytes = request.max_bytes
        self._replica_session = session
        #: A high watermark: consumers that read from followers wait for it.
        self._tells_at_once = broker.config.replica_selector_class == RACK_AWARE
        self._sent_ms = sent_ms
        self._verdicts: dict[tuple[str | TopicId, int], FetchVerdict] = {}

    def count_quiet(self) -> None:
        """Loud ones of which there is nothing to tell are not read; what their fetches show counts all the
        same. For those at rest the session's pulse has counted."""
        for entry in tuple(self._entries):
            replica = entry.replica
            if (
                replica is not None
                and replica.version == entry.quiet_version
                and not isinstance(self._verdict(entry, replica), Accepted)
            ):
                entry.quiet_version = -1

    def collect(self) -> None:
        """Again if the look itself brought news where it had passed already: what this request acknowledges
        may commit the end of a transaction, whose markers are appended in the same turn, and nobody would wake
        a request that does not wait yet."""
        self._look_once()
        while self._replica_session.has_news and not self.is_answerable:
            self._look_once()

    def _look_once(self) -> None:
        self._begin_look()
        for entry in tuple(self._entries):  # whoever finds rest leaves them
            replica = entry.replica
            if (
                not self._is_incremental
                or replica is None
                or replica.version != entry.quiet_version
            ):
                self._look(entry)

    def _begin_look(self) -> None:
        super()._begin_look()
        self._replica_session.has_news = False

    def _has_changed(self, looked: list[tuple[Partition, int]]) -> bool:
        return self._replica_session.has_news

    def _look(self, entry: SessionPartition) -> None:
        super()._look(entry)
        replica = entry.replica
        if replica is None:
            return
        if entry.fetch_offset < replica.log.log_end_offset:
            entry.quiet_version = -1  # it found no room in this answer
        elif (
            entry.quiet_version == replica.version
            and isinstance(replica, ReplicatedPartition)
            and isinstance(entry, ReplicaEntry)
        ):
            replica.maybe_rest(self._replica_session.replica_id, entry)

    def _verdict(self, entry: SessionPartition, replica: Partition) -> FetchVerdict:
        key = (entry.topic, entry.partition)
        verdict = self._verdicts.get(key)
        if verdict is None:
            session = self._replica_session
            if isinstance(entry, ReplicaEntry) and entry.roused_in == session.epoch:
                verdict = Accepted(entry.fetch_offset)  # it was at rest when the request came
            else:
                verdict = self._judge(entry, replica)
            self._verdicts[key] = verdict
        return verdict

    def _judge(self, entry: SessionPartition, replica: Partition) -> FetchVerdict:
        if not isinstance(replica, ReplicatedPartition):
            return FetchRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # it is on its way here
        session = self._replica_session
        if isinstance(entry, ReplicaEntry):
            replica.watch(session.replica_id, entry)
        fetch = ReplicaFetch(
            session.replica_id,
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
        return [self._replica_session.waiters]

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
