"""How far the clocks of other brokers are from this one's: records' timestamps and retention go by them.

Asked when somebody wants to know. The answer left the other broker between the question and its arrival here; of
several the one that was fastest tells it best.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from broker.model.ids import BrokerId
from broker.server.cluster.peer import Peer, PeerError
from broker.server.cluster.private_wire import PrivateKey

if TYPE_CHECKING:
    from broker.server.cluster.membership import Membership

QUESTIONS: Final = 3


async def compare_clocks(membership: Membership) -> list[dict[str, Any]]:
    """For each other broker how far it is ahead, and by how much that may be wrong; or why it is not known."""
    others = sorted(membership.image.brokers.keys() - {membership.broker_id})
    return list(await asyncio.gather(*(_compare(membership, each) for each in others)))


async def _compare(membership: Membership, broker_id: BrokerId) -> dict[str, Any]:
    try:
        peer = await membership.connect_by_image(broker_id)
        try:
            told = [await _ask(membership, peer) for _ in range(QUESTIONS)]
        finally:
            peer.close()
    except (PeerError, KeyError, TypeError) as error:
        return {"broker_id": broker_id, "error": str(error)}
    doubt_ms, ahead_ms = min(told)
    return {"broker_id": broker_id, "ahead_ms": ahead_ms, "doubt_ms": doubt_ms}


async def _ask(membership: Membership, peer: Peer) -> tuple[int, int]:
    """(most that it may be wrong by, how far the other is ahead), in milliseconds."""
    before_ms = membership.wall_ms()
    answer = await peer.ask_json(PrivateKey.TELL_TIME, {})
    after_ms = membership.wall_ms()
    doubt_ms = (after_ms - before_ms + 1) // 2
    return doubt_ms, int(answer["wall_ms"]) - before_ms - doubt_ms
