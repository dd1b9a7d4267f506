"""The records of ``__transaction_state``."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.record_codec import MalformedRecord
from broker.coordinator.transaction.records import (
    read_transaction,
    read_transactional_id,
    transaction_key,
    transaction_record,
    transaction_tombstone,
)
from broker.coordinator.transaction.states import TransactionState
from broker.coordinator.transaction.transaction import Transaction
from broker.model.ids import TopicPartition

partitions = st.frozensets(
    st.builds(TopicPartition, st.text("ab.", min_size=1, max_size=3), st.integers(0, 1 << 30)),
    max_size=6,
)
transactions = st.builds(
    Transaction,
    producer_id=st.integers(0, 1 << 62),
    producer_epoch=st.integers(-1, 32767),
    timeout_ms=st.integers(1, 900_000),
    state=st.sampled_from(TransactionState),
    partitions=partitions,
    updated_ms=st.integers(0, 1 << 50),
    started_ms=st.integers(-1, 1 << 50),
    last_producer_epoch=st.just(-1),
    previous_producer_id=st.integers(-1, 1 << 62),
    next_producer_id=st.integers(-1, 1 << 62),
    client_version=st.integers(0, 2),
)


@given(transactions, st.text(max_size=20))
def test_what_is_written_is_read(transaction: Transaction, transactional_id: str) -> None:
    key, value = transaction_record(transactional_id, transaction)
    assert value is not None
    assert read_transactional_id(key) == transactional_id
    if transaction.state is TransactionState.EMPTY:  # Kafka writes null there
        transaction = transaction._replace(partitions=frozenset())
    assert read_transaction(value) == transaction
    assert transaction_tombstone(transactional_id) == (key, None)


@given(transactions, st.data())
def test_a_value_that_is_cut_short_is_refused(
    transaction: Transaction, data: st.DataObject
) -> None:
    _, value = transaction_record("t", transaction)
    assert value is not None
    with pytest.raises(MalformedRecord):
        read_transaction(value[: data.draw(st.integers(0, len(value) - 1))])


@given(st.binary(max_size=80))
def test_anything_is_read_or_refused(data: bytes) -> None:
    for read in (read_transactional_id, read_transaction):
        with contextlib.suppress(MalformedRecord):
            read(data)


def test_keys_of_later_kinds_are_passed_over() -> None:
    assert read_transactional_id(b"\x00\x01" + transaction_key("a")[2:]) is None


def test_values_of_later_versions_are_refused() -> None:
    with pytest.raises(MalformedRecord):
        read_transaction(b"\x00\x02" + bytes(40))


def test_the_bytes_are_kafkas() -> None:
    """By ``TransactionLogKey`` and ``TransactionLogValue`` of Kafka 4.4, version 1."""
    ongoing = Transaction(
        7, 2, 60_000, TransactionState.ONGOING,
        frozenset({TopicPartition("u", 1), TopicPartition("t", 3), TopicPartition("t", 0)}), 6, 5,
    )  # fmt: skip
    key, value = transaction_record("tx", ongoing)
    assert key.hex() == "000000027478"
    assert value is not None
    head, tail = "0001000000000000000700020000ea60", "00000000000000060000000000000005"
    partitions = "030274030000000000000003000275020000000100"
    assert value.hex() == head + "01" + partitions + tail + "00"
    exhausted = ongoing._replace(
        state=TransactionState.EMPTY,
        previous_producer_id=7,
        next_producer_id=9,
        client_version=2,
    )
    _, value = transaction_record("tx", exhausted)
    assert value is not None
    tags = "03000800000000000000070108000000000000000902020002"
    assert value.hex() == head + "00" + "00" + tail + tags
