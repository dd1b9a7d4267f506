"""The transaction coordinator in this broker: ``__transaction_state``, producer ids, expiry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from broker.coordinator.runtime import Hosted
from broker.coordinator.transaction.coordinator import TransactionCoordinator
from broker.coordinator.transaction.requests import ProducerOfTransaction
from broker.coordinator.transaction.shard import TransactionShard
from broker.coordinator.transaction.transaction import RAISES_EPOCH
from broker.metadata.requests import NewTopic
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicPartition
from broker.model.internal_topics import TRANSACTION_STATE
from broker.records.compression import Codec
from broker.server.coordinator_host import CoordinatorHost
from broker.server.coordinator_log import CoordinatorLog
from broker.server.transaction_markers import TIMEOUT_MS, TransactionMarkers

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

    def add_for_batches(
        self,
        producer: ProducerOfTransaction,
        partitions: Sequence[TopicPartition],
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Partitions are added by the batches that come for them (``transaction.version`` 2).

        The first batches after EndTxn find the markers on their way, and wait a moment for them.
        """
        broker = self._broker
        end_ms = broker.clock.monotonic_ms() + WAIT_FOR_END_MS

        def ask() -> None:
            self.coordinator.add_partitions(producer, partitions, told, RAISES_EPOCH)

        def told(error: ErrorCode) -> None:
            is_busy = error is ErrorCode.CONCURRENT_TRANSACTIONS
            if is_busy and broker.clock.monotonic_ms() < end_ms:
                broker.scheduler.call_later(PAUSE_MS, ask)
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


def to_producers(code: ErrorCode) -> ErrorCode:
    """The coordinator's word as partitions say it: a fenced producer has an invalid epoch there."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
