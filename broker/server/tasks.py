"""The only place that makes asyncio tasks: it keeps them alive and logs how they end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Generic, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class TaskGroup:
    """Background tasks of one owner, ended together."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[object, object, None], name: str) -> None:
        task = self._loop.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("task %s failed", task.get_name(), exc_info=task.exception())

    async def cancel(self) -> None:
        """Cancel what is left and wait for it."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)


class Slices(Generic[T]):
    """Iterates over ``items`` with a None after every ``size`` of them: the place to let others run."""

    def __init__(self, items: Iterable[T], size: int) -> None:
        self._items = items
        self._size = size

    def __iter__(self) -> Iterator[T | None]:
        for count, item in enumerate(self._items, 1):
            yield item
            if count % self._size == 0:
                yield None


async def called_back(ask: Callable[..., None], *arguments: Any) -> Any:
    """Await a function that takes its callback as the last argument."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(result: Any) -> None:
        if not future.done():
            future.set_result(result)

    ask(*arguments, done)
    return await future
