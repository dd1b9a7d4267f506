"""Filters in their child process: verdicts, and the end of those that do not come to one."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from broker.clock import SystemClock
from dashboard import tail_filters
from dashboard.cluster import Record
from dashboard.tail_filters import (
    FAILED,
    MATCHED,
    UNLOOKED,
    UNMATCHED,
    FilterProcess,
    FilterTrouble,
)


def record(value: bytes) -> Record:
    return Record("t", 0, 0, 1, 0, None, value, [])


@pytest.fixture
async def filters() -> AsyncIterator[FilterProcess]:
    filters = FilterProcess(SystemClock())
    yield filters
    await filters.close()
    assert filters.pid is None


async def test_each_record_has_its_verdict(filters: FilterProcess) -> None:
    records = [record(b'{"n": 1}'), record(b'{"n": 9007199254740993}'), record(b"none")]
    verdicts = await filters.evaluate("json.n == 9007199254740993", records)

    assert list(verdicts.each) == [UNMATCHED, MATCHED, FAILED]
    assert verdicts.first_error


async def test_a_wrong_expression_is_said_and_the_child_goes_on(filters: FilterProcess) -> None:
    with pytest.raises(FilterTrouble):
        await filters.evaluate("value ==", [])
    pid = filters.pid
    assert (await filters.evaluate("true", [record(b"")])).each == bytes([MATCHED])
    assert filters.pid == pid


async def test_what_takes_longer_than_its_budget_is_not_looked_at(
    filters: FilterProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail_filters, "BUDGET_MS", 0)
    monkeypatch.setattr(tail_filters, "LIMIT_S", 60)
    text = "json.all(x, json.all(y, x + y >= 0))"
    numbers = record(str(list(range(300))).encode())
    verdicts = await filters.evaluate(text, [numbers] * 50)

    assert verdicts.each.count(UNLOOKED) > 0


async def test_a_child_that_does_not_answer_is_ended_and_its_filter_refused(
    filters: FilterProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filters.evaluate("true", [])
    monkeypatch.setattr(tail_filters, "LIMIT_S", 0.2)
    pid = filters.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(FilterTrouble, match="too long"):
        await filters.evaluate("value == 'slow'", [record(b"")])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    monkeypatch.setattr(tail_filters, "LIMIT_S", 60)
    with pytest.raises(FilterTrouble, match="too long"):
        await filters.evaluate("value == 'slow'", [record(b"")])

    assert (await filters.evaluate("true", [record(b"")])).each == bytes([MATCHED])


async def test_requests_of_several_topics_take_turns(filters: FilterProcess) -> None:
    answers = await asyncio.gather(
        *(filters.evaluate(f"value == '{n}'", [record(b"1"), record(b"2")]) for n in (1, 2))
    )

    assert [list(answer.each) for answer in answers] == [[MATCHED, UNMATCHED], [UNMATCHED, MATCHED]]
