"""What a cluster is asked and told about transactions.

By plain sockets only: where those cannot be used, ``can_tell`` says so, and every call fails with
UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from broker.model.ids import TopicPartition
from dashboard import transaction_wire as wire
from dashboard.cluster import BrokerView, KafkaFailure
from dashboard.gateway.cluster_link import ClusterLink
from dashboard.gateway.translate import library_failures
from dashboard.transactions import (
    UNDER_WAY,
    OpenTransaction,
    TransactionView,
    unknown_ones,
)

T = TypeVar("T")

IDS_PER_REQUEST = 500
PARTITIONS_PER_REQUEST = 500
_HARMLESS = "CONCURRENT_TRANSACTIONS"


class TransactionGateway:
    """Transactions of one cluster."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    @property
    def can_tell(self) -> bool:
        return self._link.serves(wire.LIST_TRANSACTIONS) and self._link.serves(
            wire.DESCRIBE_TRANSACTIONS
        )

    def under_way(self) -> list[TransactionView]:
        """All that have begun and are not over, those that began first come first."""
        self._need(wire.LIST_TRANSACTIONS, wire.DESCRIBE_TRANSACTIONS)
        found: list[TransactionView] = []
        with library_failures():
            for broker in self._link.brokers():
                with self._link.connect((broker.host, broker.port)) as connection:
                    ids = wire.list_ids(connection, UNDER_WAY)
                    for chunk in _chunks(ids, IDS_PER_REQUEST):
                        told = wire.describe(connection, chunk, broker.broker_id)
                        found += [
                            view
                            for view in told.values()
                            if isinstance(view, TransactionView) and view.state in UNDER_WAY
                        ]
        return sorted(found, key=lambda view: (view.started_ms or 0, view.transactional_id))

    def hanging(
        self, leaders: Mapping[TopicPartition, BrokerView]
    ) -> tuple[list[TransactionView], list[OpenTransaction]]:
        """All that is under way, and what these partitions hold open although it is not.

        Partitions are asked first, and those that seem to hang once more: what has begun or ended in
        between is neither.
        """
        opened = self.open_on(leaders)
        known = self.under_way()
        hanging = unknown_ones(opened, known)
        if hanging:
            again = self.open_on({each.partition: leaders[each.partition] for each in hanging})
            still = {(each.partition, each.producer_id, each.start_offset) for each in again}
            hanging = [
                each
                for each in hanging
                if (each.partition, each.producer_id, each.start_offset) in still
            ]
        return known, hanging

    def open_on(self, leaders: Mapping[TopicPartition, BrokerView]) -> list[OpenTransaction]:
        """Transactions that these partitions hold open, as their leaders tell; one that does not
        answer is left out."""
        self._need(wire.DESCRIBE_PRODUCERS)
        by_leader: dict[BrokerView, list[TopicPartition]] = {}
        for each, leader in sorted(leaders.items()):
            by_leader.setdefault(leader, []).append(each)
        found: list[OpenTransaction] = []
        with library_failures():
            for leader, led in by_leader.items():
                with self._link.connect((leader.host, leader.port)) as connection:
                    for chunk in _chunks(led, PARTITIONS_PER_REQUEST):
                        found += wire.open_transactions(connection, chunk)[0]
        return found

    def abort(self, transaction: TransactionView) -> None:
        """Fence its producer, which aborts it. Raises KafkaFailure; its state is not looked at."""
        self._need(wire.INIT_PRODUCER_ID)
        with library_failures():
            coordinator = next(
                each for each in self._link.brokers() if each.broker_id == transaction.coordinator
            )
            with self._link.connect((coordinator.host, coordinator.port)) as connection:
                failure = wire.fence(
                    connection, transaction.transactional_id, transaction.timeout_ms
                )
        if failure is not None and failure.code != _HARMLESS:
            raise failure

    def abort_on(self, found: OpenTransaction, leader: BrokerView) -> None:
        """End what hangs on one partition. Raises KafkaFailure."""
        self._need(wire.WRITE_TXN_MARKERS)
        with (
            library_failures(),
            self._link.connect((leader.host, leader.port)) as connection,
        ):
            failure = wire.write_abort(connection, found)
        if failure is not None:
            raise failure

    def _need(self, *requests: tuple[int, int]) -> None:
        if not all(map(self._link.serves, requests)):
            raise KafkaFailure(
                "UNSUPPORTED_VERSION",
                "transactions are only told by clusters of Kafka 3.0 or newer, over an unencrypted "
                "listener for now",
            )


def _chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
