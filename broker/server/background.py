"""Threads behind the loop: flush, disk, cold reads, computation.

Each pool is small and named. Results come back through ``call_soon_threadsafe``, so everything
after a piece of work runs on the loop again. Pools start their threads when first used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from broker.replication.background import MAX_FLUSHES

T = TypeVar("T")
Then = Callable[[T | None, Exception | None], None]

COMPUTE_THREADS: Final = 2
DISK_THREADS: Final = 2
READER_THREADS: Final = 4


class Threads:
    """Implements ``replication.background.Background`` and the reader pool of the send queues."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._flush = ThreadPoolExecutor(MAX_FLUSHES, "flush")
        self._disk = ThreadPoolExecutor(DISK_THREADS, "disk")
        self._read = ThreadPoolExecutor(READER_THREADS, "read")
        self._compute = ThreadPoolExecutor(COMPUTE_THREADS, "compute")

    def flush(self, work: Callable[[], T], then: Then[T]) -> None:
        self._submit(self._flush, work, then)

    def disk(self, work: Callable[[], T], then: Then[T]) -> None:
        self._submit(self._disk, work, then)

    def read(self, work: Callable[[], T], then: Then[T]) -> None:
        self._submit(self._read, work, then)

    def compute(self, work: Callable[[], T], then: Then[T]) -> None:
        self._submit(self._compute, work, then)

    async def call(self, work: Callable[[], T]) -> T:
        """Run blocking file work in the disk pool and wait for it."""
        return await self._loop.run_in_executor(self._disk, work)

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[], T], then: Then[T]) -> None:
        call_back = self._loop.call_soon_threadsafe

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - handed to the loop, which decides
                call_back(then, None, error)
            else:
                call_back(then, result, None)

        pool.submit(run)

    def close(self) -> None:
        """Wait for what runs; nothing may be submitted any more."""
        for pool in (self._compute, self._read, self._flush, self._disk):
            pool.shutdown(wait=True)
