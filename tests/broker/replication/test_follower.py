"""A follower: what it fetches, where it cuts, and what it never does."""

from __future__ import annotations

import pytest

from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId
from broker.model.leadership import LeaderAndIsr
from broker.replication.follower import FollowerMachine
from broker.replication.replica_fetch import (
    Accepted,
    Diverged,
    FetchAnswer,
    FetchRefused,
    FetchVerdict,
)
from tests.broker.replication.memory_log import MemoryLog

ONE, TWO = BrokerId(1), BrokerId(2)


def follower(log: MemoryLog, is_flush_bound: bool = False) -> FollowerMachine:
    state = LeaderAndIsr(ONE, 7, 20, (ONE, TWO), frozenset({ONE}))
    return FollowerMachine(TWO, state, log, is_flush_bound)


def answer(
    verdict: FetchVerdict,
    data: bytes = b"",
    high_watermark: int = 0,
    number: int = 1,
    start: int = 0,
) -> FetchAnswer:
    return FetchAnswer(7, number, verdict, data, high_watermark, start)


def test_a_fetch_names_the_end_and_the_last_epoch_of_the_log() -> None:
    fetch = follower(MemoryLog([1, 1, 3])).next_fetch(102)
    assert fetch == (TWO, 102, 7, 3, 3, 0)


def test_one_fetch_at_a_time() -> None:
    machine = follower(MemoryLog([1]))
    assert machine.next_fetch(102) is not None
    assert machine.next_fetch(102) is None
    machine.on_no_answer()
    assert machine.next_fetch(102) is not None


def test_what_comes_is_appended_and_the_next_fetch_acknowledges_it_and_the_answer() -> None:
    log = MemoryLog([1])
    machine = follower(log)
    fetch = machine.next_fetch(102)
    assert fetch is not None
    result = machine.on_answer(fetch, answer(Accepted(1), bytes([7, 7]), 2, number=5), 0)
    assert result.appended is not None
    assert (log.log_end_offset, log.high_watermark) == (3, 2)
    assert machine.next_fetch(102) == (TWO, 102, 7, 3, 7, 5)


def test_what_the_leader_has_committed_beyond_the_end_is_the_lag() -> None:
    log = MemoryLog([1])
    machine = follower(log)
    assert machine.lag == 0
    fetch = machine.next_fetch(102)
    assert fetch is not None
    machine.on_answer(fetch, answer(Accepted(1), bytes([7, 7]), 10), 0)
    assert (log.high_watermark, machine.lag) == (3, 7)


def test_the_high_watermark_ends_where_the_log_does_and_never_goes_back() -> None:
    log = MemoryLog([1, 1, 1], high_watermark=2)
    machine = follower(log)
    for told, known in ((1, 2), (9, 3)):
        fetch = machine.next_fetch(102)
        assert fetch is not None
        machine.on_answer(fetch, answer(Accepted(3), b"", told), 0)
        assert log.high_watermark == known


def test_an_answer_to_a_fetch_that_was_given_up_does_nothing() -> None:
    log = MemoryLog([1])
    machine = follower(log)
    old = machine.next_fetch(102)
    assert old is not None
    machine.on_no_answer()
    machine.next_fetch(102)
    machine.on_answer(old, answer(Accepted(1), bytes([7])), 0)
    assert log.log_end_offset == 1
    assert machine.next_fetch(102) is None


def test_with_flush_messages_1_nothing_is_fetched_before_the_disk_has_caught_up() -> None:
    log = MemoryLog([1])
    machine = follower(log, is_flush_bound=True)
    fetch = machine.next_fetch(102)
    assert fetch is not None
    machine.on_answer(fetch, answer(Accepted(1), bytes([7])), 0)
    assert machine.next_fetch(102) is None
    log.flushed_offset = 2
    assert machine.next_fetch(102) is not None


@pytest.mark.parametrize(
    ("own", "diverged", "left"),
    [
        ([1, 1, 2, 2], Diverged(1, 2), 2),
        ([1, 1, 1, 1], Diverged(1, 3), 3),
        ([1, 1, 2, 2], Diverged(1, 1), 1),
        # The leader's epoch is none of ours: back to the end of the one before it, and ask again.
        ([1, 1, 3, 3], Diverged(2, 4), 2),
        ([3, 3], Diverged(1, 1), 0),
        ([3, 3], Diverged(-1, -1), 0),
    ],
)
def test_the_log_is_cut_where_it_parts(own: list[int], diverged: Diverged, left: int) -> None:
    log = MemoryLog(own)
    machine = follower(log)
    fetch = machine.next_fetch(102)
    assert fetch is not None
    result = machine.on_answer(fetch, answer(diverged), 0)
    assert (log.log_end_offset, result.is_back_off) == (left, False)
    again = machine.next_fetch(102)
    assert again is not None
    assert again.fetch_offset == left


def test_damaged_bytes_are_fetched_again() -> None:
    log = MemoryLog([1])
    machine = follower(log)
    fetch = machine.next_fetch(102)
    assert fetch is not None
    result = machine.on_answer(fetch, answer(Accepted(1), bytes([7, 255, 7])), 0)
    assert result.is_back_off
    again = machine.next_fetch(102)
    assert again is not None
    assert again.fetch_offset == 2


def test_a_log_that_ends_before_the_leaders_begins_starts_anew_there() -> None:
    log = MemoryLog([1, 1])
    machine = follower(log)
    fetch = machine.next_fetch(102)
    assert fetch is not None
    refused = FetchRefused(ErrorCode.OFFSET_OUT_OF_RANGE)
    assert not machine.on_answer(fetch, answer(refused, start=50), 0).is_back_off
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)


def test_any_other_refusal_waits_a_while() -> None:
    log = MemoryLog([1, 1])
    machine = follower(log)
    fetch = machine.next_fetch(102)
    assert fetch is not None
    refused = FetchRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert machine.on_answer(fetch, answer(refused, start=-1), 0).is_back_off
    assert log.log_end_offset == 2
