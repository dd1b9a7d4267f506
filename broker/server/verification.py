"""Partitions of a transaction whose coordinator is another broker: what it said, and whether that still holds.

The coordinator's word takes its way over the network, and the batch may wait for a thread. When the
transaction is ended on the partition meanwhile, its marker passes the word, and a batch that were appended on it would open
a transaction that nobody ends (KIP-890 has a verification guard for this). So a word counts for one
leadership of the partition, until the next marker of its producer there after the question.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError

if TYPE_CHECKING:
    from broker.coordinator.transaction.requests import ProducerOfTransaction
    from broker.model.ids import TopicPartition
    from broker.replication.partition import Partition


class Verification:
    """Of one request, from the question to the last append."""

    __slots__ = ("codes", "overtaken", "partitions", "producer")

    def __init__(self, producer: ProducerOfTransaction, partitions: Iterable[Partition]) -> None:
        self.producer = producer
        self.partitions = {each.topic_partition: each for each in partitions}
        #: What the coordinator said of each; empty until it has.
        self.codes: dict[TopicPartition, ErrorCode] = {}
        #: Where a marker came in between.
        self.overtaken: set[TopicPartition] = set()

    def ask_anew(self) -> None:
        """Before each question: only what comes from here on can pass the word."""
        self.overtaken.clear()

    def check(self, partition: Partition, producer_id: int, producer_epoch: int) -> None:
        """Raises ``KafkaError``; COORDINATOR_NOT_AVAILABLE where the coordinator is to be asked again."""
        producer, topic_partition = self.producer, partition.topic_partition
        if (
            (producer_id, producer_epoch) != (producer.producer_id, producer.producer_epoch)
            or self.partitions.get(topic_partition) is not partition
            or partition.is_closed
            or topic_partition in self.overtaken
        ):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "to be verified again")
        code = self.codes.get(topic_partition, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"{topic_partition} is not known to be in the transaction")


class Verifications:
    """Those that are open."""

    def __init__(self) -> None:
        self._open: dict[tuple[TopicPartition, int], list[Verification]] = {}

    def begin(
        self, producer: ProducerOfTransaction, partitions: Iterable[Partition]
    ) -> Verification:
        """Before the coordinator is asked. ``end`` follows."""
        made = Verification(producer, partitions)
        for each in made.partitions:
            self._open.setdefault((each, producer.producer_id), []).append(made)
        return made

    def end(self, verification: Verification) -> None:
        for each in verification.partitions:
            key = (each, verification.producer.producer_id)
            left = self._open.get(key, [])
            if verification in left:
                left.remove(verification)
            if not left:
                self._open.pop(key, None)

    def on_marker(self, topic_partition: TopicPartition, producer_id: int) -> None:
        """It is in the log."""
        for each in self._open.get((topic_partition, producer_id), ()):
            each.overtaken.add(topic_partition)
