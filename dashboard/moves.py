"""Which replicas are to lie where, when brokers come and go: plans, and nothing done yet.

Whoever gets a replica has the fewest at that moment of the plan, and if it can be lies in a rack of which the
partition has none; so a plan spreads evenly. Replicas that may stay do, in their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from broker.model.ids import TopicPartition
from dashboard.cluster import BrokerView, TopicView

#: Replicas that internal topics ought to have, where there are so many brokers.
GOOD_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's replicas, as they are and as they are to be; the first is the preferred leader."""

    key: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.after if broker not in self.before)


class CannotLeave(Exception):
    """There is nobody who could take a broker's replicas; says what to do."""


class _Spread:
    """How many replicas each broker has, in the plan so far."""

    def __init__(self, brokers: Iterable[BrokerView], topics: Collection[TopicView]) -> None:
        self._racks = {broker.broker_id: broker.rack for broker in brokers}
        self._counts = Counter(dict.fromkeys(self._racks, 0))
        self._counts.update(
            replica
            for topic in topics
            for partition in topic.partitions
            for replica in partition.replicas
        )

    def choose(self, others: Collection[int]) -> int | None:
        """Who is to have one more, beside ``others``."""
        candidates = [broker for broker in self._racks if broker not in others]
        if not candidates:
            return None
        racks = {self._racks.get(broker) for broker in others} - {None}
        chosen = min(
            candidates,
            key=lambda broker: (self._racks[broker] in racks, self._counts[broker], broker),
        )
        self._counts[chosen] += 1
        return chosen


def at_target(
    topics: Iterable[TopicView], targets: Mapping[TopicPartition, tuple[int, ...]]
) -> list[TopicView]:
    """As they will lie once what is under way has arrived: plans begin there."""
    return [
        replace(
            topic,
            partitions=tuple(
                replace(each, replicas=targets.get(key, each.replicas))
                for key, each in zip(topic.keys, topic.partitions, strict=True)
            ),
        )
        for topic in topics
    ]


def plan_join(
    topics: Collection[TopicView], brokers: Collection[BrokerView], *, with_user_topics: bool
) -> list[Move]:
    """Internal topics, and the others if wanted, get ``GOOD_REPLICAS`` replicas, or as many as there
    are brokers."""
    wanted = min(GOOD_REPLICAS, len(brokers))
    spread = _Spread(brokers, topics)
    moves: list[Move] = []
    for topic in topics:
        if not (topic.is_internal or with_user_topics):
            continue
        for partition in topic.partitions:
            after = list(partition.replicas)
            while len(after) < wanted:
                chosen = spread.choose(after)
                if chosen is None:
                    break
                after.append(chosen)
            if len(after) > len(partition.replicas):
                key = TopicPartition(topic.name, partition.index)
                moves.append(Move(key, partition.replicas, tuple(after)))
    return moves


def plan_leave(
    topics: Collection[TopicView], brokers: Collection[BrokerView], leaving: int
) -> list[Move]:
    """Everything of that broker's goes to others; a partition that has a replica on each of them
    already has one less. Raises ``CannotLeave``."""
    spread = _Spread([each for each in brokers if each.broker_id != leaving], topics)
    moves: list[Move] = []
    for topic in topics:
        for partition in topic.partitions:
            if leaving not in partition.replicas:
                continue
            chosen = spread.choose(partition.replicas)
            after = tuple(
                chosen if replica == leaving else replica
                for replica in partition.replicas
                if replica != leaving or chosen is not None
            )
            staying = tuple(each for each in after if each is not None)
            if not staying:
                raise CannotLeave("there is no other broker that could take what this one holds")
            moves.append(
                Move(TopicPartition(topic.name, partition.index), partition.replicas, staying)
            )
    return moves
