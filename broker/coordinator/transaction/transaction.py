"""One transactional id as the log knows it, and what it may become.

Values: every change makes a new one, which takes the old one's place once it is in the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from broker.coordinator.transaction.states import TransactionState
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicPartition
from broker.model.transaction_marker import TransactionMarker

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIME: Final = -1
#: The last epoch that a producer can have; the one above is for fencing it (Kafka's rule).
LAST_EPOCH: Final = (1 << 15) - 2
#: The epoch that only ends, or fences, what ran under the last one.
HIGHEST_EPOCH: Final = (1 << 15) - 1
#: ``transaction.version`` of clients that add partitions beforehand, and keep their epoch.
CLASSIC: Final = 0
#: From this one on partitions are added by the batches themselves, and every end raises the epoch
#: (KIP-890).
RAISES_EPOCH: Final = 2


class Transaction(NamedTuple):
    """Times are milliseconds of the wall clock."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    updated_ms: int
    #: Of the transaction that is, or was the last; -1 without one.
    started_ms: int = NO_TIME
    #: The epoch before the last raise that its producer asked for (KIP-360), or that an end made: who
    #: names it has not heard of the raise. Not in the log.
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    #: Before the last change of any kind, as in Kafka: who names an old id has one change's time to be heard.
    previous_producer_id: int = NO_PRODUCER_ID
    #: What completion changes the producer id to.
    next_producer_id: int = NO_PRODUCER_ID
    #: ``transaction.version`` of the producer that made the last change.
    client_version: int = CLASSIC

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH

    def needs_new_id(self, expected: int | None) -> bool:
        """Whether a producer that has the ``expected`` epoch cannot get another one of this id."""
        if expected is None or expected == self.producer_epoch:
            return self.is_epoch_exhausted
        # Its transaction was aborted for it, under an epoch that is not for producers.
        return self.producer_epoch == HIGHEST_EPOCH and expected == self.last_producer_epoch

    def admits(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a producer that names itself may ask for a new epoch (KIP-360).

        Under its previous id only when that had run out of epochs: it has not heard of the new one.
        """
        if self.producer_epoch == NO_PRODUCER_EPOCH or producer_id == self.producer_id:
            return True
        return producer_id == self.previous_producer_id and producer_epoch >= LAST_EPOCH

    def has_ended(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a producer that ends its transaction has done so before: it names the epoch, or the
        exhausted id, from before the raise (KIP-890)."""
        if producer_id == self.producer_id:
            return self.producer_epoch == producer_epoch + 1
        return (
            producer_id == self.previous_producer_id
            and producer_epoch == LAST_EPOCH
            and self.producer_epoch == 0
        )

    def with_next_epoch(self, timeout_ms: int, expected: int | None, now_ms: int) -> Transaction:
        """Raise the epoch, once only for a producer that asks again with the epoch it had.

        Raises ``KafkaError(PRODUCER_FENCED)`` if the epoch that it names is neither.
        """
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected is not None:
            if self.producer_epoch in (NO_PRODUCER_EPOCH, expected):
                last_epoch = self.producer_epoch
            elif expected == self.last_producer_epoch:
                epoch, last_epoch = self.producer_epoch, expected
            else:
                raise KafkaError(ErrorCode.PRODUCER_FENCED)
        return self._initialised(self.producer_id, epoch, last_epoch, timeout_ms, now_ms)

    def with_new_id(
        self, producer_id: int, timeout_ms: int, keeps_epoch: bool, now_ms: int
    ) -> Transaction:
        """The epochs of the old id are used up."""
        last_epoch = self.producer_epoch if keeps_epoch else NO_PRODUCER_EPOCH
        return self._initialised(producer_id, 0, last_epoch, timeout_ms, now_ms)

    def _initialised(
        self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        return Transaction(
            producer_id,
            epoch,
            timeout_ms,
            TransactionState.EMPTY,
            frozenset(),
            now_ms,
            last_producer_epoch=last_epoch,
            previous_producer_id=self.producer_id,
            client_version=self.client_version,
        )

    def with_partitions(
        self, added: Iterable[TopicPartition], client_version: int, now_ms: int
    ) -> Transaction:
        is_new = self.state is not TransactionState.ONGOING
        return self._replace(
            state=TransactionState.ONGOING,
            partitions=self.partitions.union(added),
            started_ms=now_ms if is_new else self.started_ms,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            client_version=client_version,
        )

    def prepared(self, is_commit: bool, now_ms: int) -> Transaction:
        """The end of a classic producer's transaction."""
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        return self._replace(
            state=state,
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
            client_version=CLASSIC,
        )

    def ended(self, is_commit: bool, next_producer_id: int, now_ms: int) -> Transaction:
        """The end that raises the epoch, so that what comes late from this transaction is refused.

        ``next_producer_id`` if ``is_epoch_exhausted``: the markers carry the highest epoch, and
        completion changes the id. What never began can be aborted as well: its producer wants to be
        sure that nothing is left of it.
        """
        began = self.state is TransactionState.ONGOING
        return self.prepared(is_commit, now_ms)._replace(
            producer_epoch=min(self.producer_epoch + 1, HIGHEST_EPOCH),
            last_producer_epoch=self.producer_epoch,
            started_ms=self.started_ms if began else now_ms,
            next_producer_id=next_producer_id,
            client_version=RAISES_EPOCH,
        )

    def fenced(self, now_ms: int) -> Transaction:
        """Abort on nobody's demand: the raised epoch shuts the producer out.

        As in Kafka 4.4 one that knows of raises gets on by aborting, or by asking for an epoch under
        the one that it had, while no other producer has come.
        """
        return self.ended(False, NO_PRODUCER_ID, now_ms)

    def completed(self, now_ms: int) -> Transaction:
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        done = self._replace(
            state=(
                TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
            ),
            partitions=frozenset(),
            updated_ms=now_ms,
            previous_producer_id=self.producer_id,
        )
        if self.client_version >= RAISES_EPOCH and self.next_producer_id != NO_PRODUCER_ID:
            return done._replace(
                producer_id=self.next_producer_id,
                producer_epoch=0,
                next_producer_id=NO_PRODUCER_ID,
            )
        return done

    @property
    def next_name(self) -> tuple[int, int]:
        """Producer id and epoch after completion, which the producer may use from its next
        transaction on."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def marker(self, coordinator_epoch: int) -> TransactionMarker:
        """What the partitions of a prepared transaction are told."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        # Nothing is above the highest epoch, if a transaction runs under it after all.
        is_raised = self.producer_epoch < HIGHEST_EPOCH
        return TransactionMarker(
            self.producer_id,
            self.producer_epoch,
            is_commit,
            coordinator_epoch,
            self.client_version if is_raised else CLASSIC,
        )


def new_transaction(producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """An id that nobody used yet: its first epoch will be 0."""
    return Transaction(
        producer_id,
        NO_PRODUCER_EPOCH,
        timeout_ms,
        TransactionState.EMPTY,
        frozenset(),
        now_ms,
    )
