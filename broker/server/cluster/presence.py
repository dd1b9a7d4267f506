"""Sees at once that the process of another broker is dead: an idle connection to each, which ends with it.

When one ends it is dialled anew. Only a refusal (or a reset) is told, and it is told again while it goes on,
as a controller that is new has to hear it, too; a time-out says nothing of a process.

Until the controller has decided, clients are told that nobody leads where that broker did. One that hears of
the dead leader again would not ask anew for a second (librdkafka), one that hears of none asks every 0.1 s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.metadata.image import BrokerImage, ClusterImage
from broker.model.ids import BrokerId
from broker.server.cluster.peer import PeerError, endpoint_of

if TYPE_CHECKING:
    from broker.server.tasks import TaskGroup

logger: Final = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 3.0
#: Between attempts; refusals count together for 2 s.
RETRY_SECONDS: Final = 0.1
#: For so long nobody is told to lead there; it may be cut off from this broker only.
DOUBT_SECONDS: Final = 2.0


class Presence:
    """Everything on the loop. ``on_refused`` is told the registration that refuses, ``on_doubted`` the
    brokers that have just died, as it seems. ``listener``: whereon they are dialled (``endpoint_of``)."""

    def __init__(
        self,
        broker_id: BrokerId,
        tasks: TaskGroup,
        on_refused: Callable[[BrokerImage], None],
        on_doubted: Callable[[frozenset[BrokerId]], None],
        listener: str | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._listener = listener
        self._tasks = tasks
        self._on_refused = on_refused
        self._doubts = Doubts(on_doubted)
        self._watched: dict[BrokerId, BrokerImage] = {}

    def on_image(self, image: ClusterImage) -> None:
        for broker_id, broker in image.brokers.items():
            if broker_id != self._broker_id and self._watched.get(broker_id) != broker:
                self._watched[broker_id] = broker
                self._doubts.end(broker_id)
                self._tasks.keep(partial(self._watch, broker), f"watch broker {broker_id}")
        for broker_id in self._watched.keys() - image.brokers.keys():
            del self._watched[broker_id]
            self._doubts.end(broker_id)

    async def _watch(self, broker: BrokerImage) -> None:
        """While that registration is in the image."""
        loop = asyncio.get_running_loop()
        while self._watched.get(broker.broker_id) is broker:
            began = loop.time()
            kept = Kept(partial(self._on_connected, broker), partial(self._on_ended, broker))
            refuses = await is_refused(broker, self._listener, kept)
            if refuses and self._watched.get(broker.broker_id) is broker:
                self._doubts.begin(broker.broker_id)
                self._on_refused(broker)
            if refuses or loop.time() - began < RETRY_SECONDS:
                await asyncio.sleep(RETRY_SECONDS)

    def _on_connected(self, broker: BrokerImage) -> None:
        if self._watched.get(broker.broker_id) is broker:
            self._doubts.end(broker.broker_id)

    def _on_ended(self, broker: BrokerImage) -> None:
        if self._watched.get(broker.broker_id) is broker:
            self._doubts.begin(broker.broker_id)


class Doubts:
    """Brokers that seem to be dead, each from when it ended until it is known again, ``DOUBT_SECONDS`` at
    most. Bounded by the number of brokers."""

    def __init__(self, on_change: Callable[[frozenset[BrokerId]], None]) -> None:
        self._on_change = on_change
        #: None: the time is over.
        self._timers: dict[BrokerId, asyncio.TimerHandle | None] = {}

    def begin(self, broker_id: BrokerId) -> None:
        """Again while it goes on changes nothing."""
        if broker_id not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[broker_id] = loop.call_later(DOUBT_SECONDS, self._is_over, broker_id)
            self._tell()

    def end(self, broker_id: BrokerId) -> None:
        timer = self._timers.pop(broker_id, None)
        if timer is not None:
            timer.cancel()
            self._tell()

    def _is_over(self, broker_id: BrokerId) -> None:
        self._timers[broker_id] = None
        self._tell()

    def _tell(self) -> None:
        self._on_change(frozenset(b for b, timer in self._timers.items() if timer is not None))


class Kept(asyncio.Protocol):
    """An idle connection. Its end is told within the turn of the loop that sees it: clients who lost theirs
    ask at once."""

    def __init__(self, on_connected: Callable[[], None], on_end: Callable[[], None]) -> None:
        self._on_connected = on_connected
        self._on_end = on_end
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._on_connected()

    def eof_received(self) -> None:
        self._on_end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()
        if not self.ended.done():
            self.ended.set_result(None)


async def is_refused(
    broker: BrokerImage, listener: str | None, kept: Kept | None = None
) -> bool | None:
    """Dials, and keeps the connection until it ends, if it is to be kept. Gives whether it was refused; None
    where nobody answered."""
    loop = asyncio.get_running_loop()
    try:
        endpoint = endpoint_of(broker, listener)
    except PeerError:
        await asyncio.sleep(CONNECT_SECONDS)
        return None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            transport, _ = await loop.create_connection(
                lambda: kept or asyncio.Protocol(), endpoint.host, endpoint.port
            )
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    except OSError:  # time-outs are
        return None
    try:
        if kept is not None:
            await kept.ended
    finally:
        transport.close()
    return False
