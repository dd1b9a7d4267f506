"""Handlers without sockets: requests in, answers out, over real logs, with time moved by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from broker.config.broker_config import resolve_broker_config
from broker.model.file_region import FileRegion
from broker.protocol.framing import ReceiveBudget, Scratch
from broker.protocol.request import parse_header
from broker.replication.fetch_session import FetchSessionCache
from broker.server.connection import Answer, Connection, ResponseSlot
from broker.server.dispatcher import Dispatcher
from broker.server.handlers import HOT_HANDLERS
from broker.storage.filesystem import FileSystem
from tests.broker.replication.build import World
from tests.support import wire
from tests.support.by_hand import ManualTasks
from tests.support.wire import Struct


class FakeConnection:
    """Keeps the answers in order, as a connection does, and sends nothing."""

    def __init__(self) -> None:
        self.slots: list[ResponseSlot] = []
        #: By slot: whether nothing may start behind it.
        self.is_alone: list[bool] = []
        self.close_reason: str | None = None
        self.client_id = "test"
        self.local_address = ("127.0.0.1", 9092)
        self.peer_host = "127.0.0.1"

    def defer(self, header: object, is_alone: bool = False) -> ResponseSlot:
        slot = ResponseSlot(cast(Connection, self))
        self.slots.append(slot)
        self.is_alone.append(is_alone)
        return slot

    def on_slot_done(self) -> None:
        pass

    def close(self, reason: str | None) -> None:
        self.close_reason = reason or "gone"
        for slot in self.slots:
            slot.cancel()


class Pending:
    """A request on its way."""

    def __init__(self, api: str, version: int, answer: Answer | None, slot: ResponseSlot | None):
        self._api = api
        self._version = version
        self._now = answer
        self._slot = slot

    @property
    def is_deferred(self) -> bool:
        return self._slot is not None

    @property
    def raw(self) -> Answer | None:
        if self._slot is None:
            return self._now
        return self._slot.take()[1]

    @property
    def is_answered(self) -> bool:
        return self._slot is None or self._slot.take()[0]

    @property
    def answer(self) -> Struct:
        pieces = self.raw
        assert pieces is not None, "there is no answer yet"
        data = b"".join(content(piece) for piece in pieces)
        return wire.decode_response(self._api, self._version, data[4:])[1]


def content(piece: bytes | FileRegion) -> bytes:
    if isinstance(piece, FileRegion):
        return cast(bytes, piece.file.pread(piece.length, piece.position))  # type: ignore[attr-defined]
    return piece


class HandlerWorld(World):
    """``ask`` calls a hot handler the way the dispatcher does."""

    def __init__(
        self,
        directories: Sequence[Path | str],
        fs: FileSystem | None = None,
        settings: dict[str, str] | None = None,
        slots: int = 10,
    ) -> None:
        super().__init__(directories, fs)
        self.connection = FakeConnection()
        self.reports: list[str] = []
        #: Frames lie where the next one is received to, instead of in a buffer of their own.
        self.receive_into_scratch = False
        self.tasks = ManualTasks()
        self.broker: Any = SimpleNamespace(
            clock=self.scheduler,
            scheduler=self.scheduler,
            threads=self.threads,
            tasks=self.tasks,
            next_turn=lambda: asyncio.sleep(0),
            replicas=self.replicas,
            config=resolve_broker_config({"log.dirs": "/tmp/unused", **(settings or {})}),
            scratch=Scratch(),
            fetch_sessions=FetchSessionCache(slots, random.Random(1)),
            receive_budget=ReceiveBudget(1 << 20),
            report_corruption=lambda error: self.reports.append(str(error)),
            report_read_error=lambda topic, index, error: self.reports.append(str(error)),
        )
        self.broker.dispatcher = Dispatcher(self.broker)

    def run(self) -> int:
        """Everything that goes on by itself; gives the turns that tasks took."""
        turns = self.tasks.run()
        while self.threads.run() or self.scheduler.run():
            turns += self.tasks.run()
        return turns

    def ask(self, api: str, version: int, **fields: Any) -> Pending:
        frame = memoryview(bytearray(wire.encode_request(api, version, 1, **fields)[4:]))
        if self.receive_into_scratch:
            room = self.broker.scratch.view[: len(frame)]
            room[:] = frame
            frame = room
        header = parse_header(frame)
        before = len(self.connection.slots)
        answer = HOT_HANDLERS[header.api_key](
            self.broker, cast(Connection, self.connection), header, frame
        )
        slot = self.connection.slots[-1] if len(self.connection.slots) > before else None
        assert answer is None or slot is None
        return Pending(api, version, answer, slot)
