"""Other brokers' processes: their end is seen, doubted for a while, and told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from broker.metadata.image import BrokerImage, ClusterImage, Endpoint
from broker.model.ids import BrokerId
from broker.server.cluster import presence
from broker.server.cluster.presence import Doubts, Presence
from broker.server.tasks import TaskGroup
from tests.broker.server.running import on_loop

SELF, OTHER = BrokerId(1), BrokerId(2)


class Listener:
    """Of the other broker; what was accepted may be ended at once, as when a process dies."""

    def __init__(self) -> None:
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._on_client, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _on_client(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)

    async def die(self) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()

    def drop(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self.writers.clear()


class Watching:
    """A presence that watches the listener, and what it told."""

    def __init__(self) -> None:
        self.refused: list[BrokerImage] = []
        self.doubted: list[frozenset[BrokerId]] = []
        self.tasks = TaskGroup(asyncio.get_running_loop())
        self.presence = Presence(SELF, self.tasks, self.refused.append, self.doubted.append)

    def sees(self, *epochs: int, port: int) -> None:
        endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT"),)
        brokers = {OTHER: BrokerImage(OTHER, epoch, endpoints, None) for epoch in epochs}
        self.presence.on_image(ClusterImage(brokers=brokers))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


@on_loop
async def test_a_broker_that_died_is_doubted_until_the_image_is_without_it() -> None:
    listener, watching = Listener(), Watching()
    await listener.open()
    watching.sees(7, port=listener.port)
    await until(lambda: listener.writers)
    assert watching.doubted == []
    await listener.die()
    await until(lambda: watching.refused)
    assert watching.doubted == [{OTHER}]
    assert watching.refused[0].broker_epoch == 7
    watching.sees(port=listener.port)
    assert watching.doubted == [{OTHER}, set()]
    await watching.tasks.cancel()


@on_loop
async def test_a_broker_whose_connection_broke_is_not_doubted_once_it_answers() -> None:
    listener, watching = Listener(), Watching()
    await listener.open()
    watching.sees(7, port=listener.port)
    await until(lambda: listener.writers)
    listener.drop()
    await until(lambda: listener.writers)
    await until(lambda: watching.doubted[-1:] == [set()])
    assert watching.doubted == [{OTHER}, set()]
    assert watching.refused == []
    await watching.tasks.cancel()
    await listener.die()


@on_loop
async def test_a_broker_that_goes_on_refusing_is_doubted_for_a_while_only() -> None:
    told: list[frozenset[BrokerId]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(presence, "DOUBT_SECONDS", 0.01)
        doubts = Doubts(told.append)
        doubts.begin(OTHER)
        await until(lambda: told[-1] == set())
        doubts.begin(OTHER)
        assert told == [{OTHER}, set()]
        doubts.end(OTHER)  # it answered
        doubts.begin(OTHER)
        assert told[-1] == {OTHER}
        doubts.end(OTHER)
