"""Tasks on the web process's event loop: kept until they end, and a fault at their end is logged.

What has to go on while the process runs is *kept*, be it a task or a thread: it begins again after a fault, a
little later each time, since nobody else would do its work and the process would look well without it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from broker.clock import Clock, SystemClock

logger = logging.getLogger(__name__)
FIRST_PAUSE_S = 0.5
LAST_PAUSE_S = 30.0
STEADY_MS = 60_000
"""What went on for so long has got over the faults before."""
_running: set[asyncio.Task[Any]] = set()
"""The loop itself keeps only weak references."""


def start(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_done)
    return task


def keep(begin: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[None]:
    """Until it returns or is ended."""

    async def kept() -> None:
        pauses = Pauses(name)
        while True:
            pauses.on_begin()
            try:
                await begin()
            except Exception as error:  # noqa: BLE001 - logged by Pauses
                pause_s = pauses.after(error)
            else:
                return
            await asyncio.sleep(pause_s)

    return start(kept(), name)


def keep_thread(run: Callable[[], None], name: str) -> None:
    """In a thread of its own, until it returns; the process's end does not wait for it."""

    def kept() -> None:
        pauses = Pauses(name)
        while True:
            pauses.on_begin()
            try:
                run()
            except Exception as error:  # noqa: BLE001 - logged by Pauses
                pause_s = pauses.after(error)
            else:
                return
            threading.Event().wait(pause_s)

    threading.Thread(target=kept, name=name, daemon=True).start()


class Pauses:
    """How long one that fails waits before it begins again."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self._name = name
        self._clock = clock or SystemClock()
        self._failures = 0
        self._began_ms = 0

    def on_begin(self) -> None:
        self._began_ms = self._clock.monotonic_ms()

    def after(self, error: Exception) -> float:
        """In seconds; the fault is logged."""
        if self._clock.monotonic_ms() - self._began_ms >= STEADY_MS:
            self._failures = 0
        pause_s = min(FIRST_PAUSE_S * float(2**self._failures), LAST_PAUSE_S)
        self._failures = min(self._failures + 1, 10)
        logger.error("%s failed, and begins again in %.1f s", self._name, pause_s, exc_info=error)
        return pause_s


async def end(task: asyncio.Task[None] | None) -> None:
    """Cancel and wait for the end."""
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task])


def _done(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("task %s failed", task.get_name(), exc_info=error)
