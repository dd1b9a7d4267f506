"""asyncio's event loop in one simulated process: its time, and its order, are the world's.

What the broker's own modules spawn and await runs as it is. Nothing of it outlives the process.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.world import ProcessSchedule


class Handle:
    """Of a call that may be taken back."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class WorldLoop:
    """As much of a loop as futures, tasks and the broker's modules ask for."""

    def __init__(self, schedule: ProcessSchedule) -> None:
        self._schedule = schedule

    def time(self) -> float:
        return self._schedule.now_ms / 1000

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return not self._schedule.is_alive

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> Any:
        return asyncio.Task(coro, loop=self, name=name)  # type: ignore[arg-type]

    def call_soon(self, callback: Any, *arguments: Any, context: Any = None) -> Any:
        return self._call(0, callback, arguments, context)

    def call_later(self, delay: float, callback: Any, *arguments: Any, context: Any = None) -> Any:
        return self._call(max(round(delay * 1000), 0), callback, arguments, context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tasks that end with their process are nothing to tell of."""

    def _call(
        self,
        delay_ms: int,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> Handle:
        handle = Handle()
        if not self._schedule.is_alive:
            return handle

        def run() -> None:
            if handle.is_cancelled:
                return
            asyncio._set_running_loop(self)  # type: ignore[arg-type]
            try:
                if context is None:
                    callback(*arguments)
                else:
                    context.run(callback, *arguments)
            finally:
                asyncio._set_running_loop(None)

        self._schedule.call_later(delay_ms, run)
        return handle


class Tasks:
    """``broker.server.tasks.TaskGroup``, where what fails ends the story."""

    def __init__(self, loop: WorldLoop) -> None:
        self._loop = loop
        self._tasks: dict[asyncio.Task[None], Coroutine[object, object, None]] = {}

    def spawn(self, coroutine: Coroutine[object, object, None], name: str) -> None:
        task: asyncio.Task[None] = self._loop.create_task(coroutine, name=name)
        self._tasks[task] = coroutine
        task.add_done_callback(self._on_done)

    def keep(
        self,
        begin: Callable[[], Coroutine[object, object, None]],
        name: str,
        *,
        is_vital: bool = False,
    ) -> None:
        self.spawn(begin(), name)

    def attempt(self, call: Callable[[], None], name: str) -> None:
        call()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        error = task.exception()
        if error is not None:
            raise error

    def drop(self) -> None:
        """The process is dead: whatever a coroutine does at its end concerns nobody."""
        tasks, self._tasks = self._tasks, {}
        for coroutine in tasks.values():
            coroutine.close()
