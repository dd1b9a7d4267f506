"""Large answers are encoded in turns of the loop, an element at a time."""

from __future__ import annotations

from collections.abc import Iterable

from broker.protocol.codec import EncodedItems
from broker.server.tasks import Turn


async def encoded(items: Iterable[object], turn: Turn) -> EncodedItems:
    """The elements of an array, built (``items`` may be a generator) and encoded one by one."""
    found = EncodedItems()
    for item in items:
        found.add(item)
        if turn.is_over:
            await turn.pass_on()
    return found
