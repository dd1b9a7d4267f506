"""What handlers ask about transactions: finds the shard, checks what concerns no id in particular.

Answers come by callback, once each, inside the call or later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.coordinator.hashing import partition_for
from broker.coordinator.ports import PartitionLog, ShardTimers
from broker.coordinator.result import CoordinatorResult
from broker.coordinator.runtime import HostedState, Runtime
from broker.coordinator.transaction.requests import (
    AnswerEnd,
    AnswerInit,
    DescribedTransaction,
    EndAnswer,
    InitAnswer,
    InitRequest,
    ListedTransaction,
    MarkerWriter,
    ProducerOfTransaction,
    TransactionFilter,
)
from broker.coordinator.transaction.shard import TransactionShard
from broker.coordinator.transaction.transaction import CLASSIC
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicPartition

Answer = Callable[[ErrorCode], None]


class ProducerIdSource(Protocol):
    def __call__(self, taken: Callable[[int], None], failed: Answer) -> None:
        """One of the callbacks, with an id that nobody had before."""
        ...


class TransactionCoordinator:
    """See the module's docstring."""

    def __init__(
        self,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        markers: MarkerWriter,
        take_producer_id: ProducerIdSource,
        partition_count: Callable[[], int],
        on_deadline: Callable[[], None],
    ) -> None:
        self._config = config
        self._take_producer_id = take_producer_id
        #: Of ``__transaction_state``; 0 while there is no such topic.
        self._partition_count = partition_count

        def new_shard(timers: ShardTimers, log: PartitionLog) -> TransactionShard:
            return TransactionShard(timers, log, clock, config, markers)

        self.runtime: Runtime[TransactionShard] = Runtime(clock, new_shard, on_deadline)

    def index_of(self, transactional_id: str) -> int:
        """The partition that holds the id; one that nobody hosts while there is no topic."""
        count = self._partition_count()
        return partition_for(transactional_id, count) if count else -1

    # -- a producer's requests ----------------------------------------------------------------

    def init(self, request: InitRequest, answer: AnswerInit) -> None:
        if not request.transactional_id:
            answer(InitAnswer(ErrorCode.INVALID_REQUEST))
            return
        if not 0 < request.timeout_ms <= self._config().transaction_max_timeout_ms:
            answer(InitAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return
        index = self.index_of(request.transactional_id)

        def failed(error: ErrorCode) -> None:
            answer(InitAnswer(error))

        def ask(fresh_id: int | None) -> None:
            self.runtime.write(index, lambda shard: shard.init(request, fresh_id), answer, failed)

        try:
            shard = self.runtime.active_or_raise(index).shard
        except KafkaError as error:
            failed(error.code)
            return
        if shard.needs_producer_id(request):
            self._take_producer_id(ask, failed)
        else:
            ask(None)

    def add_partitions(
        self,
        producer: ProducerOfTransaction,
        partitions: Collection[TopicPartition],
        done: Answer,
        client_version: int = CLASSIC,
    ) -> None:
        self._write(
            producer, lambda shard: shard.add_partitions(producer, partitions, client_version), done
        )

    def end(self, producer: ProducerOfTransaction, is_commit: bool, done: Answer) -> None:
        """As classic clients do."""
        self._write(producer, lambda shard: shard.end(producer, is_commit), done)

    def end_and_raise(
        self, producer: ProducerOfTransaction, is_commit: bool, answer: AnswerEnd
    ) -> None:
        """As clients of ``transaction.version`` 2 do: the producer has a new epoch from then on."""

        def failed(error: ErrorCode) -> None:
            answer(EndAnswer(error))

        if not producer.transactional_id:
            failed(ErrorCode.INVALID_REQUEST)
            return
        index = self.index_of(producer.transactional_id)

        def ask(fresh_id: int | None) -> None:
            self.runtime.write(
                index,
                lambda shard: shard.end_and_raise(producer, is_commit, fresh_id),
                answer,
                failed,
            )

        try:
            shard = self.runtime.active_or_raise(index).shard
        except KafkaError as error:
            failed(error.code)
            return
        if shard.needs_producer_id_to_end(producer):
            self._take_producer_id(ask, failed)
        else:
            ask(None)

    def _write(
        self,
        producer: ProducerOfTransaction,
        operation: Callable[[TransactionShard], CoordinatorResult[ErrorCode]],
        done: Answer,
    ) -> None:
        if not producer.transactional_id:
            done(ErrorCode.INVALID_REQUEST)
            return
        self.runtime.write(self.index_of(producer.transactional_id), operation, done, done)

    def verify(
        self, producer: ProducerOfTransaction, partitions: Sequence[TopicPartition]
    ) -> list[ErrorCode]:
        """Whether the partitions are in the producer's transaction, one code for each (KIP-890).

        Nothing waits: a partition counts once it is committed. Raises ``KafkaError``.
        """
        if not producer.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        index = self.index_of(producer.transactional_id)
        return self.runtime.active_or_raise(index).shard.verify(producer, partitions)

    # -- administration -----------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribedTransaction:
        if not transactional_id:
            return DescribedTransaction(transactional_id, ErrorCode.INVALID_REQUEST)
        try:
            hosted = self.runtime.active_or_raise(self.index_of(transactional_id))
        except KafkaError as error:
            return DescribedTransaction(transactional_id, error.code)
        return hosted.shard.describe(transactional_id)

    def transactional_ids(self) -> list[tuple[int, str]]:
        """(shard, id) of all. Raises ``KafkaError`` while a shard is being loaded: a list that is
        not whole would look as if the rest were gone."""
        found: list[tuple[int, str]] = []
        for hosted in self.runtime.all_hosted():
            if hosted.state is HostedState.LOADING:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            found += [(hosted.index, transactional_id) for transactional_id in hosted.shard.entries]
        return found

    def listed(
        self, index: int, transactional_id: str, wanted: TransactionFilter
    ) -> ListedTransaction | None:
        """None: it has gone since, or is not wanted."""
        hosted = self.runtime.hosted(index)
        return None if hosted is None else hosted.shard.listed(transactional_id, wanted)
