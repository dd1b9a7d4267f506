"""How far moves of partitions are, and which of them get nowhere: what was seen is told, the time is too.

A replica that is added grows until it has what the leader has; sizes of log directories say how far it
is. Which one has not grown, on which broker, and since when, is what an operator needs to know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from broker.model.ids import TopicPartition
from dashboard.moves_wire import UnderWay

#: Bytes by broker and partition; brokers that did not answer are not in it.
Sizes = Mapping[int, Mapping[TopicPartition, int]]


class Waiting(NamedTuple):
    """A replica that is being made. ``copied`` is None where its broker did not tell; ``since_ms`` is when
    it grew last, or was seen first."""

    key: TopicPartition
    broker_id: int
    copied: int | None
    size: int
    since_ms: int


class MoveProgress:
    """Of moves that were begun together."""

    def __init__(self, begun: Collection[TopicPartition], now_ms: int) -> None:
        self.begun = frozenset(begun)
        self.left: dict[TopicPartition, UnderWay] = {}
        #: When anything moved on.
        self.moved_ms = now_ms
        self._replicas: dict[tuple[TopicPartition, int], Waiting] = {}
        #: Of every replica that was ever waited for, its size.
        self._sizes: dict[tuple[TopicPartition, int], int] = {}

    @property
    def arrived_count(self) -> int:
        return len(self.begun) - len(self.left)

    @property
    def waiting(self) -> list[Waiting]:
        return sorted(self._replicas.values())

    @property
    def size_bytes(self) -> int:
        return sum(self._sizes.values())

    @property
    def copied_bytes(self) -> int:
        """Of ``size_bytes``."""
        return self.size_bytes - sum(
            max(0, each.size - (each.copied or 0)) for each in self._replicas.values()
        )

    def look(self, under_way: Mapping[TopicPartition, UnderWay], sizes: Sizes, now_ms: int) -> None:
        left = {key: state for key, state in under_way.items() if key in self.begun}
        if left.keys() != self.left.keys():
            self.moved_ms = now_ms
        self.left = left
        before, self._replicas = self._replicas, {}
        for key, state in left.items():
            for waiting in _replicas(key, state, sizes, now_ms):
                known = before.get((key, waiting.broker_id))
                if known is not None and waiting.copied is None:
                    waiting = known
                if known is not None and (waiting.copied or 0) <= (known.copied or 0):
                    waiting = waiting._replace(since_ms=known.since_ms)
                else:
                    self.moved_ms = now_ms
                self._replicas[key, waiting.broker_id] = waiting
                self._sizes[key, waiting.broker_id] = waiting.size

    def look_at_all(
        self, under_way: Mapping[TopicPartition, UnderWay], sizes: Sizes, now_ms: int
    ) -> None:
        """For whoever began none of them: all that is under way counts."""
        self.begun = frozenset(under_way)
        self._sizes = {at: size for at, size in self._sizes.items() if at[0] in self.begun}
        self.look(under_way, sizes, now_ms)

    def stalled(self, now_ms: int, limit_ms: int) -> list[Waiting]:
        """Replicas that have not grown for so long."""
        return [each for each in self.waiting if now_ms - each.since_ms >= limit_ms]


def _replicas(key: TopicPartition, state: UnderWay, sizes: Sizes, now_ms: int) -> Iterator[Waiting]:
    known = [
        sizes[broker].get(key, 0)
        for broker in state.replicas
        if broker not in state.adding and broker in sizes
    ]
    # Where nothing is added, the others wait for a replica that has fallen behind.
    for broker in state.adding or [r for r in state.replicas if r not in state.removing]:
        copied = sizes[broker].get(key, 0) if broker in sizes else None
        yield Waiting(key, broker, copied, max(known, default=0), now_ms)
