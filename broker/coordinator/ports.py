"""What a coordinator needs of the rest of the broker."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from broker.coordinator.result import CoordinatorRecord, CoordinatorResult
from broker.model.error_code import ErrorCode


class PartitionLog(Protocol):
    """The log of one partition of an internal topic, as its coordinator writes it."""

    @property
    def max_batch_bytes(self) -> int:
        """A larger batch is refused."""
        ...

    def append(self, records: Sequence[CoordinatorRecord]) -> int:
        """All of them, as one batch; the first one's offset.

        Raises ``KafkaError``: then nothing was appended.
        """
        ...

    def when_committed(self, done: Callable[[ErrorCode], None]) -> None:
        """``done(NONE)`` once all that was appended so far is committed, perhaps inside the call.

        Another code: that will not be, or takes too long.
        """
        ...


class ShardTimers(Protocol):
    """Timers of one machine. What runs out gives a result, which is performed like a request's."""

    def set(
        self, key: Hashable, delay_ms: int, operation: Callable[[], CoordinatorResult[None]]
    ) -> None: ...

    def cancel(self, key: Hashable) -> None: ...
