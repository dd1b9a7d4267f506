"""What the page of moves shows: what is under way and how far, who does not lead, and plans."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from broker.clock import SystemClock
from broker.model.ids import TopicPartition
from dashboard import clusters
from dashboard.answers import Answer, answers
from dashboard.cluster import BrokerView, PartitionView, TopicView
from dashboard.move_progress import MoveProgress, Waiting
from dashboard.moves import CannotLeave, Move, at_target, plan_join, plan_leave
from dashboard.moves_wire import UnderWay
from dashboard.snapshots import ClusterSnapshot, TopicState

AGE_MS: Final = 1_000
KEY: Final = ("moves",)
#: Rows of each table.
MAX_SHOWN: Final = 200
#: A replica that has not grown for so long is called one that waits.
WAITS_AFTER_MS: Final = 10_000


class Moving(NamedTuple):
    key: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    waiting: tuple[tuple[Waiting, bool], ...]
    """With whether it has not grown for a while."""


class NotPreferred(NamedTuple):
    key: TopicPartition
    leader: int | None
    preferred: int
    is_in_sync: bool


class PlanRefused(Exception):
    """Why there is no plan, in words for the page."""


class _Memory:
    """Since when a replica has not grown is known by who looks again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._progress = MoveProgress((), 0)

    def look(
        self,
        under_way: Mapping[TopicPartition, UnderWay],
        sizes: Mapping[int, Mapping[TopicPartition, int]],
    ) -> list[Moving]:
        now_ms = SystemClock().wall_ms()
        with self._lock:
            self._progress.look_at_all(under_way, sizes, now_ms)
            waiting: dict[TopicPartition, list[tuple[Waiting, bool]]] = {}
            for each in self._progress.waiting:
                is_long = now_ms - each.since_ms >= WAITS_AFTER_MS
                waiting.setdefault(each.key, []).append((each, is_long))
        return [
            Moving(
                key,
                tuple(replica for replica in state.replicas if replica not in state.adding),
                state.target,
                tuple(waiting.get(key, ())),
            )
            for key, state in sorted(under_way.items())
        ]


_memory = _Memory()


def look() -> Answer[list[Moving]]:
    """What is under way; asked of the cluster itself, sizes only when something moves."""

    def ask() -> list[Moving]:
        gateway = clusters.gateway()
        going = gateway.moves.under_way()
        concerned = {replica for state in going.values() for replica in state.replicas}
        brokers = [b for b in gateway.brokers() if b.broker_id in concerned] if going else []
        return _memory.look(going, gateway.broker_log_sizes(brokers))

    return answers.ask(KEY, ask, max_age_ms=AGE_MS)


def not_preferred(snapshot: ClusterSnapshot | None) -> list[NotPreferred]:
    """Partitions that another replica leads than their first."""
    if snapshot is None:
        return []
    return [
        NotPreferred(
            TopicPartition(topic.name, each.index),
            each.leader,
            each.replicas[0],
            each.replicas[0] in each.isr,
        )
        for topic in snapshot.topics.values()
        for each in topic.partitions
        if each.replicas and each.leader != each.replicas[0]
    ]


def topics_of(snapshot: ClusterSnapshot) -> list[TopicView]:
    return [_topic_view(topic) for topic in snapshot.topics.values()]


def _topic_view(topic: TopicState) -> TopicView:
    partitions = tuple(
        PartitionView(each.index, each.leader, each.leader_epoch, each.replicas, each.isr)
        for each in topic.partitions
    )
    return TopicView(topic.name, topic.topic_id, topic.is_internal, partitions)


def brokers_of(snapshot: ClusterSnapshot) -> list[BrokerView]:
    """Those that are there."""
    return [
        BrokerView(each.broker_id, each.host, each.port, each.rack)
        for each in snapshot.brokers.values()
        if each.host
    ]


# --- Plans -----------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """``kind``: join, leave or move; what belongs to each of them."""

    kind: str
    with_user_topics: bool = False
    broker: int = -1
    key: TopicPartition = TopicPartition("", -1)
    replicas: tuple[int, ...] = ()


def plan(
    wanted: Wanted,
    topics: Collection[TopicView],
    brokers: Sequence[BrokerView],
    targets: Mapping[TopicPartition, tuple[int, ...]],
) -> list[Move]:
    """Raises PlanRefused."""
    found = at_target(topics, targets)
    if wanted.kind == "join":
        return plan_join(found, brokers, with_user_topics=wanted.with_user_topics)
    if wanted.kind == "leave":
        try:
            return plan_leave(found, brokers, wanted.broker)
        except CannotLeave as error:
            raise PlanRefused(f"{str(error).capitalize()}.") from None
    return _move_of(wanted, found, brokers)


def _move_of(
    wanted: Wanted, topics: Iterable[TopicView], brokers: Collection[BrokerView]
) -> list[Move]:
    key, after = wanted.key, wanted.replicas
    before = next(
        (
            each.replicas
            for topic in topics
            if topic.name == key.topic
            for each in topic.partitions
            if each.index == key.partition
        ),
        None,
    )
    if before is None:
        raise PlanRefused(f"There is no partition {key.partition} of a topic {key.topic}.")
    if len(set(after)) != len(after):
        raise PlanRefused("A broker is named twice.")
    there = {each.broker_id for each in brokers}.union(before)
    missing = sorted(set(after) - there)
    if missing:
        raise PlanRefused(f"There is no broker {', '.join(map(str, missing))}.")
    return [] if before == after else [Move(key, before, after)]


def digest_of(moves: Iterable[Move]) -> str:
    """What is confirmed is what was shown: a plan that has changed meanwhile has another one."""
    return hashlib.sha256(repr([tuple(map(tuple, _plain(m))) for m in moves]).encode()).hexdigest()


def _plain(move: Move) -> tuple[tuple[object, ...], ...]:
    return (tuple(move.key), move.before, move.after)
