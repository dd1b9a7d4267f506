"""Fetch (key 1), versions 4-18.

Behaviour: partitions are read in the order of the request (or of the session); the first that has
data returns at least one whole batch however large (KIP-74), the others obey ``max_bytes``. A
fetch that finds fewer than ``min_bytes`` waits for appends, at most ``max_wait_ms``; an error in any
partition is answered at once. Records leave as file regions and are never read here. Pages that
are not in memory are pulled in by a reader thread first; the request waits for them, so an empty
answer below the high watermark does not happen.

Sessions (KIP-227) and topic ids (13+) as in Kafka: an unknown id fails its partition only.

Consumers may read from followers (KIP-392), version 11+: up to the high watermark as the leader told it. A
leader with ``replica.selector.class`` names an in-sync follower in the consumer's rack, at once and without
records, at every fetch.

Fetches of followers are ``replica_fetch.py``'s. Left out: tiered storage.

Hot path: per fetched partition one look-up, one ``Partition.read`` and one result object; within
a session a partition without news costs one comparison.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.model.error_code import ErrorCode
from broker.model.errors import CorruptLogError, KafkaError, NoDescriptorError, StorageError
from broker.model.file_region import FileRegion
from broker.protocol.hot.fetch import (
    FetchPartitionResult,
    FetchRequest,
    decode_request,
    encode_response,
)
from broker.replication.delayed import DelayedFetch
from broker.replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
    FetchSession,
    SessionPartition,
    next_epoch,
)
from broker.replication.read_replica import RACK_AWARE
from broker.server.connection import Answer, Connection, ResponseSlot
from broker.server.tasks import Turn
from broker.storage.cold import ColdRead

if TYPE_CHECKING:
    from broker.model.ids import BrokerId, TopicId
    from broker.protocol.request import RequestHeader
    from broker.replication.partition import Partition
    from broker.server.app import Broker

TOPIC_IDS_FROM: Final = 13
FOLLOWERS_FROM: Final = 11
READ_COMMITTED: Final = 1
NO_OFFSET: Final = -1
#: Partitions whose cold pages are pulled in by one trip to a reader thread.
MAX_COLD_READS: Final = 64
#: More partitions are looked at in several turns of the loop.
PARTITIONS_AT_ONCE: Final = 1000


def handle(
    broker: Broker, connection: Connection, header: RequestHeader, frame: memoryview
) -> Answer | None:
    """Answer at once if there is enough, else wait."""
    request = decode_request(header.api_version, frame, header.body_offset)
    return handle_decoded(broker, connection, header, request, frame)


def handle_decoded(
    broker: Broker,
    connection: Connection,
    header: RequestHeader,
    request: FetchRequest,
    frame: memoryview,
) -> Answer | None:
    version = header.api_version
    if request.replica_id >= 0:
        # Here: that module builds on this one, and a broker by itself needs none of it.
        from broker.server.handlers.replica_fetch import handle as handle_replica

        return handle_replica(broker, connection, header, request)
    try:
        session, is_incremental = _resolve_session(broker, request, version >= TOPIC_IDS_FROM)
    except KafkaError as error:
        return encode_response(
            version, header.correlation_id, 0, error.code, INVALID_SESSION_ID, [], []
        )
    operation = FetchOperation(broker, header, request, session, is_incremental)
    if not operation.is_large:
        operation.collect()
        if operation.is_answerable:
            return operation.answer()
    operation.wait(connection.defer(header))
    return None


def _resolve_session(
    broker: Broker, request: FetchRequest, uses_topic_ids: bool
) -> tuple[FetchSession | None, bool]:
    """The request's session (None: sessionless) and whether the answer names only news."""
    cache = broker.fetch_sessions
    now_ms = broker.clock.monotonic_ms()
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != INVALID_SESSION_ID:
            cache.remove(request.session_id)
        if request.session_epoch == FINAL_EPOCH:
            return None, False
        return cache.create(request, uses_topic_ids, now_ms), False
    session = cache.get(request.session_id)
    if session is None:
        raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    if session.epoch != request.session_epoch:
        raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    if session.uses_topic_ids != uses_topic_ids:
        raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
    if not cache.update(session, request, now_ms):
        raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    session.epoch = next_epoch(session.epoch)
    return session, True


