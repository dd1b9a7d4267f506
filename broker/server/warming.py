"""Look-ups of a log that may find pages cold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from broker.server.background import Threads
from broker.storage.cold import ColdRead
from broker.storage.log import Log

T = TypeVar("T")


async def looked_up(threads: Threads, log: Log, look_up: Callable[[], T | ColdRead]) -> T | None:
    """What ``look_up`` finds, asked again after each read of a thread; None if the log is deleted.

    Raises what the look-up and the reads raise (CorruptLogError, DiskFullError, OSError).
    """
    while not log.is_deleted:
        found = look_up()
        if not isinstance(found, ColdRead):
            return found
        await threads.call(found.pull)
    return None
