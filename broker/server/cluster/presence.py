"""Sees at once that the process of another broker is dead: an idle connection to each, which ends with it.

When one ends it is dialled anew. Only a refusal (or a reset) is told, and it is told again while it goes on,
as a controller that is new has to hear it, too; a time-out says nothing of a process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing, suppress
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


class Presence:
    """Everything on the loop. ``on_refused`` is told the registration that refuses."""

    def __init__(
        self, broker_id: BrokerId, tasks: TaskGroup, on_refused: Callable[[BrokerImage], None]
    ) -> None:
        self._broker_id = broker_id
        self._tasks = tasks
        self._on_refused = on_refused
        self._watched: dict[BrokerId, BrokerImage] = {}

    def on_image(self, image: ClusterImage) -> None:
        for broker_id, broker in image.brokers.items():
            if broker_id != self._broker_id and self._watched.get(broker_id) != broker:
                self._watched[broker_id] = broker
                self._tasks.spawn(self._watch(broker), f"watch broker {broker_id}")
        for broker_id in self._watched.keys() - image.brokers.keys():
            del self._watched[broker_id]

    async def _watch(self, broker: BrokerImage) -> None:
        """While that registration is in the image."""
        loop = asyncio.get_running_loop()
        while self._watched.get(broker.broker_id) is broker:
            began = loop.time()
            refuses = await is_refused(broker)
            if refuses and self._watched.get(broker.broker_id) is broker:
                self._on_refused(broker)
            if refuses or loop.time() - began < RETRY_SECONDS:
                await asyncio.sleep(RETRY_SECONDS)


async def is_refused(broker: BrokerImage, *, is_kept: bool = True) -> bool | None:
    """Dials, and keeps the connection until it ends (``is_kept``). Gives whether it was refused; None
    where nobody answered."""
    try:
        endpoint = endpoint_of(broker)
    except PeerError:
        await asyncio.sleep(CONNECT_SECONDS)
        return None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    except OSError:  # time-outs are
        return None
    with closing(writer):
        if is_kept:
            with suppress(OSError):
                await reader.read(1)
    return False
