"""A coordinator's word on a partition, and what makes it count no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from broker.coordinator.transaction.requests import ProducerOfTransaction
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicPartition
from broker.server.verification import Verification, Verifications

PRODUCER = ProducerOfTransaction("id", 7, 3)


@dataclass(eq=False)
class Led:
    """What is looked at of a partition."""

    topic_partition: TopicPartition
    is_closed: bool = False


def led(index: int = 0) -> Any:
    return Led(TopicPartition("t", index))


def verdict(verification: Verification, partition: Any, epoch: int = 3) -> ErrorCode:
    try:
        verification.check(partition, 7, epoch)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def verified(table: Verifications, *partitions: Any) -> Verification:
    verification = table.begin(PRODUCER, partitions)
    verification.codes = {each.topic_partition: ErrorCode.NONE for each in partitions}
    return verification


def test_the_word_counts_for_its_producer_partition_and_leadership() -> None:
    first, second = led(0), led(1)
    verification = verified(Verifications(), first, second)
    verification.codes[second.topic_partition] = ErrorCode.TRANSACTION_ABORTABLE
    assert verdict(verification, first) is ErrorCode.NONE
    assert verdict(verification, second) is ErrorCode.TRANSACTION_ABORTABLE
    for stranger in (led(2), led(0)):  # another partition, and another leadership of the same
        assert verdict(verification, stranger) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert verdict(verification, first, epoch=4) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    first.is_closed = True
    assert verdict(verification, first) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_nothing_was_said_yet() -> None:
    partition = led()
    verification = Verifications().begin(PRODUCER, [partition])
    assert verdict(verification, partition) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("producer_id", "index", "is_overtaken"), [(7, 0, True), (8, 0, False), (7, 1, False)]
)
def test_a_marker_overtakes_the_word(producer_id: int, index: int, is_overtaken: bool) -> None:
    table, partition = Verifications(), led()
    one, other = verified(table, partition), verified(table, partition)
    table.end(other)
    table.on_marker(TopicPartition("t", index), producer_id)
    assert (verdict(one, partition) is not ErrorCode.NONE) == is_overtaken
    assert verdict(other, partition) is ErrorCode.NONE  # nobody asks it any more
    table.end(one)
    table.end(one)
    table.on_marker(TopicPartition("t", 0), 7)


def test_a_marker_from_before_the_question_does_not() -> None:
    table, partition = Verifications(), led()
    verification = verified(table, partition)
    for code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        table.on_marker(partition.topic_partition, 7)
        if code is ErrorCode.NONE:
            verification.ask_anew()
        assert verdict(verification, partition) is code
