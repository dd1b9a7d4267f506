"""Connections to other brokers for questions that may be asked twice: several at a time to each broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from broker.model.ids import BrokerId
from broker.server.cluster.peer import Peer, PeerError

if TYPE_CHECKING:
    from broker.server.cluster.membership import Membership
    from broker.server.cluster.private_wire import PrivateKey

#: To one broker; more questions wait.
MAX_CONNECTIONS: Final = 16


class PeerPool:
    """Everything on the loop."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._idle: dict[BrokerId, list[Peer]] = {}
        self._rooms: dict[BrokerId, asyncio.Semaphore] = {}

    async def ask_json(
        self,
        broker_id: BrokerId,
        key: PrivateKey,
        body: Any,
        batches: bytearray | None = None,
    ) -> dict[str, Any]:
        """Raises PeerError."""
        async with self._rooms.setdefault(broker_id, asyncio.Semaphore(MAX_CONNECTIONS)):
            idle = self._idle.setdefault(broker_id, [])
            if idle:
                # It may have ended while nobody used it (the other broker's restart, its idle time).
                try:
                    return await self._ask(idle, idle.pop(), key, body, batches)
                except PeerError:
                    self._forget(broker_id)
            peer = await self._membership.connect_by_image(broker_id)
            return await self._ask(idle, peer, key, body, batches)

    async def _ask(
        self,
        idle: list[Peer],
        peer: Peer,
        key: PrivateKey,
        body: Any,
        batches: bytearray | None,
    ) -> dict[str, Any]:
        is_good = False
        try:
            answer = await peer.ask_json(key, body, batches)
            is_good = True
            return answer
        finally:
            if is_good:
                idle.append(peer)
            else:
                peer.close()

    def _forget(self, broker_id: BrokerId) -> None:
        idle = self._idle[broker_id]
        for peer in idle:
            peer.close()
        idle.clear()
