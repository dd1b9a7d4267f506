"""Markers and questions between brokers come as they were sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from broker.coordinator.transaction.requests import ProducerOfTransaction
from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId, TopicPartition
from broker.model.transaction_marker import TransactionMarker
from broker.server.cluster.transaction_wire import (
    Sender,
    SentMarker,
    decode_codes,
    decode_markers,
    decode_question,
    encode_codes,
    encode_markers,
    encode_question,
)


def over_the_wire(body: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(json.dumps(body))
    return told


def test_markers() -> None:
    sender = Sender(BrokerId(2), 8589934600, 3)
    marker = TransactionMarker(4001, 7, True, 12, 2)
    markers = [
        SentMarker(marker, TopicPartition("t", 5), 9),
        SentMarker(marker._replace(is_commit=False), TopicPartition("u", 0), 1),
    ]
    assert decode_markers(over_the_wire(encode_markers(sender, markers))) == (sender, markers)


@pytest.mark.parametrize("adds", [True, False])
def test_questions(adds: bool) -> None:
    producer = ProducerOfTransaction("id é", 4001, 7)
    partitions = [TopicPartition("t", 5), TopicPartition("u", 0)]
    body = over_the_wire(encode_question(producer, partitions, adds))
    assert decode_question(body) == (producer, partitions, adds)


def test_codes() -> None:
    codes = [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    body = over_the_wire(encode_codes(codes))
    assert decode_codes(body, 2) == codes
    with pytest.raises(ValueError, match="2 codes for 3"):
        decode_codes(body, 3)
