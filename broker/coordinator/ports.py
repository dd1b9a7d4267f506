"""What a coordinator needs of the rest of the broker."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Sized
from typing import Protocol, TypeVar

from broker.coordinator.result import CoordinatorRecord, CoordinatorResult, Producer
from broker.model.error_code import ErrorCode
from broker.model.ids import TopicId
from broker.model.transaction_marker import TransactionMarker

T = TypeVar("T")


class PartitionLog(Protocol):
    """The log of one partition of an internal topic, as its coordinator writes it."""

    @property
    def max_batch_bytes(self) -> int:
        """A larger batch is refused."""
        ...

    @property
    def leader_epoch(self) -> int:
        """Rises with every change of who leads the partition, and after a crash."""
        ...

    @property
    def may_answer(self) -> bool:
        """Whether what is in memory holds: no other broker can lead the partition by now."""
        ...

    def append(self, records: Sequence[CoordinatorRecord], producer: Producer | None = None) -> int:
        """All of them, as one batch (of ``producer``'s transaction); the first one's offset.

        Raises ``KafkaError``: then nothing was appended.
        """
        ...

    def append_marker(self, marker: TransactionMarker) -> None:
        """The end of a producer's transaction. Raises as ``append``."""
        ...

    def when_committed(self, done: Callable[[ErrorCode], None]) -> None:
        """``done(NONE)`` once all that was appended so far is committed, perhaps inside the call.

        Another code: that will not be, or takes too long.
        """
        ...


class ShardTimers(Protocol):
    """Timers of one machine. What runs out gives a result, which is performed like a request's.

    ``perform`` does so now, for what comes neither from a request nor from a timer. Without effect
    while the machine is not served.
    """

    def perform(self, operation: Callable[[], CoordinatorResult[None]]) -> None: ...

    def set(
        self, key: Hashable, delay_ms: int, operation: Callable[[], CoordinatorResult[None]]
    ) -> None: ...

    def cancel(self, key: Hashable) -> None: ...

    def is_set(self, key: Hashable) -> bool: ...


class KnownTopic(Protocol):
    """A topic of the cluster."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> TopicId: ...

    @property
    def partitions(self) -> Sized: ...


class KnownTopics(Protocol):
    """The cluster's topics at one time: other topics are other mappings."""

    @property
    def topics(self) -> Mapping[str, KnownTopic]: ...

    @property
    def topics_by_id(self) -> Mapping[TopicId, KnownTopic]: ...

    @property
    def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Settings of single groups, for those that have any."""
        ...


class PatternMatcher(Protocol):
    """What takes too long for the loop is done beside it: above all looking for the topics that regular
    expressions match."""

    def compute(self, work: Callable[[], T], done: Callable[[T | None], None]) -> None:
        """``done(what work gives)``, once and later; None: it failed. ``work`` touches nothing that changes."""
        ...

    def match(
        self,
        patterns: frozenset[str],
        names: Iterable[str],
        done: Callable[[Mapping[str, frozenset[str]] | None], None],
    ) -> None:
        """``done(matches by pattern)``, once and later; None: it failed."""
        ...
