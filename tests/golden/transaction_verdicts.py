"""What two requests in a row are told in each state of a transaction: captured from Apache Kafka 4.4.

``python -m tests.golden.transaction_verdicts HOST:PORT`` asks an Apache Kafka anew and writes transaction_verdicts.json.
conformance/test_transactions_verdicts.py holds our brokers to it, and in the long run Apache Kafka itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support import groups
from tests.support.requests import create_topic
from tests.support.transactions import (
    CONCURRENT_TRANSACTIONS,
    TransactionalProducer,
    describe,
    settled,
)
from tests.support.wire import Wire

VERDICTS = Path(__file__).with_suffix(".json")
#: A verdict is a list of numbers; what is told of the producer is told as a difference from what it was.
Request = Callable[[TransactionalProducer, str, str], list[int]]


def _ended(producer: TransactionalProducer, is_commit: bool) -> list[int]:
    code, producer_id, epoch = producer.try_end_and_raise(is_commit)
    if code:
        return [code, producer_id, epoch]
    return [code, producer_id - producer.producer_id, epoch - producer.epoch]


def _initialised(producer: TransactionalProducer, **named: int) -> list[int]:
    before = producer.epoch
    return [producer.try_init(version=5, **named), producer.epoch - before]


def _named(producer: TransactionalProducer, epochs_ago: int) -> list[int]:
    return _initialised(
        producer,
        producer_id=producer.producer_id,
        producer_epoch=max(producer.epoch - epochs_ago, 0),
    )


REQUESTS: Mapping[str, Request] = {
    "EndTxn 0, commit": lambda p, t, g: [p.try_end(True, version=0)],
    "EndTxn 4, commit": lambda p, t, g: [p.try_end(True, version=4)],
    "EndTxn 4, abort": lambda p, t, g: [p.try_end(False, version=4)],
    "EndTxn 5, commit": lambda p, t, g: _ended(p, True),
    "EndTxn 5, abort": lambda p, t, g: _ended(p, False),
    "AddPartitionsToTxn 3": lambda p, t, g: p.try_add(t, 0),
    "AddOffsetsToTxn 3": lambda p, t, g: [p.add_offsets(g)],
    "Produce 11": lambda p, t, g: [p.produce(t, [b"x"])],
    "Produce 12": lambda p, t, g: [settled(lambda: p.produce(t, [b"x"], version=12))],
    "TxnOffsetCommit 3": lambda p, t, g: [p.commit_offset(g, t, 1)],
    "TxnOffsetCommit 5": lambda p, t, g: [settled(lambda: p.commit_offset(g, t, 1, version=5))],
    "InitProducerId 5": lambda p, t, g: _initialised(p),
    "InitProducerId 5, named": lambda p, t, g: _named(p, 0),
    "InitProducerId 5, named by the last epoch": lambda p, t, g: _named(p, 1),
}


def _rest(producer: TransactionalProducer) -> str:
    """Its state, once no marker is on its way."""

    def told() -> int:
        state = describe(producer.wire, producer.transactional_id).transaction_state
        return CONCURRENT_TRANSACTIONS if state.startswith("Prepare") else 0

    assert settled(told) == 0
    found: str = describe(producer.wire, producer.transactional_id).transaction_state
    return found


def _begin(wire: Wire, topic: str) -> TransactionalProducer:
    producer = TransactionalProducer(wire).init(version=5)
    producer.add(topic, 0)
    return producer


def _end(producer: TransactionalProducer, raises: bool, is_commit: bool) -> TransactionalProducer:
    if raises:
        producer.end_and_raise(is_commit)
    else:
        producer.end(is_commit)
    _rest(producer)
    return producer


STATES: Mapping[str, Callable[[Wire, str], TransactionalProducer]] = {
    "Empty": lambda wire, topic: TransactionalProducer(wire).init(version=5),
    "Ongoing": _begin,
    "CompleteCommit": lambda wire, topic: _end(_begin(wire, topic), False, True),
    "CompleteAbort": lambda wire, topic: _end(_begin(wire, topic), False, False),
    "CompleteCommit, raised": lambda wire, topic: _end(_begin(wire, topic), True, True),
    "CompleteAbort, raised": lambda wire, topic: _end(_begin(wire, topic), True, False),
}


def verdicts(wire: Wire, state: str) -> dict[str, list[object]]:
    """By request: what it and its repetition are told, and the state after each."""
    topic, group = create_topic(wire), groups.new_group(wire)
    found: dict[str, list[object]] = {}
    for name, request in REQUESTS.items():
        producer = STATES[state](wire, topic)
        found[name] = []
        for _ in range(2):
            told = request(producer, topic, group)
            found[name].append([told, _rest(producer)])
        producer.try_end_and_raise(False)  # nothing stays open on the topic
        _rest(producer)
    return found


if __name__ == "__main__":
    host, _, port = sys.argv[1].rpartition(":")
    with Wire((host, int(port))) as connection:
        captured = {state: verdicts(connection, state) for state in STATES}
    lines = ",\n".join(
        f"{json.dumps(f'{state}: {name}')}: {json.dumps(told)}"
        for state, by_request in captured.items()
        for name, told in by_request.items()
    )
    VERDICTS.write_text(f"{{\n{lines}\n}}\n")
