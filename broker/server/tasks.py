"""The only place that makes asyncio tasks: it keeps them alive and logs how they end.

``Turn`` is how long work over many items may hold the loop before it lets others run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

logger = logging.getLogger(__name__)

#: A request that comes amid long work waits for the rest of a turn; passing the loop on costs 0.02 ms.
TURN_NS: Final = 500_000


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


class Turn:
    """A share of the loop, to be asked after each of many items::

    turn = Turn()
    for item in items:
        work(item)
        if turn.is_over:
            await turn.pass_on()
    """

    __slots__ = ("_ends_ns",)

    def __init__(self) -> None:
        self._ends_ns = time.perf_counter_ns() + TURN_NS

    @property
    def is_over(self) -> bool:
        return time.perf_counter_ns() >= self._ends_ns

    async def pass_on(self) -> None:
        """Let others run; then it is our turn again."""
        await asyncio.sleep(0)
        self._ends_ns = time.perf_counter_ns() + TURN_NS


async def until(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Does the work, or as much of it as comes before the event. Raises what the work raises."""
    doing = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((doing, waiting), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
    finally:
        doing.cancel()
        waiting.cancel()


async def called_back(ask: Callable[..., None], *arguments: Any) -> Any:
    """Await a function that takes its callback as the last argument."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(result: Any) -> None:
        if not future.done():
            future.set_result(result)

    ask(*arguments, done)
    return await future
