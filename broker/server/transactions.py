"""The transaction coordinator in this broker: ``__transaction_state``, producer ids, expiry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from broker.coordinator.runtime import Hosted, HostedState
from broker.coordinator.transaction.coordinator import TransactionCoordinator
from broker.coordinator.transaction.requests import ProducerOfTransaction
from broker.coordinator.transaction.shard import TransactionShard
from broker.coordinator.transaction.transaction import RAISES_EPOCH
from broker.metadata.requests import NewTopic
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import NO_BROKER, BrokerId, TopicPartition
from broker.model.internal_topics import TRANSACTION_STATE
from broker.records.compression import Codec
from broker.server.coordinator_host import CoordinatorHost
from broker.server.coordinator_log import CoordinatorLog
from broker.server.tasks import called_back
from broker.server.transaction_markers import TIMEOUT_MS, TransactionMarkers
from broker.server.verification import Verification, Verifications

if TYPE_CHECKING:
    from broker.records.header import BatchHeader
    from broker.replication.partition import Partition
    from broker.server.app import Broker


#: How long a batch waits for the end of its producer's last transaction, and between looks (Kafka's
#: ``add.partitions.to.txn.retry.backoff.max.ms`` and ``….backoff.ms``).
WAIT_FOR_END_MS: Final = 100
PAUSE_MS: Final = 20


class Transactions(CoordinatorHost[TransactionShard]):
    """See the module's docstring."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, TRANSACTION_STATE, "transactions")
        self.markers = TransactionMarkers(broker)
        self.verifications = Verifications()
        self.coordinator = TransactionCoordinator(
            broker.clock,
            lambda: broker.config,
            self.markers,
            self._take_producer_id,
            self.partition_count,
            self._arm,
        )
        self.runtime = self.coordinator.runtime
        self._next_expiry_ms = 0
        self._is_expiring = False

    def new_topic(self) -> NewTopic:
        config = self._broker.config
        replicas = min(config.transaction_state_log_replication_factor, self._broker.most_replicas)
        in_sync = min(config.transaction_state_log_min_isr, replicas)
        return NewTopic(
            TRANSACTION_STATE,
            partition_count=config.transaction_state_log_num_partitions,
            replication_factor=replicas,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(in_sync)),
                ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
                ("unclean.leader.election.enable", "false"),
            ),
        )

    def _log_of(self, partition: Partition) -> CoordinatorLog:
        return CoordinatorLog(
            self._broker, partition, codec=lambda: Codec.NONE, timeout_ms=lambda: TIMEOUT_MS
        )

    def _describe(self, shard: TransactionShard) -> str:
        return f"{len(shard.entries)} transactional ids"

    async def _on_loaded(self, hosted: Hosted[TransactionShard]) -> None:
        # What the last leader had appended last may yet be lost: no marker may follow from it before.
        while hosted.state is HostedState.ACTIVE:
            code: ErrorCode = await called_back(hosted.log.when_committed)
            if code is not ErrorCode.REQUEST_TIMED_OUT:
                break
        await self._for_each(hosted, hosted.shard.entries, hosted.shard.on_loaded)

    def _take_producer_id(
        self, taken: Callable[[int], None], failed: Callable[[ErrorCode], None]
    ) -> None:
        async def take() -> None:
            try:
                producer_id = await self._broker.producer_ids.next()
            except KafkaError as error:
                failed(error.code)
                return
            taken(producer_id)

        self._broker.tasks.spawn(take(), "take a producer id")

    # -- verification -------------------------------------------------------------------------

    def check_batch(self, transactional_id: str, partition: Partition, header: BatchHeader) -> None:
        """Refuse a transactional batch unless its transaction holds the partition (KIP-890).

        One whose first batch is in the log already has been looked at then. Raises ``KafkaError``:
        TRANSACTION_ABORTABLE where the partition was not added.
        """
        if self.has_begun(partition, header):
            return
        self.check_partition(
            ProducerOfTransaction(transactional_id, header.producer_id, header.producer_epoch),
            partition.topic_partition,
        )

    def has_begun(self, partition: Partition, header: BatchHeader) -> bool:
        """Whether a batch of this transaction is in the partition's log."""
        entry = partition.log.producers.entries.get(header.producer_id)
        return (
            entry is not None
            and entry.transaction_first_offset >= 0
            and entry.producer_epoch == header.producer_epoch
        )

    def coordinator_elsewhere(self, transactional_id: str) -> BrokerId | None:
        """The broker that coordinates the transaction, where it is another one (NO_BROKER: nobody now)."""
        if self._broker.cluster is None:
            return None
        leader_id = self.leader_of(transactional_id)
        return None if leader_id == self._broker.config.node_id else leader_id

    def add_partitions(
        self,
        producer: ProducerOfTransaction,
        partitions: Sequence[TopicPartition],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """As the leader of partitions does it for clients of ``transaction.version`` 2, wherever the
        coordinator is."""
        elsewhere = self.coordinator_elsewhere(producer.transactional_id)
        if elsewhere is None:
            self.coordinator.add_partitions(producer, partitions, done, RAISES_EPOCH)
        else:
            self._ask_elsewhere(elsewhere, producer, partitions, True, lambda codes: done(codes[0]))

    def verify_elsewhere(
        self,
        coordinator_id: BrokerId,
        verification: Verification,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Ask whether the partitions are in the transaction; NONE: asked, and noted."""
        partitions = list(verification.partitions)

        def told(codes: Sequence[ErrorCode]) -> None:
            verification.codes = {
                each: to_producers(code) for each, code in zip(partitions, codes, strict=True)
            }
            done(ErrorCode.NONE)

        self._ask_elsewhere(coordinator_id, verification.producer, partitions, False, told)

    def _ask_elsewhere(
        self,
        coordinator_id: BrokerId,
        producer: ProducerOfTransaction,
        partitions: Sequence[TopicPartition],
        adds: bool,
        done: Callable[[Sequence[ErrorCode]], None],
    ) -> None:
        cluster = self._broker.cluster
        assert cluster is not None

        async def ask() -> None:
            codes = await cluster.transactions.ask(coordinator_id, producer, partitions, adds)
            done(codes)

        if coordinator_id == NO_BROKER:
            done([ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(partitions))
        else:
            self._broker.tasks.spawn(ask(), "ask a transaction's coordinator")

    def add_in_turn(
        self,
        producer: ProducerOfTransaction,
        partitions: Sequence[TopicPartition],
        verification: Verification | None,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Partitions are added by the batches and offsets that come for them (``transaction.version`` 2).

        The first ones after EndTxn find the markers on their way, and wait a moment for them. Such a marker
        may well come while the coordinator, on another broker, is asked: its word then is asked for once more.
        """
        broker = self._broker
        end_ms = broker.clock.monotonic_ms() + WAIT_FOR_END_MS

        def ask() -> None:
            if verification is not None:
                verification.ask_anew()
            self.add_partitions(producer, partitions, told)

        def told(error: ErrorCode) -> None:
            is_over = broker.clock.monotonic_ms() >= end_ms
            if error is ErrorCode.CONCURRENT_TRANSACTIONS and not is_over:
                broker.scheduler.call_later(PAUSE_MS, ask)
            elif error is ErrorCode.NONE and _is_overtaken(verification) and not is_over:
                ask()
            else:
                done(to_producers(error))

        ask()

    def check_partition(
        self, producer: ProducerOfTransaction, topic_partition: TopicPartition
    ) -> None:
        """Raises ``KafkaError``."""
        try:
            (code,) = self.coordinator.verify(producer, [topic_partition])
        except KafkaError as error:
            raise KafkaError(to_producers(error.code)) from None
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"{topic_partition} was not added to the transaction")

    def hold(
        self,
        producer: ProducerOfTransaction,
        topic_partition: TopicPartition,
        adds: bool,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """``done(NONE)`` while the partition, which this broker leads, is in the transaction; with ``adds`` it
        is added first."""
        coordinator_id = self.coordinator_elsewhere(producer.transactional_id)
        if coordinator_id is not None:
            self._hold_elsewhere(coordinator_id, producer, topic_partition, adds, done)
        elif adds:

            def added(error: ErrorCode) -> None:
                if error is ErrorCode.NONE:
                    done(self._checked(producer, topic_partition))
                else:
                    done(to_producers(error))

            self.add_in_turn(producer, [topic_partition], None, added)
        else:
            done(self._checked(producer, topic_partition))

    def _checked(
        self, producer: ProducerOfTransaction, topic_partition: TopicPartition
    ) -> ErrorCode:
        try:
            self.check_partition(producer, topic_partition)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def _hold_elsewhere(
        self,
        coordinator_id: BrokerId,
        producer: ProducerOfTransaction,
        topic_partition: TopicPartition,
        adds: bool,
        done: Callable[[ErrorCode], None],
    ) -> None:
        try:
            partition = self._broker.replicas.find(*topic_partition)
        except KafkaError:
            done(ErrorCode.NOT_COORDINATOR)
            return
        verification = self.verifications.begin(producer, [partition])

        def told(error: ErrorCode) -> None:
            if adds:
                verification.codes = {topic_partition: to_producers(error)}
            try:
                verification.check(partition, producer.producer_id, producer.producer_epoch)
            except KafkaError as refusal:
                done(refusal.code)
            else:
                done(ErrorCode.NONE)
            finally:
                self.verifications.end(verification)

        if adds:
            self.add_in_turn(producer, [topic_partition], verification, told)
        else:
            self.verify_elsewhere(coordinator_id, verification, told)

    # -- time ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._next_expiry_ms = self._broker.clock.monotonic_ms() + self._expiry_interval_ms
        super().start()

    @property
    def _expiry_interval_ms(self) -> int:
        return self._broker.config.transaction_remove_expired_transaction_cleanup_interval_ms

    def tick(self, now_ms: int) -> None:
        """Once a second."""
        self._end_closed()
        if now_ms >= self._next_expiry_ms and not self._is_expiring:
            self._next_expiry_ms = now_ms + self._expiry_interval_ms
            self._is_expiring = True
            self._broker.tasks.spawn(self._expire(), "expire transactional ids")

    async def _expire(self) -> None:
        try:
            for hosted in self.runtime.all_hosted():
                await self._for_each(hosted, hosted.shard.entries, hosted.shard.expire)
        finally:
            self._is_expiring = False


def _is_overtaken(verification: Verification | None) -> bool:
    return verification is not None and bool(verification.overtaken)


def to_producers(code: ErrorCode) -> ErrorCode:
    """The coordinator's word as partitions say it: a fenced producer has an invalid epoch there."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
