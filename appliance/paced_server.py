"""Daphne with back-pressure on responses: an application's ``send`` waits while the client is slow.

Daphne hands every part of a response to Twisted at once and pushes back on nobody: a 1 GB download
by a slow reader would lie in memory as a whole. Twisted itself says when a connection's buffer is
full (the producer protocol), and this server lets ``send`` wait for it. What a streaming response
holds is then one part, and what the socket and its buffer take.
"""

from __future__ import annotations

import asyncio
from typing import Any

import daphne.server
from daphne.http_protocol import WebRequest
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from appliance.guarded_http import GuardedFactory


@implementer(IPushProducer)
class Pace:
    """What Twisted tells of one response's connection: whether it takes more."""

    def __init__(self) -> None:
        self._may_send = asyncio.Event()
        self._may_send.set()

    async def wait(self) -> None:
        await self._may_send.wait()

    # Names of Twisted's interface.

    def pauseProducing(self) -> None:
        self._may_send.clear()

    def resumeProducing(self) -> None:
        self._may_send.set()

    def stopProducing(self) -> None:
        """The connection is gone: nobody has to wait for it."""
        self._may_send.set()


class PacedServer(daphne.server.Server):  # type: ignore[misc] # daphne has no types
    """Paces responses that come in several parts; others are as large as they are already."""

    def run(self) -> None:
        # Daphne makes its factory by this name, and has no other way to give it another.
        daphne.server.HTTPFactory = GuardedFactory
        super().run()

    def kill_all_applications(self) -> Any:
        # Daphne stumbles over connections whose request has not come whole yet.
        self.connections: dict[Any, dict[str, Any]] = {
            protocol: details
            for protocol, details in self.connections.items()
            if "application_instance" in details
        }
        return super().kill_all_applications()

    async def handle_reply(self, protocol: Any, message: dict[str, Any]) -> None:
        is_part = (
            isinstance(protocol, WebRequest)
            and message.get("type") == "http.response.body"
            and not protocol.finished
            and protocol.channel is not None
        )
        if not is_part:
            await super().handle_reply(protocol, message)
            return
        pace: Pace | None = getattr(protocol, "odradek_pace", None)
        has_more = message.get("more_body", False)
        if pace is None and has_more:
            pace = protocol.odradek_pace = Pace()
            protocol.registerProducer(pace, True)
        if pace is not None and not has_more:
            # Twisted refuses to finish a request that still has a producer.
            protocol.unregisterProducer()
            protocol.odradek_pace = None
        await super().handle_reply(protocol, message)
        if pace is not None and has_more:
            await pace.wait()
