"""Idempotence and transactions, batch by batch."""

from __future__ import annotations

from typing import Any

import pytest

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.transaction_marker import TransactionMarker
from broker.records.header import BatchHeader, peek_header
from broker.storage import producer_state
from broker.storage.producer_snapshot import (
    CorruptSnapshot,
    SnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from broker.storage.producer_state import ProducerState
from broker.storage.transaction_index import AbortedTransaction
from tests.broker.storage.build import NOW_MS, batch

LAST = 0x7FFF_FFFF


def header(sequence: int, count: int = 1, epoch: int = 0, pid: int = 1, **more: Any) -> BatchHeader:
    return peek_header(
        batch(count, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, **more)
    )


class Playbook:
    """A partition that stores what its producers may store."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.end = 0

    def send(self, *arguments: Any, **more: Any) -> int:
        """Base offset of the stored batch, or of the one that it repeats."""
        data = header(*arguments, **more)
        duplicate = self.state.check(data)
        if duplicate is not None:
            return duplicate.base_offset
        base_offset = self.end
        self.state.update(data, base_offset)
        self.end += data.last_offset_delta + 1
        return base_offset

    def mark(self, *, commit: bool, pid: int = 1, epoch: int = 0, coordinator: int = 0) -> Any:
        data = header(-1, epoch=epoch, pid=pid)
        marker = TransactionMarker(pid, epoch, commit, coordinator)
        self.state.check_marker(data, marker)
        self.end += 1
        return self.state.end_transaction(data, marker, self.end - 1)

    def refusal(self, *arguments: Any, **more: Any) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            self.send(*arguments, **more)
        return refused.value.code


def test_sequences_follow_each_other() -> None:
    log = Playbook()
    assert [log.send(0, 3), log.send(3, 2), log.send(5)] == [0, 3, 5]
    assert log.refusal(7) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refusal(4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_last_five_batches_are_recognised() -> None:
    log = Playbook()
    for sequence in range(0, 14, 2):
        log.send(sequence, 2)
    assert [log.send(sequence, 2) for sequence in (4, 6, 8, 10, 12)] == [4, 6, 8, 10, 12]
    assert log.refusal(2, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # Not the same batch, though its end is known.
    assert log.refusal(5, 1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert Playbook().send(41) == 0


def test_sequences_wrap_to_zero() -> None:
    log = Playbook()
    log.send(LAST - 1, 2)
    assert log.send(0) == 2
    assert log.send(LAST - 1, 2) == 0
    other = Playbook()
    other.send(LAST, 3)
    assert other.send(LAST, 3) == 0
    assert other.send(2) == 3


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one() -> None:
    log = Playbook()
    log.send(0, 5)
    assert log.refusal(5, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(0, 5, epoch=1) == 5
    assert log.refusal(5, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_open_and_aborted_transactions_hold_readers_back() -> None:
    log = Playbook()
    log.send(0, is_transactional=True)
    log.send(0, pid=2, is_transactional=True)
    assert log.state.first_unstable_offset == 0
    assert log.mark(commit=False) == AbortedTransaction(1, 0, 2, 1)
    assert log.state.first_unstable_offset == 0
    log.state.on_high_watermark(2)
    assert log.state.first_unstable_offset == 0
    log.state.on_high_watermark(3)
    assert log.state.first_unstable_offset == 1
    assert log.mark(commit=True, pid=2) is None
    log.state.on_high_watermark(4)
    assert log.state.first_unstable_offset == -1


def test_a_marker_without_a_transaction_changes_nothing_readers_see() -> None:
    log = Playbook()
    assert log.mark(commit=False) is None
    assert log.state.first_unstable_offset == -1


def test_an_old_coordinator_is_fenced() -> None:
    log = Playbook()
    log.send(0, is_transactional=True)
    log.mark(commit=True, coordinator=4)
    with pytest.raises(KafkaError) as refused:
        log.mark(commit=True, coordinator=3)
    assert refused.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_plain_batch_inside_a_transaction_is_refused() -> None:
    log = Playbook()
    log.send(0, is_transactional=True)
    assert log.refusal(1) is ErrorCode.INVALID_TXN_STATE


def test_idle_producers_expire_but_not_their_transactions() -> None:
    log = Playbook()
    log.send(0, pid=1)
    log.send(0, pid=2, is_transactional=True)
    assert log.state.expire(NOW_MS + 999, 1000) == 0
    assert log.state.expire(NOW_MS + 1000, 1000) == 1
    assert list(log.state.entries) == [2]


@pytest.mark.interpreted
def test_memory_of_producers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 100)
    log = Playbook()
    log.send(0, pid=5000, is_transactional=True)
    for pid in range(500):
        log.send(0, pid=pid, timestamp=NOW_MS + pid)
    assert len(log.state.entries) <= 100
    assert 5000 in log.state.entries
    assert 499 in log.state.entries


def test_a_snapshot_brings_the_last_batch_and_open_transactions_back() -> None:
    log = Playbook()
    for sequence in range(3):
        log.send(sequence)
    log.send(0, pid=2, is_transactional=True)
    restored = Playbook()
    restored.end = log.end
    restored.state.load(decode_snapshot(encode_snapshot(log.state.snapshot())), log.end)
    assert restored.state.first_unstable_offset == 3
    assert restored.send(2) == 2
    assert restored.refusal(1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert restored.send(3) == 4


def test_a_snapshot_leaves_expired_producers_behind() -> None:
    log = Playbook()
    log.send(0, pid=1)
    log.send(0, pid=2, is_transactional=True)
    state = ProducerState()
    state.load(log.state.snapshot(), 2, lambda entry: True)
    assert list(state.entries) == [2]


ENTRY = SnapshotEntry(1, 2, 3, 4, 0, 6, 7, -1)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: b"",
        lambda data: b"\0\2" + data[2:],
        lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
        lambda data: bytes(len(data)),
    ],
)
def test_a_damaged_snapshot_is_recognised(damage: Any) -> None:
    data = encode_snapshot([ENTRY])
    assert decode_snapshot(data) == [ENTRY]
    assert len(data) == 10 + 46
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(damage(data))
