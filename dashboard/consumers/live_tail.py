"""The live tail's WebSocket: who may open it, and what its messages ask of the hub.

Records never travel through the channel layer: the hub calls ``send`` here. However a socket ends
(its browser is gone, the server stops, a fault here), the hub hears of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings

from broker.clock import SystemClock
from dashboard import clusters
from dashboard.cluster import KafkaFailure, TopicView
from dashboard.gateway.tail_reader import TailReader
from dashboard.payloads import BadMessage, ClientMessage, TailEnd, parse
from dashboard.permissions import Permission, may
from dashboard.socket_guard import (
    BAD_MESSAGE,
    TOO_MANY,
    SocketGuard,
    TooManySockets,
    refusal,
    users_of,
)
from dashboard.tail_hub import Connection, TailFull, TailHub

MAX_MESSAGES_A_SECOND: Final = 50


class LiveTail(AsyncWebsocketConsumer):  # type: ignore[misc]
    session_key: str
    user_id: int
    topics: list[str]

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self._connection: Connection | None = None
        self._hub, self._guard = _of_this_loop()
        self._clock = SystemClock()
        self._second_ms, self._message_count = 0, 0
        self.topics = []
        self._is_closed = False
        self.scope, self.base_send = scope, send
        try:
            await self._serve(receive)
        finally:
            await asyncio.shield(self._forget())

    async def _serve(self, receive: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        # Not the dispatch of Channels: it enters a thread for each message, to look after database
        # connections, and thousands of acknowledgements come in a second.
        while (message := await receive())["type"] != "websocket.disconnect":
            if message["type"] == "websocket.connect":
                await self.connect()
            else:
                await self.receive(message.get("text"), message.get("bytes"))

    async def connect(self) -> None:
        session_key: str = self.scope["cookies"].get(settings.SESSION_COOKIE_NAME, "")
        user = (await users_of({session_key})).get(session_key)
        if user is None or not may(user, Permission.READ_RECORDS):
            await self.close()
            return
        self.session_key, self.user_id = session_key, user.pk
        await self.accept()
        try:
            self._guard.enter(self)
        except TooManySockets as error:
            await self.refuse(TOO_MANY, str(error))
            return
        self._connection = Connection(self.send, self.refuse, self._clock.monotonic_ms())
        self._hub.connect(self._connection)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        if self._connection is None:
            return
        self._connection.heard_ms = self._clock.monotonic_ms()
        try:
            self._count_message(self._connection.heard_ms)
            await self._do(self._connection, parse(text_data))
        except BadMessage as error:
            await self.refuse(BAD_MESSAGE, str(error))
        except TailFull as error:
            await self.refuse(TOO_MANY, str(error))

    async def _do(self, connection: Connection, message: ClientMessage) -> None:
        match message["type"]:
            case "ack":
                connection.viewer.acknowledge(message["seq"])
            case "pause" | "resume" as kind:
                connection.viewer.is_paused = kind == "pause"
            case "check":
                self._hub.check(connection, message["id"], message["filter"])
            case "start":
                self.topics = message["topics"]
                user = (await users_of({self.session_key})).get(self.session_key)
                if (trouble := refusal(user, self)) is not None:
                    await self.refuse(*trouble)
                    return
                connection.viewer.is_paused = False
                await self._hub.begin(connection, self.topics, message["filter"], message["last"])

    async def refuse(self, code: int, reason: str) -> None:
        """Close, with a reason for the page, and stop at once."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._forget()
        end: TailEnd = {"type": "end", "code": code, "reason": reason}
        await self.send(json.dumps(end))
        await self.close(code)

    async def _forget(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._guard.leave(self)
            await self._hub.disconnect(connection)

    def _count_message(self, now_ms: int) -> None:
        if now_ms - self._second_ms >= 1000:
            self._second_ms, self._message_count = now_ms, 0
        self._message_count += 1
        if self._message_count > MAX_MESSAGES_A_SECOND:
            raise BadMessage(f"more than {MAX_MESSAGES_A_SECOND} messages in a second")


_parts: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[TailHub, SocketGuard]] = (
    WeakKeyDictionary()
)


def _of_this_loop() -> tuple[TailHub, SocketGuard]:
    loop = asyncio.get_running_loop()
    if loop not in _parts:
        properties = settings.ODRADEK_CLIENT_PROPERTIES
        open_reader = partial(TailReader, clusters.bootstrap(), properties)
        _parts[loop] = TailHub(open_reader, _describe, SystemClock()), SocketGuard()
    return _parts[loop]


async def _describe(topics: Sequence[str]) -> dict[str, TopicView | KafkaFailure]:
    return await asyncio.to_thread(_describe_now, topics)


def _describe_now(topics: Sequence[str]) -> dict[str, TopicView | KafkaFailure]:
    gateway = clusters.gateway()
    with contextlib.suppress(OSError):
        return gateway.topics(topics)
    raise KafkaFailure("NOT_CONNECTED", "the cluster does not answer", is_transport=True)
