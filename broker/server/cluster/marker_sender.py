"""Sends transaction markers to one other broker, over one connection, what came meanwhile in the next request.

A marker that comes late, after its transaction was completed by a repetition, could end the producer's next
transaction. So a request says which of our connections it came by: the receiver takes none of an earlier
one once it has seen a later. (One under an earlier leader of the transactional id is fenced by its coordinator epoch.)
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId
from broker.server.cluster.peer import Peer, PeerError
from broker.server.cluster.private_wire import PrivateKey
from broker.server.cluster.transaction_wire import (
    Sender,
    SentMarker,
    decode_codes,
    encode_markers,
)

if TYPE_CHECKING:
    from broker.server.cluster.membership import Membership

logger: Final = logging.getLogger(__name__)

#: Of one request.
MAX_MARKERS: Final = 1000

Done = Callable[[ErrorCode], None]


class MarkerSender:
    """Everything on the loop."""

    def __init__(self, membership: Membership, leader_id: BrokerId) -> None:
        self._membership = membership
        self._leader_id = leader_id
        self._queue: deque[tuple[SentMarker, Done]] = deque()
        self._is_wanted = asyncio.Event()
        self._peer: Peer | None = None
        self._connections = 0

    def send(self, marker: SentMarker, done: Done) -> None:
        """``done`` later: NONE once it is committed there. Whoever hears NOT_LEADER_OR_FOLLOWER tries again."""
        self._queue.append((marker, done))
        self._is_wanted.set()

    async def run(self) -> None:
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            while self._queue:
                count = min(len(self._queue), MAX_MARKERS)
                batch = [self._queue.popleft() for _ in range(count)]
                answered = 0
                try:
                    codes = await self._send([marker for marker, _ in batch])
                    for (_, done), code in zip(batch, codes, strict=True):
                        answered += 1
                        done(code)
                except BaseException:
                    # Whoever is not answered waits for ever; written twice a marker is what it was.
                    for _, done in batch[answered:]:
                        done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    raise

    async def _send(self, markers: list[SentMarker]) -> list[ErrorCode]:
        """A connection that stood idle may have ended: then once more by a new one."""
        was_idle = self._peer is not None
        try:
            return await self._try(markers)
        except (PeerError, ValueError, KeyError, TypeError) as error:
            self._hang_up()
            if was_idle:
                return await self._send(markers)
            logger.info("no markers to broker %d: %r", self._leader_id, error)
            return [ErrorCode.NOT_LEADER_OR_FOLLOWER] * len(markers)

    async def _try(self, markers: list[SentMarker]) -> list[ErrorCode]:
        membership = self._membership
        if self._peer is None:
            self._peer = await membership.connect_by_image(self._leader_id)
            self._connections += 1
        broker_epoch = membership.broker_epoch
        if broker_epoch is None:
            raise PeerError("this broker is not registered")
        sender = Sender(membership.broker_id, broker_epoch, self._connections)
        body = encode_markers(sender, markers)
        answer = await self._peer.ask_json(PrivateKey.WRITE_MARKERS, body)
        return decode_codes(answer, len(markers))

    def _hang_up(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None
