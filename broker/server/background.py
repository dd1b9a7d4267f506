"""Threads behind the loop: flush, disk, cold reads, computation.

Each pool is small and named. Results come back through ``call_soon_threadsafe``, so everything
after a piece of work runs on the loop again. Pools start their threads when first used.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from broker.replication.background import MAX_FLUSHES
from broker.server.kernel_sync import KernelSync

T = TypeVar("T")
Then = Callable[[T | None, Exception | None], None]

COMPUTE_THREADS: Final = 2
DISK_THREADS: Final = 2
READER_THREADS: Final = 4
READER_NICENESS: Final = 10
"""Where cores are short, who reads old data from a disk waits, and not everybody's produce requests."""


class Threads:
    """Implements ``replication.background.Background`` and the reader pool of the send queues."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._flush = ThreadPoolExecutor(MAX_FLUSHES, "flush")
        self._disk = ThreadPoolExecutor(DISK_THREADS, "disk")
        # On Linux niceness is a thread's own.
        self._read = ThreadPoolExecutor(READER_THREADS, "read", os.nice, (READER_NICENESS,))
        self._compute = ThreadPoolExecutor(COMPUTE_THREADS, "compute")
        self._kernel_sync = KernelSync.create(loop)
        #: Pieces of work whose result has not come back to the loop yet.
        self._under_way = 0

    def flush(self, work: Callable[[], T], then: Then[T]) -> None:
        self._submit(self._flush, work, then)

    def disk(self, work: Callable[[], T], then: Then[T]) -> None:
        self._submit(self._disk, work, then)

    def read(self, work: Callable[[], T], then: Then[T]) -> None:
        self._submit(self._read, work, then)

    def compute(self, work: Callable[[], T], then: Then[T]) -> None:
        self._submit(self._compute, work, then)

    @property
    def can_datasync(self) -> bool:
        return self._kernel_sync is not None

    def datasync(
        self, descriptors: Sequence[int], then: Callable[[Exception | None], None]
    ) -> bool:
        """fdatasync by the kernel alone; False when it was not begun."""
        if self._kernel_sync is None:
            return False

        def come_back(error: OSError | None) -> None:
            self._under_way -= 1
            then(error)

        if not self._kernel_sync.submit(descriptors, come_back):
            return False
        self._under_way += 1
        return True

    async def call(self, work: Callable[[], T]) -> T:
        """Run blocking file work in the disk pool and wait for it."""
        return await self._called(self._disk, work)

    async def computed(self, work: Callable[[], T]) -> T:
        """Run what only computes in its pool and wait for it."""
        return await self._called(self._compute, work)

    async def _called(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        future: asyncio.Future[T] = self._loop.create_future()

        def then(result: T | None, error: Exception | None) -> None:
            if future.done():
                return  # whoever waited was cancelled
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        self._submit(pool, work, then)
        return await future

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[], T], then: Then[T]) -> None:
        self._under_way += 1
        call_back = self._loop.call_soon_threadsafe

        def run() -> None:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - handed to the loop, which decides
                call_back(self._come_back, then, None, error)
            else:
                call_back(self._come_back, then, result, None)

        pool.submit(run)

    def _come_back(self, then: Then[T], result: T | None, error: Exception | None) -> None:
        self._under_way -= 1
        then(result, error)

    async def idle(self) -> None:
        """Returns once nothing is under way, nor what it led to."""
        while self._under_way:
            await asyncio.sleep(0.001)

    def close(self) -> None:
        """Wait for what runs; nothing may be submitted any more."""
        for pool in (self._compute, self._read, self._flush, self._disk):
            pool.shutdown(wait=True)
        if self._kernel_sync is not None:
            self._kernel_sync.close()
