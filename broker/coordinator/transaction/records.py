"""Records of ``__transaction_state`` (``TransactionLogKey`` and ``TransactionLogValue`` in Kafka).

Values are written at version 1, as Kafka 4.4 does from ``transaction.version`` 1 on; version 0, which
has no tagged fields, is read as well.
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import Final

from broker.coordinator.record_codec import (
    MalformedRecord,
    RecordReader,
    key_type,
    string,
    unsigned,
)
from broker.coordinator.result import CoordinatorRecord
from broker.coordinator.transaction.states import TransactionState
from broker.coordinator.transaction.transaction import CLASSIC, NO_PRODUCER_ID, Transaction
from broker.model.ids import TopicPartition

TRANSACTION_KEY: Final = 0
VALUE_VERSION: Final = 1
FIRST_FLEXIBLE: Final = 1

_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION, _NEXT_EPOCH = range(4)

_SHORT = Struct(">h")
_LONG = Struct(">q")
_HEAD = Struct(">hqhib")
_TAIL = Struct(">qq")
_NULL_ARRAY: Final = unsigned(0)
_NO_TAGS: Final = unsigned(0)
#: Fields of the log that are not tagged have these sizes; the tagged ones are told by their tag.
_TAG_LAYOUTS: Final = {_PREVIOUS_PRODUCER_ID: _LONG, _NEXT_PRODUCER_ID: _LONG,
                       _CLIENT_VERSION: _SHORT, _NEXT_EPOCH: _SHORT}  # fmt: skip


def transaction_key(transactional_id: str) -> bytes:
    return _SHORT.pack(TRANSACTION_KEY) + string(transactional_id)


def transaction_record(transactional_id: str, transaction: Transaction) -> CoordinatorRecord:
    head = _HEAD.pack(
        VALUE_VERSION,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.state,
    )
    tail = _TAIL.pack(transaction.updated_ms, transaction.started_ms)
    value = head + _partitions(transaction) + tail + _tags(transaction)
    return CoordinatorRecord(transaction_key(transactional_id), value)


def transaction_tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(transaction_key(transactional_id), None)


def _partitions(transaction: Transaction) -> bytes:
    if transaction.state is TransactionState.EMPTY:
        return _NULL_ARRAY
    topics = [
        (topic, [each.partition for each in partitions])
        for topic, partitions in groupby(sorted(transaction.partitions), itemgetter(0))
    ]
    parts = [unsigned(len(topics) + 1)]
    for topic, indexes in topics:
        name = topic.encode()
        parts += (unsigned(len(name) + 1), name, unsigned(len(indexes) + 1))
        parts += (Struct(f">{len(indexes)}i").pack(*indexes), _NO_TAGS)
    return b"".join(parts)


def _tags(transaction: Transaction) -> bytes:
    """Those that differ from their defaults."""
    fields = [
        (tag, number)
        for tag, number, default in (
            (_PREVIOUS_PRODUCER_ID, transaction.previous_producer_id, NO_PRODUCER_ID),
            (_NEXT_PRODUCER_ID, transaction.next_producer_id, NO_PRODUCER_ID),
            (_CLIENT_VERSION, transaction.client_version, CLASSIC),
        )
        if number != default
    ]
    parts = [unsigned(len(fields))]
    for tag, number in fields:
        layout = _TAG_LAYOUTS[tag]
        parts += (unsigned(tag), unsigned(layout.size), layout.pack(number))
    return b"".join(parts)


def read_transactional_id(key: bytes) -> str | None:
    """None: a key of a kind that later versions may bring. Raises ``MalformedRecord``."""
    return RecordReader(key).string() if key_type(key) == TRANSACTION_KEY else None


def read_transaction(value: bytes) -> Transaction:
    """Raises ``MalformedRecord``."""
    reader = RecordReader(value, FIRST_FLEXIBLE)
    if reader.version > VALUE_VERSION:
        raise MalformedRecord(f"a transaction's value of version {reader.version}")
    producer_id, producer_epoch = reader.int64(), reader.int16()
    timeout_ms, state = reader.int32(), _state(reader.int8())
    partitions = frozenset(_read_partitions(reader))
    updated_ms, started_ms = reader.int64(), reader.int64()
    tags = {tag: _read_tag(tag, data) for tag, data in reader.tags() if tag in _TAG_LAYOUTS}
    return Transaction(
        producer_id,
        producer_epoch,
        timeout_ms,
        state,
        partitions if state is not TransactionState.EMPTY else frozenset(),
        updated_ms,
        started_ms,
        previous_producer_id=tags.get(_PREVIOUS_PRODUCER_ID, -1),
        next_producer_id=tags.get(_NEXT_PRODUCER_ID, -1),
        client_version=tags.get(_CLIENT_VERSION, 0),
    )


def _state(number: int) -> TransactionState:
    try:
        return TransactionState(number)
    except ValueError:
        raise MalformedRecord(f"a transaction in state {number}") from None


def _read_partitions(reader: RecordReader) -> list[TopicPartition]:
    found = []
    for _ in range(reader.array_length()):
        topic = reader.string()
        found += [TopicPartition(topic, reader.int32()) for _ in range(reader.array_length())]
        reader.tags()
    return found


def _read_tag(tag: int, data: bytes) -> int:
    layout = _TAG_LAYOUTS[tag]
    if len(data) != layout.size:
        raise MalformedRecord(f"tag {tag} of {len(data)} bytes")
    number: int = layout.unpack(data)[0]
    return number
