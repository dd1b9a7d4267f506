"""Transactions between brokers: markers for partitions that the other leads, and what a partition's leader
asks the coordinator. JSON in the frames of ``private_wire``; decoding raises ValueError, KeyError or
TypeError at anything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from broker.coordinator.transaction.requests import ProducerOfTransaction
from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId, TopicPartition
from broker.model.transaction_marker import TransactionMarker


class SentMarker(NamedTuple):
    """A marker for one partition."""

    marker: TransactionMarker
    topic_partition: TopicPartition
    #: Of the partition's leader, as the sender knows it.
    leader_epoch: int


class Sender(NamedTuple):
    """Whose markers these are: a broker in one registration, by one of its connections."""

    broker_id: BrokerId
    broker_epoch: int
    connection: int


def encode_markers(sender: Sender, markers: Sequence[SentMarker]) -> dict[str, Any]:
    return {
        "sender": list(sender),
        "markers": [[*each.marker, *each.topic_partition, each.leader_epoch] for each in markers],
    }


def decode_markers(body: dict[str, Any]) -> tuple[Sender, list[SentMarker]]:
    broker_id, broker_epoch, connection = map(int, body["sender"])
    markers = []
    for producer_id, epoch, is_commit, coordinator, version, topic, index, leader in body[
        "markers"
    ]:
        marker = TransactionMarker(
            int(producer_id), int(epoch), bool(is_commit), int(coordinator), int(version)
        )
        markers.append(SentMarker(marker, TopicPartition(str(topic), int(index)), int(leader)))
    return Sender(BrokerId(broker_id), broker_epoch, connection), markers


def encode_question(
    producer: ProducerOfTransaction, partitions: Sequence[TopicPartition], adds: bool
) -> dict[str, Any]:
    return {"producer": list(producer), "partitions": list(map(list, partitions)), "adds": adds}


def decode_question(
    body: dict[str, Any],
) -> tuple[ProducerOfTransaction, list[TopicPartition], bool]:
    transactional_id, producer_id, epoch = body["producer"]
    producer = ProducerOfTransaction(str(transactional_id), int(producer_id), int(epoch))
    partitions = [TopicPartition(str(topic), int(index)) for topic, index in body["partitions"]]
    return producer, partitions, bool(body["adds"])


def encode_codes(codes: Sequence[ErrorCode]) -> dict[str, Any]:
    return {"codes": [int(code) for code in codes]}


def decode_codes(answer: dict[str, Any], count: int) -> list[ErrorCode]:
    """One for each of ``count``."""
    codes = [ErrorCode(int(code)) for code in answer["codes"]]
    if len(codes) != count:
        raise ValueError(f"{len(codes)} codes for {count}")
    return codes
