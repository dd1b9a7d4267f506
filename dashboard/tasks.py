"""Tasks on the web process's event loop: kept until they end, and a fault at their end is logged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

logger = logging.getLogger(__name__)
_running: set[asyncio.Task[Any]] = set()
"""The loop itself keeps only weak references."""


def start(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_done)
    return task


async def end(task: asyncio.Task[None] | None) -> None:
    """Cancel and wait for the end."""
    if task is not None and not task.done():
        task.cancel()
        await asyncio.wait([task])


def _done(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("task %s failed", task.get_name(), exc_info=error)
