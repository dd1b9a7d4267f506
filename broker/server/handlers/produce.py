"""Produce (key 0), versions 3-13.

Behaviour: every partition gets its own verdict; appends happen in the order of arrival. acks=0 has
no answer, and an error then closes the connection, so that the client looks for metadata anew (G26).
acks=1 and acks=all answer once the high watermark covers the batch, which with one replica is at once
unless ``flush.messages=1`` makes it wait for the disk. With several, acks=1 does not wait for followers, but
needs the leader's lease; acks=all needs ``min.insync.replicas`` before the append and when it is committed.

Per version: 3-8 plain; 9+ flexible; 10+ may name the current leader; 13 topics by id. Versions 0-2 are
advertised but refused by the dispatcher (KIP-896).

A request with many batches is appended in several turns of the loop.

A transactional batch is appended when the transaction coordinator (perhaps on another broker, then all partitions
of a request are asked for at once) knows that its partition was added, so that nobody can pin the last stable
offset (KIP-890). Else 11+ is told TRANSACTION_ABORTABLE, older
ones INVALID_TXN_STATE; a coordinator that is not ready is told as NOT_ENOUGH_REPLICAS, which every
producer retries. From version 12 on batches add their partitions themselves (``transaction.version`` 2):
all partitions of the request at once, before any batch is appended, and whether or not it can be. A
producer's first batch on a partition then has sequence 0. If the last transaction is not quite over yet,
the request waits for a moment, and everything behind it on its connection, before it is told
CONCURRENT_TRANSACTIONS.

Hot path: runs once per request, ``_append`` once per batch; the common answer (one partition, no
error, nothing to wait for) allocates one tuple and two lists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.coordinator.transaction.requests import ProducerOfTransaction
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.protocol.errors import TooManyElements
from broker.protocol.hot.produce import ProduceRequest, decode_request, encode_response
from broker.records.header import HEADER_SIZE, TRANSACTIONAL_FLAG, peek_header
from broker.records.validation import InvalidBatch, check_header
from broker.replication.delayed import DelayedProduce
from broker.server.connection import Answer, CloseConnection, Connection, ResponseSlot
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.model.ids import TopicId
    from broker.protocol.request import RequestHeader
    from broker.records.header import BatchHeader
    from broker.replication.partition import Partition
    from broker.replication.replica_manager import AppendOutcome
    from broker.server.app import Broker
    from broker.server.verification import Verification
    from broker.storage.append_info import AppendInfo

#: index, error code, base offset, log append time, log start offset, record errors, message
PartitionResult = tuple[int, int, int, int, int, "list[tuple[int, str]] | None", str | None]
TopicResults = list[tuple["str | TopicId", list[PartitionResult]]]

#: What is left of a large request: its topic, the list of results, the partition, the records.
Left = tuple["str | TopicId", list[PartitionResult], int, "memoryview | None"]

ACKS_ALL: Final = -1
#: A request with more of them is appended in several turns of the loop.
BATCHES_AT_ONCE: Final = 64
#: One with more of them is decoded in a thread.
PARTITIONS_DECODED_AT_ONCE: Final = 4000
#: Internal topics are written by this client alone, as in Kafka (and by the broker itself).
ADMIN_CLIENT_ID: Final = "__admin_client"
KNOWS_ABORTABLE_FROM: Final = 11
#: Batches add their partitions to the transaction.
ADDS_PARTITIONS_FROM: Final = 12
#: What a transaction coordinator says that is to be asked again.
_NOT_NOW: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_VALID_ACKS: Final = (ACKS_ALL, 0, 1)


def handle(
    broker: Broker, connection: Connection, header: RequestHeader, frame: memoryview
) -> Answer | None:
    """Append what ``frame`` carries; None when the answer comes later or never (acks=0)."""
    try:
        request = decode_request(
            header.api_version, frame, header.body_offset, PARTITIONS_DECODED_AT_ONCE
        )
    except TooManyElements:
        broker.dispatcher.begin_large(connection, header, frame)
        return None
    return handle_decoded(broker, connection, header, request, frame)


def handle_decoded(
    broker: Broker,
    connection: Connection,
    header: RequestHeader,
    request: ProduceRequest,
    frame: memoryview,
) -> Answer | None:
    operation = _ProduceOperation(broker, header, request)
    transactional_id = request.transactional_id
    if transactional_id is not None and (
        header.api_version >= ADDS_PARTITIONS_FROM
        or broker.transactions.coordinator_elsewhere(transactional_id) is not None
    ):
        added = operation.add_partitions(transactional_id)
    else:
        added = None
    if not operation.append_all(0 if added is not None else BATCHES_AT_ONCE):
        slot = operation.slot = connection.defer(header, is_alone=True)
        rest = operation.append_rest(operation.keep_rest(frame), added)
        broker.dispatcher.spawn(slot, rest, "Produce")
        return None
    if request.acks == 0 and not operation.unresolved:
        operation.close_on_error()
        return None
    if not operation.unresolved and not operation.waiting:
        return [operation.encode()]
    operation.slot = connection.defer(header)
    if not operation.unresolved:
        operation.await_acknowledgement()
    return None


class _ProduceOperation:
    """One request on its way: results so far, appends in threads, partitions to be acknowledged."""

    __slots__ = ("_add_error", "_api_version", "_broker", "_correlation_id", "_left",
                 "_may_write_internal", "_refusal", "_verification", "request", "results", "slot", "unresolved",
                 "waiting")  # fmt: skip

    def __init__(self, broker: Broker, header: RequestHeader, request: ProduceRequest) -> None:
        self._broker = broker
        self._api_version = header.api_version
        self._correlation_id = header.correlation_id
        self._may_write_internal = header.client_id == ADMIN_CLIENT_ID
        self.request = request
        self.results: TopicResults = []
        self.slot: ResponseSlot | None = None
        self._refusal: ErrorCode | None = None
        #: Why partitions were not added to the transaction.
        self._add_error = ErrorCode.NONE
        #: Where another broker coordinates the transaction: what it said.
        self._verification: Verification | None = None
        #: What later turns append, the last first.
        self._left: list[Left] = []
        #: Appends whose records are still being walked.
        self.unresolved = 0
        #: Partition to (required high watermark, its list of results, position therein).
        self.waiting: dict[Partition, tuple[int, list[PartitionResult], int]] = {}

    def add_partitions(self, transactional_id: str) -> asyncio.Future[None] | None:
        """Add the partitions whose first batch of the transaction this is, or, for classic clients,
        ask the coordinator on another broker about them. None: that is done."""
        broker = self._broker
        transactions = broker.transactions
        found: dict[ProducerOfTransaction, list[Partition]] = {}
        for key, partitions in self.request.topics:
            for index, records in partitions:
                self._find_new(key, index, records, found)
        if not found or self.request.acks not in _VALID_ACKS:
            return None
        producer, new = next(iter(found.items()))  # batches of others are refused one by one
        later: list[asyncio.Future[None]] = []
        is_told = False

        def told(error: ErrorCode) -> None:
            nonlocal is_told
            self._add_error, is_told = error, True
            if verification is not None and adds:
                verification.codes = dict.fromkeys(verification.partitions, error)
            if later and not later[0].done():
                later[0].set_result(None)

        adds = self._api_version >= ADDS_PARTITIONS_FROM
        coordinator_id = transactions.coordinator_elsewhere(transactional_id)
        verification: Verification | None = None
        if coordinator_id is not None:
            verification = self._verification = transactions.verifications.begin(producer, new)
        if adds:
            names = [each.topic_partition for each in new]
            transactions.add_in_turn(producer, names, verification, told)
        elif coordinator_id is not None and verification is not None:
            transactions.verify_elsewhere(coordinator_id, verification, told)
        else:
            return None  # it has come here just now, and is asked by each batch
        if is_told:
            return None
        later.append(broker.loop.create_future())
        return later[0]

    def _find_new(
        self,
        key: str | TopicId,
        index: int,
        records: memoryview | None,
        found: dict[ProducerOfTransaction, list[Partition]],
    ) -> None:
        broker, transactional_id = self._broker, self.request.transactional_id
        assert transactional_id is not None
        if records is None or len(records) < HEADER_SIZE:
            return
        header = peek_header(records)
        if not header.attributes & TRANSACTIONAL_FLAG:
            return
        try:
            partition = broker.replicas.find(key, index)
        except KafkaError:
            return
        if not partition.is_internal and not broker.transactions.has_begun(partition, header):
            producer = ProducerOfTransaction(
                transactional_id, header.producer_id, header.producer_epoch
            )
            found.setdefault(producer, []).append(partition)

    def append_all(self, at_once: int) -> bool:
        """Gives whether that was all: of a large request there is a rest for ``append_rest``."""
        request = self.request
        now_ms = self._broker.clock.wall_ms()
        refusal = None
        if request.acks not in _VALID_ACKS:
            refusal = ErrorCode.INVALID_REQUIRED_ACKS
        self._refusal = refusal
        count = 0
        for key, partitions in request.topics:
            results: list[PartitionResult] = []
            self.results.append((key, results))
            for index, records in partitions:
                count += 1
                if count > at_once:
                    self._left.append((key, results, index, records))
                elif refusal is None:
                    results.append(self._append(key, index, records, now_ms, results))
                else:
                    results.append(_failed(index, refusal, None))
        if self._verification is not None and not self._left and not self.unresolved:
            self._end_verification()
        return not self._left

    def keep_rest(self, frame: memoryview) -> int:
        """What is left outlives this turn; gives what it is charged to the receive budget."""
        left = self._left
        left.reverse()
        if frame.obj is self._broker.scratch.data:
            for number, (key, results, index, records) in enumerate(left):
                if records is not None:
                    left[number] = (key, results, index, memoryview(bytearray(records)))
        size = len(frame)
        self._broker.receive_budget.charge(size)
        return size

    async def append_rest(self, charge: int, added: asyncio.Future[None] | None) -> None:
        """In turns of the loop; nothing that came after it on its connection starts meanwhile."""
        broker = self._broker
        left = self._left
        try:
            if added is not None:
                await added
            turn = Turn()
            while left:
                key, results, index, records = left.pop()
                if self._refusal is not None:
                    results.append(_failed(index, self._refusal, None))
                else:
                    now_ms = broker.clock.wall_ms()
                    results.append(self._append(key, index, records, now_ms, results))
                if left and turn.is_over:
                    await turn.pass_on()
        finally:
            broker.receive_budget.release(charge)
            if not self.unresolved:
                self._end_verification()
        if not self.unresolved:
            self.await_acknowledgement()

    def _append(
        self,
        key: str | TopicId,
        index: int,
        records: memoryview | None,
        now_ms: int,
        results: list[PartitionResult],
    ) -> PartitionResult:
        broker = self._broker
        try:
            partition = broker.replicas.find(key, index)
            partition.traffic.on_produced()
            if partition.is_guarded:
                partition.check_append(self.request.acks == ACKS_ALL)
            if partition.is_internal and not self._may_write_internal:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Cannot append to internal topic {partition.topic_partition.topic}",
                )
            if records is None:
                raise InvalidBatch(
                    ErrorCode.INVALID_RECORD, "exactly one batch is needed, got none"
                )
            batch_header = check_header(records, partition.rules, now_ms, self._api_version)
            check: Callable[[], None] | None = None
            if batch_header.attributes & TRANSACTIONAL_FLAG:
                check = partial(self._check_transaction, partition, batch_header)
                check()
            elif partition.is_guarded:
                check = partial(partition.check_append, self.request.acks == ACKS_ALL)
            info = broker.replicas.append(partition, records, batch_header, now_ms)
        except InvalidBatch as error:
            self._count_failure(key)
            return _refused(index, error)
        except KafkaError as error:
            self._count_failure(key)
            return _failed(index, error.code, error.message)
        if info is not None:
            return self._appended(partition, info, results, len(results), index)
        self.unresolved += 1
        size = len(records)
        broker.receive_budget.charge(size)  # for the copy that waits
        done = partial(self._on_appended, partition, results, len(results), index, size)
        broker.replicas.append_later(partition, records, batch_header, now_ms, done, check)
        return _failed(index, ErrorCode.UNKNOWN_SERVER_ERROR, None)  # replaced by _on_appended

    def _check_transaction(self, partition: Partition, header: BatchHeader) -> None:
        transactional_id = self.request.transactional_id
        if transactional_id is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        transactions, version = self._broker.transactions, self._api_version
        has_begun = transactions.has_begun(partition, header)
        if self._add_error is not ErrorCode.NONE and not has_begun:
            raise KafkaError(_verdict(self._add_error, version))
        try:
            if self._verification is None:
                transactions.check_batch(transactional_id, partition, header)
            elif not has_begun:
                self._verification.check(partition, header.producer_id, header.producer_epoch)
        except KafkaError as error:
            raise KafkaError(_verdict(error.code, version), error.message) from None
        if version >= ADDS_PARTITIONS_FROM and header.base_sequence != 0:
            entry = partition.log.producers.entries.get(header.producer_id)
            if entry is None:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Producer {header.producer_id} began with sequence {header.base_sequence}",
                )

    def _end_verification(self) -> None:
        if self._verification is not None:
            self._broker.transactions.verifications.end(self._verification)

    def _appended(
        self,
        partition: Partition,
        info: AppendInfo,
        results: list[PartitionResult],
        position: int,
        index: int,
    ) -> PartitionResult:
        if info.last_offset >= partition.high_watermark and (
            self.request.acks == ACKS_ALL or not partition.acknowledges_early
        ):
            self.waiting[partition] = (info.last_offset + 1, results, position)
        return (
            index,
            0,
            info.base_offset,
            info.log_append_time_ms,
            info.log_start_offset,
            None,
            None,
        )

    def _count_failure(self, key: str | TopicId) -> None:
        traffic = self._broker.replicas.traffic_of(key)
        if traffic is not None:
            traffic.on_produce_failed()
        else:
            total = self._broker.replicas.traffic
            total.produce_requests += 1
            total.failed_produce_requests += 1

    def _on_appended(
        self,
        partition: Partition,
        results: list[PartitionResult],
        position: int,
        index: int,
        size: int,
        outcome: AppendOutcome,
    ) -> None:
        self._broker.receive_budget.release(size)
        if isinstance(outcome, Exception):
            partition.traffic.on_produce_failed()
        if isinstance(outcome, InvalidBatch):
            results[position] = _refused(index, outcome)
        elif isinstance(outcome, KafkaError):
            results[position] = _failed(index, outcome.code, outcome.message)
        elif isinstance(outcome, Exception):
            results[position] = _failed(index, ErrorCode.UNKNOWN_SERVER_ERROR, None)
        else:
            results[position] = self._appended(partition, outcome, results, position, index)
        self.unresolved -= 1
        if self.unresolved == 0 and not self._left:
            self._end_verification()
        if self.unresolved == 0 and self.slot is not None and not self._left:
            with self._broker.dispatcher.guard(self.slot):
                self.await_acknowledgement()

    def await_acknowledgement(self) -> None:
        """All is appended: answer once every batch is below its high watermark."""
        slot = self.slot
        assert slot is not None
        required: dict[Partition, int] = {}
        for partition, (offset, results, position) in self.waiting.items():
            if partition.is_closed:
                results[position] = _failed(results[position][0], partition.close_reason, None)
            elif partition.high_watermark < offset:
                required[partition] = offset
        if self.request.acks == 0 or not required:
            self._answer()
            return
        delayed = DelayedProduce(
            required, max(self.request.timeout_ms, 0), self._broker.scheduler, self._on_acknowledged
        )
        slot.on_cancel = delayed.cancel

    def _on_acknowledged(self, failed: Mapping[Partition, ErrorCode]) -> None:
        slot = self.slot
        assert slot is not None
        with self._broker.dispatcher.guard(slot):
            for partition, code in failed.items():
                _, results, position = self.waiting[partition]
                results[position] = _failed(results[position][0], code, None)
            self._answer()

    def _answer(self) -> None:
        slot = self.slot
        assert slot is not None
        if self.request.acks != 0:
            slot.complete([self.encode()])
            return
        try:
            self.close_on_error()
        except CloseConnection:
            slot.fail()
        else:
            slot.complete(None)

    def close_on_error(self) -> None:
        """acks=0: raises CloseConnection if any partition failed."""
        for key, results in self.results:
            for result in results:
                if result[1] != 0:
                    name = ErrorCode(result[1]).name
                    raise CloseConnection(f"produce with acks=0 to {key}-{result[0]}: {name}")

    def encode(self) -> bytes:
        return encode_response(self._api_version, self._correlation_id, self.results, 0)


def _verdict(code: ErrorCode, version: int) -> ErrorCode:
    """What the transaction coordinator said, in words that producers retry, or not."""
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= ADDS_PARTITIONS_FROM:
        return code
    if code in _NOT_NOW:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < KNOWS_ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _failed(index: int, code: ErrorCode, message: str | None) -> PartitionResult:
    return (index, int(code), -1, -1, -1, None, message)


def _refused(index: int, error: InvalidBatch) -> PartitionResult:
    return (index, int(error.code), -1, -1, -1, list(error.record_errors) or None, error.message)
