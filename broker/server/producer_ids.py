"""Producer ids: unique for ever, because the controller stores a block before any of it is used."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.metadata.requests import ProducerIds as Block


class ProducerIds:
    """Hands out ids one by one; at most one block is asked for at a time."""

    def __init__(
        self,
        allocate: Callable[[Callable[[Block], None]], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._allocate = allocate
        self._loop = loop
        self._next = 0
        self._end = 0
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._is_asking = False

    async def next(self) -> int:
        """The next id; raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS) if none can be had now."""
        if self._next < self._end:
            self._next += 1
            return self._next - 1
        future: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append(future)
        self._ask()
        return await future

    def _ask(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self._allocate(self._on_block)

    def _on_block(self, block: Block) -> None:
        self._is_asking = False
        if block.is_success:
            self._next, self._end = block.first, block.first + block.count
        while self._waiting:
            if block.is_success and self._next == self._end:
                self._ask()
                return
            future = self._waiting.popleft()
            if future.done():
                continue
            if block.is_success:
                future.set_result(self._next)
                self._next += 1
            else:
                # Retriable in every client, as Kafka answers while its next block is on the way.
                future.set_exception(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
