"""What is asked of transactions, and answered, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from broker.coordinator.transaction.transaction import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from broker.model.error_code import ErrorCode
from broker.model.ids import TopicPartition
from broker.model.transaction_marker import TransactionMarker


class InitRequest(NamedTuple):
    transactional_id: str
    timeout_ms: int
    #: What the producer has, if it wants to go on under it (KIP-360); else -1 both.
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def names_producer(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID


class InitAnswer(NamedTuple):
    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


AnswerInit = Callable[[InitAnswer], None]


class EndAnswer(NamedTuple):
    error: ErrorCode
    #: What the producer is called from now on.
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


AnswerEnd = Callable[[EndAnswer], None]


class ProducerOfTransaction(NamedTuple):
    """How a request names the transaction that it belongs to."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class DescribedTransaction(NamedTuple):
    transactional_id: str
    error: ErrorCode = ErrorCode.NONE
    state: str = ""
    timeout_ms: int = 0
    #: -1 without a transaction (and 0, as everything is in an answer that has an error).
    started_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    #: Those without a marker, once the outcome is decided.
    partitions: Sequence[TopicPartition] = ()


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class TransactionFilter(NamedTuple):
    """Empty and negative: no condition. ``states`` are names as on the wire."""

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    #: Only what runs longer than this.
    longer_than_ms: int = -1


#: What became of a marker on each partition.
MarkersDone = Callable[[Mapping[TopicPartition, ErrorCode]], None]


class MarkerWriter(Protocol):
    def write(
        self, marker: TransactionMarker, partitions: Sequence[TopicPartition], done: MarkersDone
    ) -> None:
        """``done`` once all partitions have committed or refused it, perhaps inside the call."""
        ...