class FetchOperation:
    """One request: what it wants, and what was found at the last look."""

    __slots__ = (
        "_broker",
        "_cold",
        "_correlation_id",
        "_deadline_ms",
        "_delayed",
        "_entries",
        "_has_more",
        "_has_urgent",
        "_is_incremental",
        "_is_read_committed",
        "_max_bytes",
        "_rack",
        "_racks",
        "_request",
        "_results",
        "_session",
        "_size",
        "_slot",
        "_unreadable",
        "_version",
        "_wants_any",
    )  # fmt: skip

    def __init__(
        self,
        broker: Broker,
        header: RequestHeader,
        request: FetchRequest,
        session: FetchSession | None,
        is_incremental: bool,
    ) -> None:
        self._broker = broker
        self._version = header.api_version
        self._correlation_id = header.correlation_id
        self._request = request
        self._session = session
        self._is_incremental = is_incremental
        self._is_read_committed = request.isolation_level == READ_COMMITTED
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        #: The consumer's, where it matters.
        self._rack = request.rack_id if _is_rack_looked_at(broker) else ""
        self._racks: dict[BrokerId, str | None] = {}
        self._entries: Collection[SessionPartition] = (
            session.partitions.values()
            if session is not None
            else [
                SessionPartition(key, wanted)
                for key, partitions in request.topics
                for wanted in partitions
            ]
        )
        self._wants_any = len(self._entries) > 0
        self._results: list[tuple[SessionPartition, FetchPartitionResult]] = []
        self._size = 0
        self._has_urgent = False
        self._has_more = False
        self._cold: list[tuple[SessionPartition, ColdRead]] = []
        #: Partitions of which a reader thread could not read.
        self._unreadable: set[SessionPartition] = set()
        self._slot: ResponseSlot | None = None
        self._delayed: DelayedFetch | None = None
        self._deadline_ms = 0

    # -- looking ------------------------------------------------------------------------------

    @property
    def is_large(self) -> bool:
        return len(self._entries) > PARTITIONS_AT_ONCE

    def collect(self) -> None:
        """Read every partition once; replaces what an earlier look found."""
        self._begin_look()
        is_incremental = self._is_incremental
        for entry in self._entries:
            replica = entry.replica
            if is_incremental and replica is not None and replica.version == entry.quiet_version:
                continue
            self._look(entry)

    async def _collect_in_turns(self, slot: ResponseSlot) -> None:
        """As ``collect``, for many partitions; again if news came where it had looked already."""
        is_missing_news = True
        while is_missing_news and slot.is_open:
            self._begin_look()
            turn = Turn()
            looked: list[tuple[Partition, int]] = []
            for entry in tuple(self._entries):
                replica = entry.replica
                is_quiet = replica is not None and replica.version == entry.quiet_version
                if not (is_quiet and self._is_incremental):
                    self._look(entry)
                if entry.replica is not None:
                    looked.append((entry.replica, entry.replica.version))
                if turn.is_over:
                    await turn.pass_on()
            is_missing_news = not self.is_answerable and self._has_changed(looked)
        if slot.is_open:
            self._go_on()

    def _has_changed(self, looked: list[tuple[Partition, int]]) -> bool:
        return any(replica.version != version for replica, version in looked)

    def _begin_look(self) -> None:
        self._results = []
        self._size = 0
        self._has_urgent = False
        self._has_more = False
        self._cold = []
        if self._rack:
            brokers = self._broker.image.brokers
            self._racks = {broker_id: each.rack for broker_id, each in brokers.items()}

    def _look(self, entry: SessionPartition) -> None:
        result = self._read(entry)
        if result.error_code != 0 or result.diverging_epoch is not None:
            self._has_urgent = True
        elif self._is_incremental and not entry.has_news(result):
            # Quiet only at the very end: others may just have found no room in this answer.
            if (
                entry.fetch_offset >= result.high_watermark
                and entry.replica is not None
                and not self._rack
            ):
                entry.quiet_version = entry.replica.version
            return
        self._results.append((entry, result))

    def _read(self, entry: SessionPartition) -> FetchPartitionResult:
        entry.replica = None
        try:
            if entry in self._unreadable:
                return failed(entry.partition, ErrorCode.KAFKA_STORAGE_ERROR)
            replica = self._find(entry)
            entry.replica = replica
            replica.check_leader_epoch(entry.current_leader_epoch)
            return self._read_partition(entry, replica)
        except KafkaError as error:
            return failed(entry.partition, error.code)
        except CorruptLogError as error:
            self._broker.report_corruption(error)
            return failed(entry.partition, ErrorCode.CORRUPT_MESSAGE)
        except (StorageError, NoDescriptorError, OSError) as error:
            self._broker.report_read_error(entry.topic, entry.partition, error)
            return failed(entry.partition, ErrorCode.KAFKA_STORAGE_ERROR)

    def _find(self, entry: SessionPartition) -> Partition:
        replicas = self._broker.replicas
        try:
            return replicas.find(entry.topic, entry.partition)
        except KafkaError as error:
            is_elsewhere = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            if not is_elsewhere or self._version < FOLLOWERS_FROM or self._request.replica_id >= 0:
                raise
            return replicas.find_reader(entry.topic, entry.partition)

    def _read_partition(self, entry: SessionPartition, replica: Partition) -> FetchPartitionResult:
        log = replica.log
        result = FetchPartitionResult(
            entry.partition,
            0,
            replica.high_watermark,
            replica.last_stable_offset,
            log.log_start_offset,
        )
        if self._rack:
            reader = replica.preferred_reader(self._rack, entry.fetch_offset, self._racks)
            if reader >= 0:
                result.preferred_read_replica = reader
                self._has_urgent = True
                return result
        if entry.last_fetched_epoch >= 0:
            diverging = replica.diverging_epoch(entry.last_fetched_epoch, entry.fetch_offset)
            if diverging is not None:
                result.diverging_epoch = diverging
                return result
        end_offset = replica.readable_end(self._is_read_committed)
        limit = min(entry.max_bytes, self._max_bytes - self._size)
        if limit <= 0 and self._size:
            end_offset = 0  # the answer is full: only look whether the offset is in range
        found = replica.read(entry.fetch_offset, limit, end_offset, self._size == 0)
        if isinstance(found, ColdRead):
            return self._missed(entry, found, result)
        region = found.region
        if self._is_read_committed:
            result.aborted = ()
            if region is not None:
                aborted = log.aborted_transactions(entry.fetch_offset, found.next_offset)
                if isinstance(aborted, ColdRead):
                    return self._missed(entry, aborted, result)
                result.aborted = aborted
        if region is not None:
            result.records = region
            self._size += region.length
            result.record_count = found.next_offset - max(entry.fetch_offset, found.base_offset)
            if found.next_offset < end_offset:
                self._has_more = True
        return result

    def _missed(
        self, entry: SessionPartition, cold: ColdRead, result: FetchPartitionResult
    ) -> FetchPartitionResult:
        if len(self._cold) < MAX_COLD_READS:
            self._cold.append((entry, cold))
        return result

    @property
    def is_answerable(self) -> bool:
        if self._has_urgent:
            return True
        if self._cold:
            return False
        request = self._request
        return (
            self._size >= request.min_bytes
            # No append is needed for more: a segment ended here, or a limit was reached.
            or self._has_more
            or request.max_wait_ms <= 0
            or not self._wants_any
        )

    # -- waiting ------------------------------------------------------------------------------

    def wait(self, slot: ResponseSlot) -> None:
        """Wait for cold pages, or for appends until the deadline."""
        self._slot = slot
        slot.on_cancel = self._cancel
        now_ms = self._broker.clock.monotonic_ms()
        self._deadline_ms = now_ms + self._request.max_wait_ms
        if self.is_large:
            self._look_again()  # it has not looked yet
        else:
            self._wait_further()

    def _look_again(self) -> None:
        """Look, then answer or wait; at many partitions in turns."""
        slot = self._slot
        assert slot is not None
        if self.is_large:
            self._broker.dispatcher.spawn(slot, self._collect_in_turns(slot), "Fetch")
        else:
            self.collect()
            self._go_on()

    def _go_on(self) -> None:
        if self.is_answerable:
            self._finish()
        else:
            self._wait_further()

    def _wait_further(self) -> None:
        if self._cold:
            cold = self._cold
            for _, read in cold:
                read.file.pin()
            self._broker.threads.read(
                partial(_pull_all, [read for _, read in cold]), partial(self._on_warm, cold)
            )
            return
        remaining_ms = self._deadline_ms - self._broker.clock.monotonic_ms()
        if remaining_ms <= 0:
            self._finish()
            return
        replicas = {entry.replica for entry in self._entries if entry.replica is not None}
        self._delayed = DelayedFetch(
            self._waiting_places(replicas),
            remaining_ms,
            self._broker.scheduler,
            self._try_complete,
            self._on_deadline,
        )

    def _waiting_places(self, replicas: set[Partition]) -> list[set[DelayedFetch]]:
        return [replica.fetch_waiters for replica in replicas]

    def _on_warm(
        self,
        cold: list[tuple[SessionPartition, ColdRead]],
        errors: list[OSError | None] | None,
        _failure: Exception | None,
    ) -> None:
        for _, read in cold:
            read.file.unpin()
        slot = self._slot
        if slot is None or not slot.is_open:
            return
        with self._broker.dispatcher.guard(slot):
            assert errors is not None
            for (entry, _), error in zip(cold, errors, strict=True):
                if error is not None:
                    self._broker.report_read_error(entry.topic, entry.partition, error)
                    self._unreadable.add(entry)
            self._look_again()

    def _try_complete(self) -> bool:
        slot = self._slot
        assert slot is not None
        with self._broker.dispatcher.guard(slot):
            if self.is_large:
                self._look_again()
                return True
            self.collect()
            if not self._cold and not self.is_answerable:
                return False
            self._go_on()
        return True

    def _on_deadline(self) -> None:
        slot = self._slot
        assert slot is not None
        with self._broker.dispatcher.guard(slot):
            if self._size:
                self._look_again()  # what was found may be old, and its file gone
            else:
                self._finish()

    def _finish(self) -> None:
        slot = self._slot
        assert slot is not None
        self._delayed = None
        slot.complete(self.answer())

    def _cancel(self) -> None:
        delayed, self._delayed = self._delayed, None
        if delayed is not None:
            delayed.cancel()

    # -- answering ----------------------------------------------------------------------------

    def answer(self) -> Answer:
        session = self._session
        topics: list[tuple[str | TopicId, list[FetchPartitionResult]]] = []
        last_key: object = None
        for entry, result in self._results:
            if entry.topic != last_key:
                last_key = entry.topic
                topics.append((entry.topic, []))
            topics[-1][1].append(result)
            self._count(entry, result)
            entry.told(result)
        if session is not None:
            session.rotate(
                [
                    (entry.topic, entry.partition)
                    for entry, result in self._results
                    if result.records
                ]
            )
        session_id = session.id if session is not None else INVALID_SESSION_ID
        return encode_response(self._version, self._correlation_id, 0, 0, session_id, topics, [])

    def _count(self, entry: SessionPartition, result: FetchPartitionResult) -> None:
        replica = entry.replica
        has_failed = result.error_code != 0
        if replica is not None:
            records = result.records
            size = records.length if isinstance(records, FileRegion) else 0
            replica.traffic.on_fetched(size, result.record_count, has_failed)
            return
        total = self._broker.replicas.traffic
        total.fetch_requests += 1
        total.failed_fetch_requests += 1


def _is_rack_looked_at(broker: Broker) -> bool:
    return broker.config.replica_selector_class == RACK_AWARE


def _pull_all(reads: list[ColdRead]) -> list[OSError | None]:
    """In a reader thread: what could not be read, in the order of ``reads``."""
    errors: list[OSError | None] = []
    for read in reads:
        try:
            read.pull()
        except OSError as error:
            errors.append(error)
        else:
            errors.append(None)
    return errors


def failed(partition: int, code: ErrorCode) -> FetchPartitionResult:
    return FetchPartitionResult(partition, int(code), NO_OFFSET, NO_OFFSET, NO_OFFSET)
