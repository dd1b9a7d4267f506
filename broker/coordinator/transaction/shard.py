"""All transactional ids of one partition of ``__transaction_state``.

======================  ==========================================  ==================================
state                   entered by                                  left by
======================  ==========================================  ==================================
EMPTY                   InitProducerId                              AddPartitions, AddOffsets, a batch
                                                                    or an offset (KIP-890): ONGOING
ONGOING                 the first partition                         EndTxn: PREPARE_COMMIT or
                                                                    PREPARE_ABORT; time-out or another
                                                                    InitProducerId: PREPARE_ABORT,
                                                                    under a raised epoch
PREPARE_COMMIT, _ABORT  the outcome is in the log, for good         all markers: COMPLETE_*
COMPLETE_COMMIT,        every partition has its marker              as EMPTY
_ABORT
======================  ==========================================  ==================================

Each change is one record that holds the whole new state. It takes effect, and is answered, once it is
committed; until then the id is *pending* and every other change is told CONCURRENT_TRANSACTIONS,
which clients retry. A record that is refused, or not committed in time, has changed nothing here: it
may be in the log all the same, so nobody has been told of it, and the next record replaces it.

Two protocols share the states. The classic one keeps the epoch from transaction to transaction. Since
EndTxn 5 (KIP-890) each end raises it, so that a batch which comes late from one transaction cannot fall
into the next, and the epoch tells a repeated EndTxn from the next transaction's. Each request says by its
version which one it follows; a producer may change over with any transaction.

EndTxn is answered when the outcome is committed and the markers are on their way. A partition that
cannot take its marker is tried again without end, with growing pauses, by itself: others are not held
up, and the id stays prepared. One whose topic is gone needs none.

After a load, what was prepared is completed (markers may come twice, which changes nothing), and what
was ongoing keeps its time-out, counted from its start by the wall clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.coordinator.ports import PartitionLog, ShardTimers
from broker.coordinator.result import CoordinatorRecord, CoordinatorResult, R, nothing
from broker.coordinator.transaction.records import (
    read_transaction,
    read_transactional_id,
    transaction_record,
    transaction_tombstone,
)
from broker.coordinator.transaction.requests import (
    DescribedTransaction,
    EndAnswer,
    InitAnswer,
    InitRequest,
    ListedTransaction,
    MarkerWriter,
    ProducerOfTransaction,
    TransactionFilter,
)
from broker.coordinator.transaction.states import TransactionState
from broker.coordinator.transaction.transaction import (
    CLASSIC,
    NO_PRODUCER_ID,
    Transaction,
    new_transaction,
)
from broker.log_limit import caused_by
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicPartition

logger = logging.getLogger(__name__)

#: Pauses between attempts to write markers: the first, and the longest.
FIRST_PAUSE_MS: Final = 50
LONGEST_PAUSE_MS: Final = 5_000
#: Before an abort whose record was refused is tried again.
REFUSED_PAUSE_MS: Final = 1_000
#: Ids of one partition. Where there are more, those that rest longest go before their time.
MAX_IDS: Final = 20_000
#: How many of them go at once.
FORGOTTEN_AT_ONCE: Final = 1_000
_COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
#: There is nothing left to write a marker to: the topic is gone, or (INVALID_PRODUCER_EPOCH) a later
#: epoch of the producer has ended the transaction there, by an administrator's hand.
_NEEDS_NO_MARKER: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH}
)


class Entry:
    """One transactional id."""

    __slots__ = ("attempts", "current", "is_pending", "is_writing", "unmarked")

    def __init__(self, current: Transaction) -> None:
        self.current = current
        #: A change is on its way into the log.
        self.is_pending = False
        #: Markers are on their way.
        self.is_writing = False
        #: Partitions of a prepared transaction that have no marker yet.
        self.unmarked: set[TopicPartition] = set()
        #: To write them, in vain.
        self.attempts = 0


class TransactionShard:
    """See the module's docstring."""

    def __init__(
        self,
        timers: ShardTimers,
        log: PartitionLog,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        markers: MarkerWriter,
    ) -> None:
        self._timers = timers
        self._log = log
        self._clock = clock
        self._config = config
        self._markers = markers
        self._is_unloaded = False
        self.entries: dict[str, Entry] = {}

    # -- InitProducerId -----------------------------------------------------------------------

    def needs_producer_id(self, request: InitRequest) -> bool:
        """Whether ``init`` can only be answered with a new producer id in hand."""
        entry = self.entries.get(request.transactional_id)
        if entry is None:
            return True
        current = entry.current
        return (
            not entry.is_pending
            and current.state.is_at_rest
            and current.needs_new_id(request.producer_epoch if request.names_producer else None)
        )

    def init(self, request: InitRequest, fresh_id: int | None) -> CoordinatorResult[InitAnswer]:
        """A producer (re)starts: older ones are shut out, what they left open is aborted first.

        ``fresh_id`` None where ``needs_producer_id`` said no: if that has changed since, the answer
        is CONCURRENT_TRANSACTIONS.
        """
        transactional_id, now_ms = request.transactional_id, self._clock.wall_ms()
        entry = self.entries.get(transactional_id)
        if entry is None:
            if fresh_id is None:
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            return self._found(request, new_transaction(fresh_id, request.timeout_ms, now_ms))
        current = entry.current
        _check_not_changing(entry)
        if request.names_producer and not current.admits(
            request.producer_id, request.producer_epoch
        ):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        if current.state is TransactionState.ONGOING:
            # The client asks again, and gets the epoch after the one that shuts out the old producer.
            answer = InitAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
            return self._change(transactional_id, entry, current.fenced(now_ms), answer)
        changed = self._initialised(request, current, fresh_id, now_ms)
        return self._change(transactional_id, entry, changed, _initialised_answer(changed))

    def _found(self, request: InitRequest, fresh: Transaction) -> CoordinatorResult[InitAnswer]:
        """The first use of this id."""
        entry = self.entries[request.transactional_id] = Entry(fresh)
        changed = fresh.with_next_epoch(request.timeout_ms, None, fresh.updated_ms)
        result = self._change(
            request.transactional_id, entry, changed, _initialised_answer(changed), is_new=True
        )
        if len(self.entries) > MAX_IDS:
            self._timers.perform(self._forget_longest_at_rest)
        return result

    def _initialised(
        self, request: InitRequest, current: Transaction, fresh_id: int | None, now_ms: int
    ) -> Transaction:
        expected = request.producer_epoch if request.names_producer else None
        if current.needs_new_id(expected):
            if fresh_id is None:
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            return current.with_new_id(fresh_id, request.timeout_ms, expected is not None, now_ms)
        return current.with_next_epoch(request.timeout_ms, expected, now_ms)

    # -- within a transaction -----------------------------------------------------------------

    def add_partitions(
        self,
        producer: ProducerOfTransaction,
        partitions: Collection[TopicPartition],
        client_version: int = CLASSIC,
    ) -> CoordinatorResult[ErrorCode]:
        entry = self._entry_of(producer)
        current = entry.current
        # First: the producer may use the name that comes with this change, and its zombie waits as well.
        _check_not_changing(entry)
        _check_name(current, producer)
        is_ongoing = current.state is TransactionState.ONGOING
        if is_ongoing and current.partitions.issuperset(partitions):
            return CoordinatorResult(ErrorCode.NONE)
        changed = current.with_partitions(partitions, client_version, self._clock.wall_ms())
        return self._change(producer.transactional_id, entry, changed, ErrorCode.NONE)

    def verify(
        self, producer: ProducerOfTransaction, partitions: Iterable[TopicPartition]
    ) -> list[ErrorCode]:
        """TRANSACTION_ABORTABLE for each partition that is not in the producer's transaction.

        Raises ``KafkaError``: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, or
        CONCURRENT_TRANSACTIONS when the transaction is being ended.
        """
        current = self._entry_of(producer).current
        _check_name(current, producer)
        if current.state.is_prepared:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return [
            ErrorCode.NONE if each in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for each in partitions
        ]

    def _entry_of(self, producer: ProducerOfTransaction) -> Entry:
        """Raises ``KafkaError``."""
        entry = self.entries.get(producer.transactional_id)
        if entry is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return entry

    # -- EndTxn -------------------------------------------------------------------------------

    def end(self, producer: ProducerOfTransaction, is_commit: bool) -> CoordinatorResult[ErrorCode]:
        entry = self._entry_of(producer)
        current = entry.current
        _check_name(current, producer)
        _check_not_changing(entry)
        if current.state is TransactionState.ONGOING:
            changed = current.prepared(is_commit, self._clock.wall_ms())
            return self._change(producer.transactional_id, entry, changed, ErrorCode.NONE)
        # A repetition of what has been done; anything else is out of place.
        if current.state is _completed(is_commit):
            return CoordinatorResult(ErrorCode.NONE)
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)

    def needs_producer_id_to_end(self, producer: ProducerOfTransaction) -> bool:
        """Whether ``end_and_raise`` needs a new producer id in hand."""
        entry = self.entries.get(producer.transactional_id)
        if entry is None or entry.is_pending:
            return False
        current = entry.current
        return (
            current.is_epoch_exhausted
            and not current.state.is_prepared
            and (current.producer_id, current.producer_epoch) == producer[1:]
        )

    def end_and_raise(
        self, producer: ProducerOfTransaction, is_commit: bool, fresh_id: int | None
    ) -> CoordinatorResult[EndAnswer]:
        """End a transaction, of whatever protocol, and raise the producer's epoch."""
        entry = self._entry_of(producer)
        _check_not_changing(entry)
        current = entry.current
        is_repeated = current.has_ended(producer.producer_id, producer.producer_epoch)
        _check_may_end(current, producer, is_repeated)
        if is_repeated and current.state is _completed(is_commit):
            return CoordinatorResult(EndAnswer(ErrorCode.NONE, *current.next_name))
        if current.state is not TransactionState.ONGOING and (is_repeated or is_commit):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        next_id = NO_PRODUCER_ID
        if current.is_epoch_exhausted:
            if fresh_id is None:
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
            next_id = fresh_id
        changed = current.ended(is_commit, next_id, self._clock.wall_ms())
        answer = EndAnswer(ErrorCode.NONE, *changed.next_name)
        return self._change(producer.transactional_id, entry, changed, answer)

    def _on_timeout(self, transactional_id: str) -> CoordinatorResult[None]:
        entry = self.entries.get(transactional_id)
        if entry is None or entry.current.state is not TransactionState.ONGOING:
            return nothing()
        if entry.is_pending:  # EndTxn may be on its way; whoever comes first has decided
            self._timers.set(
                ("timeout", transactional_id),
                REFUSED_PAUSE_MS,
                partial(self._on_timeout, transactional_id),
            )
            return nothing()
        logger.info(
            "the transaction of %.100r has timed out and is aborted",
            transactional_id,
            extra=caused_by("transactions"),
        )
        changed = entry.current.fenced(self._clock.wall_ms())
        return self._change(transactional_id, entry, changed, None)

    # -- the way into the log -----------------------------------------------------------------

    def _change(
        self,
        transactional_id: str,
        entry: Entry,
        changed: Transaction,
        response: R,
        is_new: bool = False,
    ) -> CoordinatorResult[R]:
        entry.is_pending = True

        def on_written(error: ErrorCode) -> CoordinatorResult[None] | None:
            entry.is_pending = False
            if error is ErrorCode.NONE:
                return self._apply(transactional_id, entry, changed)
            if is_new:
                del self.entries[transactional_id]
            elif changed.state.is_at_rest and entry.current.state.is_prepared:
                self._write_markers_later(transactional_id, entry)  # its end did not get written
            elif changed.state.is_prepared:
                left_ms = max(self._left_ms(entry.current), REFUSED_PAUSE_MS)
                self._arm_timeout(transactional_id, left_ms)
            return None

        record = transaction_record(transactional_id, changed)
        return CoordinatorResult(response, [record], on_written=on_written, is_replayed=False)

    def _apply(
        self, transactional_id: str, entry: Entry, changed: Transaction
    ) -> CoordinatorResult[None]:
        before, entry.current = entry.current, changed
        if changed.state.is_prepared:
            self._timers.cancel(("timeout", transactional_id))
            return self._begin_ending(transactional_id, entry)
        if changed.state is TransactionState.ONGOING and (
            before.state is not TransactionState.ONGOING
        ):
            # It began a moment ago: a wall clock that was set meanwhile must not make it old.
            self._arm_timeout(transactional_id, changed.timeout_ms)
        return nothing()

    def _left_ms(self, ongoing: Transaction) -> int:
        """By the wall clock, which is all that is known of what began before this coordinator."""
        left_ms = ongoing.started_ms + ongoing.timeout_ms - self._clock.wall_ms()
        return max(0, min(left_ms, ongoing.timeout_ms))

    def _arm_timeout(self, transactional_id: str, left_ms: int) -> None:
        self._timers.set(
            ("timeout", transactional_id), left_ms, partial(self._on_timeout, transactional_id)
        )

    # -- markers ------------------------------------------------------------------------------

    def _begin_ending(self, transactional_id: str, entry: Entry) -> CoordinatorResult[None]:
        entry.unmarked = set(entry.current.partitions)
        entry.attempts = 0
        return self._write_markers(transactional_id, entry)

    def _write_markers(self, transactional_id: str, entry: Entry) -> CoordinatorResult[None]:
        if not entry.current.state.is_prepared or entry.is_writing or entry.is_pending:
            return nothing()
        if not entry.unmarked:
            changed = entry.current.completed(self._clock.wall_ms())
            return self._change(transactional_id, entry, changed, None)
        entry.is_writing = True
        self._markers.write(
            entry.current.marker(self._log.leader_epoch),
            sorted(entry.unmarked),
            partial(self._on_markers, transactional_id, entry),
        )
        return nothing()

    def _on_markers(
        self, transactional_id: str, entry: Entry, results: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        if self._is_unloaded:
            return
        entry.is_writing = False
        failed = None
        for topic_partition, error in results.items():
            if error is ErrorCode.NONE or error in _NEEDS_NO_MARKER:
                entry.unmarked.discard(topic_partition)
            else:
                failed = (topic_partition, error)
        if failed is None:
            self._timers.perform(partial(self._write_markers, transactional_id, entry))
            return
        if not entry.attempts:
            logger.warning(
                "the transaction of %.100r cannot be ended on %s yet: %s",
                transactional_id, failed[0], failed[1].name, extra=caused_by("transactions"),
            )  # fmt: skip
        self._write_markers_later(transactional_id, entry)

    def _write_markers_later(self, transactional_id: str, entry: Entry) -> None:
        pause_ms = min(FIRST_PAUSE_MS << min(entry.attempts, 10), LONGEST_PAUSE_MS)
        entry.attempts += 1
        self._timers.set(
            ("markers", transactional_id),
            pause_ms,
            partial(self._write_markers, transactional_id, entry),
        )

    # -- administration -----------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribedTransaction:
        entry = self.entries.get(transactional_id)
        if entry is None:
            return DescribedTransaction(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        current = entry.current
        partitions = entry.unmarked if current.state.is_prepared else current.partitions
        return DescribedTransaction(
            transactional_id,
            ErrorCode.NONE,
            current.state.wire_name,
            current.timeout_ms,
            current.started_ms,
            current.producer_id,
            current.producer_epoch,
            sorted(partitions),
        )

    def listed(self, transactional_id: str, wanted: TransactionFilter) -> ListedTransaction | None:
        entry = self.entries.get(transactional_id)
        if entry is None:
            return None
        current = entry.current
        state = current.state.wire_name
        if wanted.producer_ids and current.producer_id not in wanted.producer_ids:
            return None
        if wanted.states and state not in wanted.states:
            return None
        age_ms = self._clock.wall_ms() - current.started_ms
        if wanted.longer_than_ms >= 0 and age_ms <= wanted.longer_than_ms:
            return None
        return ListedTransaction(transactional_id, current.producer_id, state)

    # -- the passing of time ------------------------------------------------------------------

    def expire(self, transactional_id: str) -> CoordinatorResult[None]:
        """Forget an id that nobody used for ``transactional.id.expiration.ms``."""
        entry = self.entries.get(transactional_id)
        if entry is None or entry.is_pending or not entry.current.state.is_at_rest:
            return nothing()
        idle_ms = self._clock.wall_ms() - entry.current.updated_ms
        if idle_ms < self._config().transactional_id_expiration_ms:
            return nothing()
        return self._forget([transactional_id])

    def _forget_longest_at_rest(self) -> CoordinatorResult[None]:
        idle = [
            (entry.current.updated_ms, transactional_id)
            for transactional_id, entry in self.entries.items()
            if entry.current.state.is_at_rest and not entry.is_pending
        ]
        idle.sort()
        return self._forget([transactional_id for _, transactional_id in idle[:FORGOTTEN_AT_ONCE]])

    def _forget(self, transactional_ids: list[str]) -> CoordinatorResult[None]:
        entries = [self.entries[each] for each in transactional_ids]
        for entry in entries:
            entry.is_pending = True

        def on_written(error: ErrorCode) -> None:
            for transactional_id, entry in zip(transactional_ids, entries, strict=True):
                entry.is_pending = False
                if error is ErrorCode.NONE:
                    del self.entries[transactional_id]

        records: list[CoordinatorRecord] = [
            transaction_tombstone(each) for each in transactional_ids
        ]
        return CoordinatorResult(
            None, records, on_written=on_written, is_replayed=False, may_be_split=True
        )

    # -- load ---------------------------------------------------------------------------------

    def replay(self, offset: int, key: bytes, value: bytes | None, producer_id: int = -1) -> None:
        """Raises ``MalformedRecord``."""
        transactional_id = read_transactional_id(key)
        if transactional_id is None:
            return
        if value is None:
            self.entries.pop(transactional_id, None)
        else:
            self.entries[transactional_id] = Entry(read_transaction(value))

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        """No transaction has this topic in it."""

    def on_loaded(self, transactional_id: str) -> CoordinatorResult[None]:
        """Take up what the last coordinator left."""
        entry = self.entries.get(transactional_id)
        if entry is None or entry.is_pending:
            return nothing()
        if entry.current.state.is_prepared:
            return self._begin_ending(transactional_id, entry)
        if entry.current.state is TransactionState.ONGOING:
            self._arm_timeout(transactional_id, self._left_ms(entry.current))
        return nothing()

    def on_unloaded(self, error: ErrorCode) -> None:
        self._is_unloaded = True


def _check_not_changing(entry: Entry) -> None:
    """Raises ``KafkaError``. In Apache Kafka the completion is pending while markers are on their way:
    everybody has to wait then, also who would be refused before or after."""
    if entry.is_pending or entry.current.state.is_prepared:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)


def _check_name(current: Transaction, producer: ProducerOfTransaction) -> None:
    """Raises ``KafkaError`` unless this producer has its id and epoch now."""
    if current.producer_id != producer.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if current.producer_epoch != producer.producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def _check_may_end(
    current: Transaction, producer: ProducerOfTransaction, is_repeated: bool
) -> None:
    """Raises ``KafkaError``: the name is neither the producer's own, nor the one that it had before
    this end, as far as the state allows for that."""
    if is_repeated and current.state in _COMPLETE:
        return
    if is_repeated and producer.producer_id != current.producer_id:  # its id had run out of epochs
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    _check_name(current, producer)


def _initialised_answer(transaction: Transaction) -> InitAnswer:
    return InitAnswer(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)


def _completed(is_commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
