"""Large answers are encoded, and large requests taken apart, in turns of the loop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from broker.protocol.codec import EncodedItems
from broker.server.tasks import Turn

T = TypeVar("T")


async def listed(items: Iterable[T], turn: Turn) -> list[T]:
    """``list(items)``, where each of them is work (``items`` is a generator)."""
    found = []
    for item in items:
        found.append(item)
        if turn.is_over:
            await turn.pass_on()
    return found


async def encoded(items: Iterable[object], turn: Turn) -> EncodedItems:
    """The elements of an array, built (``items`` may be a generator) and encoded one by one."""
    found = EncodedItems()
    for item in items:
        found.add(item)
        if turn.is_over:
            await turn.pass_on()
    return found
