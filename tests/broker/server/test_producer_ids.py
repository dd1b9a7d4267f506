"""Producer ids from blocks: each given once, and nobody left waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.metadata.requests import ProducerIds as Block
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.server.producer_ids import ProducerIds
from tests.broker.server.running import on_loop


class Blocks:
    """The controller's share: each ``give`` answers what was asked."""

    def __init__(self) -> None:
        self.asked: list[Callable[[Block], None]] = []

    def allocate_producer_ids(self, done: Callable[[Block], None]) -> None:
        self.asked.append(done)

    def give(self, first: int, count: int) -> None:
        self.asked.pop(0)(Block(first, count))

    def refuse(self) -> None:
        self.asked.pop(0)(Block(error=ErrorCode.REQUEST_TIMED_OUT, message="later"))


def made() -> tuple[ProducerIds, Blocks]:
    blocks = Blocks()
    return ProducerIds(blocks.allocate_producer_ids, asyncio.get_running_loop()), blocks


async def ask(ids: ProducerIds, count: int) -> list[asyncio.Future[int]]:
    asked: list[Any] = [asyncio.ensure_future(ids.next()) for _ in range(count)]
    await asyncio.sleep(0)
    return asked


@on_loop
async def test_one_block_serves_many_and_is_asked_for_once() -> None:
    ids, blocks = made()
    asked = await ask(ids, 10)
    assert len(blocks.asked) == 1
    blocks.give(5000, 1000)
    assert await asyncio.gather(*asked) == list(range(5000, 5010))
    assert await ids.next() == 5010
    assert blocks.asked == []


@on_loop
async def test_those_for_whom_a_block_is_too_small_wait_for_the_next() -> None:
    ids, blocks = made()
    asked = await ask(ids, 5)
    blocks.give(0, 3)
    await asyncio.sleep(0)
    assert [future.done() for future in asked] == [True, True, True, False, False]
    blocks.give(3000, 3)
    assert await asyncio.gather(*asked) == [0, 1, 2, 3000, 3001]
    assert await ids.next() == 3002
    assert len(blocks.asked) == 0


@on_loop
async def test_a_refusal_is_told_to_all_who_wait_and_the_next_asks_anew() -> None:
    ids, blocks = made()
    asked = await ask(ids, 3)
    blocks.refuse()
    for future in asked:
        with pytest.raises(KafkaError) as caught:
            await future
        assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    (again,) = await ask(ids, 1)
    blocks.give(7, 1)
    assert await again == 7


@on_loop
async def test_those_who_left_take_no_id_along() -> None:
    ids, blocks = made()
    asked = await ask(ids, 3)
    asked[0].cancel()
    asked[1].cancel()
    await asyncio.gather(*asked[:2], return_exceptions=True)
    blocks.give(1, 1)
    assert await asked[2] == 1
