"""A start whose connection to ZooKeeper is lost while it reads what cluster this is."""

from __future__ import annotations

import asyncio

import pytest

from broker.metadata.store import SessionState
from broker.server.cluster.joining import read_connected
from broker.server.start_error import StartError
from tests.support.by_hand import ManualScheduler


class Store:
    """Its connection is lost with the first ``losses`` reads, and comes back unless it ``stays_lost``."""

    def __init__(self, losses: int, *, stays_lost: bool = False) -> None:
        self.clock = ManualScheduler()
        self.session_state = SessionState.CONNECTED
        self.connection = 0
        self.reads = 0
        self._losses, self._stays_lost = losses, stays_lost

    async def read(self) -> str:
        self.reads += 1
        if self.reads > self._losses:
            return "the cluster"
        self.connection += 1
        self.session_state = SessionState.SUSPENDED
        asyncio.get_running_loop().call_soon(self._go_on)
        raise StartError("not connected")

    def _go_on(self) -> None:
        self.clock.advance(1000)
        if not self._stays_lost:
            self.session_state = SessionState.CONNECTED
        else:
            asyncio.get_running_loop().call_soon(self._go_on)

    async def start(self) -> str:
        return await read_connected(self, self.read, self.clock, within_ms=5000)


async def refuse() -> str:
    raise StartError("damaged")


def test_a_read_that_was_cut_off_is_done_again() -> None:
    store = Store(losses=2)
    assert asyncio.run(store.start()) == "the cluster"
    assert store.reads == 3


def test_a_connection_that_never_holds_ends_the_start_in_time() -> None:
    store = Store(losses=1000)
    with pytest.raises(StartError, match="not connected"):
        asyncio.run(store.start())
    assert 5 <= store.reads <= 7


def test_a_connection_that_does_not_come_back_ends_the_start_in_time() -> None:
    store = Store(losses=1, stays_lost=True)
    with pytest.raises(StartError, match="did not come back"):
        asyncio.run(store.start())


def test_what_is_wrong_with_the_store_is_told_at_once() -> None:
    store = Store(losses=0)
    with pytest.raises(StartError, match="damaged"):
        asyncio.run(read_connected(store, refuse, store.clock, within_ms=5000))
