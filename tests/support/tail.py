"""A viewer of the live tail's hub in a test: collects frames, answers them unless told not to."""

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from broker.clock import SystemClock
from dashboard.cluster import KafkaFailure, TopicView
from dashboard.gateway import Gateway
from dashboard.gateway.tail_reader import TailReader
from dashboard.tail_hub import Connection, TailHub


def hub_of(bootstrap: str) -> TailHub:
    gateway = Gateway(bootstrap, timeout_s=2)

    async def describe(topics: Sequence[str]) -> dict[str, TopicView | KafkaFailure]:
        return await asyncio.to_thread(gateway.topics, topics)

    return TailHub(partial(TailReader, bootstrap, {}), describe, SystemClock())


class Watcher:
    """One viewer. What came is in `rows`, `counters`, `states`; `until` waits for it."""

    def __init__(self, hub: TailHub, *, answers: bool = True) -> None:
        self.hub = hub
        self.answers = answers
        self.frames: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None
        self.connection = Connection(self._take, self._close, SystemClock().monotonic_ms())
        self._news = asyncio.Event()

    async def start(self, *topics: str, filter_text: str = "", last: int = 0) -> None:
        """Returns once the run is going: what arrives from now on will be shown."""
        if not self.frames:
            self.hub.connect(self.connection)
        run = self.connection.viewer.run
        await self.hub.begin(self.connection, topics, filter_text, last)
        await self.until(lambda: any(frame["run"] > run for frame in self.frames))

    async def stop(self) -> None:
        await self.hub.disconnect(self.connection)

    async def until(self, condition: Callable[[], bool], seconds: float = 30) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self._news.clear()
                await self._news.wait()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for frame in self.frames for row in frame["rows"]]

    @property
    def values(self) -> list[str]:
        return [row["value"]["text"] for row in self.rows]

    @property
    def starts(self) -> dict[str, dict[str, str]]:
        return self._latest("starts") or {}

    @property
    def counters(self) -> dict[str, Any]:
        return self._latest("counters") or {}

    @property
    def states(self) -> dict[str, str]:
        return {one["topic"]: one["state"] for one in self._latest("topics") or []}

    def has_reached(self, offsets: dict[str, dict[str, str]]) -> bool:
        return self.counters.get("offsets") == offsets

    def passed(self) -> int:
        """Offsets between the start of this run and where it stands, when nothing waits."""
        starts, offsets = self.starts, self.counters["offsets"]
        return sum(
            int(offset) - int(starts[topic].get(partition, 0))
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        )

    def _latest(self, name: str) -> Any:
        return next((one[name] for one in reversed(self.frames) if name in one), None)

    async def _take(self, text: str) -> None:
        frame = json.loads(text)
        self.frames.append(frame)
        if self.answers:
            self.connection.heard_ms = SystemClock().monotonic_ms()
            self.connection.viewer.acknowledge(frame["seq"])
        self._news.set()

    async def _close(self, code: int, reason: str) -> None:
        self.closed = code, reason
        await self.hub.disconnect(self.connection)
        self._news.set()
