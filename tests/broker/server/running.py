"""A whole broker inside the test's process, on the loop that it uses in earnest."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from broker.server.app import Broker
from tests.support.wire import Wire

T = TypeVar("T")


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test runs on uvloop, to its end."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(**fixtures))

    return run


class Running:
    """A started broker, and clients that wait in threads of their own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.broker.listeners[0].port)

    async def call(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """``function(wire, ...)`` with a connection of its own."""

        def run() -> T:
            with Wire(self.address, timeout=60) as wire:
                return function(wire, *arguments, **options)

        return await asyncio.to_thread(run)

    async def request(self, api: str, version: int, /, **fields: Any) -> Any:
        return await self.call(Wire.request, api, version, **fields)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.001)


@asynccontextmanager
async def running(directory: Path, **settings: str) -> AsyncIterator[Running]:
    """Started and stopped in order. Settings as Kafka's, with ``_`` for ``.``."""
    directory.mkdir(parents=True, exist_ok=True)
    given = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory / "logs"),
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    broker = Broker(directory, given, asyncio.get_running_loop())
    try:
        await broker.start()
    except BaseException:
        await broker.abandon()
        raise
    try:
        yield Running(broker)
    finally:
        await broker.stop()
