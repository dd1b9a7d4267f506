"""``odradek import`` over several brokers: who is asked passes it on to whoever leads the partition.

An append may arrive twice, if its connection ended before the answer: the second one is told that the log ends
elsewhere. The connections are its own, so that what it moves never waits before what transactions ask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.model.ids import BrokerId
from broker.server.cluster.peer import PeerError
from broker.server.cluster.peer_pool import PeerPool
from broker.server.cluster.private_wire import PrivateKey
from broker.server.importing import NotNowError, answer_here

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.cluster.membership import Membership

Done = Callable[[dict[str, Any]], None]


class ClusterImports:
    """Everything on the loop."""

    def __init__(self, broker: Broker, membership: Membership) -> None:
        self._broker = broker
        self._pool = PeerPool(membership)

    async def ask(
        self, leader_id: BrokerId, request: dict[str, Any], batches: bytearray | None
    ) -> dict[str, Any]:
        """Raises NotNowError, and ValueError where that is for good."""
        try:
            answer = await self._pool.ask_json(leader_id, PrivateKey.IMPORT, request, batches)
        except PeerError as error:
            raise NotNowError(f"broker {leader_id}: {error}") from error
        if "not_now" in answer:
            raise NotNowError(str(answer["not_now"]))
        if "refused" in answer:
            raise ValueError(str(answer["refused"]))
        return answer

    def begin_answering(
        self, request: dict[str, Any], batches: bytearray | None, done: Done
    ) -> None:
        self._broker.tasks.spawn(self._answer(request, batches, done), "append what is imported")

    async def _answer(self, request: dict[str, Any], batches: bytearray | None, done: Done) -> None:
        try:
            answer = await answer_here(self._broker, request, batches)
        except NotNowError as error:
            answer = {"not_now": str(error)}
        except (ValueError, KeyError, TypeError) as error:
            answer = {"refused": str(error)}
        done(answer)
