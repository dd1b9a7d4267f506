"""Handlers of requests that are answered by a callback: perhaps at once, perhaps much later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def answered(
    loop: asyncio.AbstractEventLoop,
    ask: Callable[[Callable[[T], None]], None],
    build: Callable[[T], object],
) -> object | Coroutine[Any, Any, object]:
    """``build`` of what ``ask`` is told: at once, or as a coroutine where that has to be awaited."""
    now: list[T] = []
    later: list[asyncio.Future[T]] = []

    def done(result: T) -> None:
        if not later:
            now.append(result)
        elif not later[0].done():  # else nobody waits any more
            later[0].set_result(result)

    ask(done)
    if now:
        return build(now[0])
    later.append(loop.create_future())
    return _build_later(later[0], build)


async def _build_later(future: asyncio.Future[T], build: Callable[[T], object]) -> object:
    return build(await future)
