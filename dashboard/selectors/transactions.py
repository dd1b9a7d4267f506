"""What the page of transactions shows: those under way, and those that hang on a partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from broker.clock import SystemClock
from broker.model.ids import TopicPartition
from dashboard import clusters
from dashboard.answers import Answer, answers
from dashboard.cluster import BrokerView
from dashboard.snapshots import ClusterSnapshot
from dashboard.transactions import ENDING, OpenTransaction, TransactionView

AGE_MS: Final = 2_000
MAX_PARTITIONS: Final = 2_000
"""Looked through for transactions that hang; with more, a topic has to be named."""
GRACE_MS: Final = 15_000
"""Kafka looks for transactions that have run out every ten seconds."""
PARTITIONS_SHOWN: Final = 6


class Seen(NamedTuple):
    """``looked_at`` of ``partition_count`` partitions were asked what they hold open."""

    under_way: list[TransactionView]
    hanging: list[OpenTransaction]
    looked_at: int
    partition_count: int

    @property
    def is_whole(self) -> bool:
        return self.looked_at == self.partition_count


class Row(NamedTuple):
    view: TransactionView
    duration_ms: int | None
    status: str
    partitions: tuple[TopicPartition, ...]
    more_partitions: int

    @property
    def is_bad(self) -> bool:
        return bool(self.status)


def look(snapshot: ClusterSnapshot | None, topic: str) -> Answer[Seen]:
    """Asked of the cluster itself; ``topic`` alone is looked through, if one is named."""
    every = partitions_of(snapshot, topic)
    leaders = dict(sorted(every.items())[:MAX_PARTITIONS]) if len(every) > MAX_PARTITIONS else every

    def ask() -> Seen:
        known, hanging = clusters.gateway().transactions.hanging(leaders)
        return Seen(known, hanging, len(leaders), len(every))

    return answers.ask(key_of(topic), ask, max_age_ms=AGE_MS)


def key_of(topic: str) -> tuple[str, ...]:
    return ("transactions", topic)


def partitions_of(snapshot: ClusterSnapshot | None, topic: str) -> dict[TopicPartition, BrokerView]:
    """Partitions with their leaders, as the snapshot knows them."""
    if snapshot is None:
        return {}
    brokers = {
        each.broker_id: BrokerView(each.broker_id, each.host, each.port)
        for each in snapshot.brokers.values()
        if each.host and each.port
    }
    topics = [snapshot.topics[topic]] if topic in snapshot.topics else snapshot.topics.values()
    if topic and topic not in snapshot.topics:
        topics = []
    return {
        TopicPartition(one.name, partition.index): brokers[partition.leader]
        for one in topics
        for partition in one.partitions
        if partition.leader in brokers
    }


def rows_of(views: Iterable[TransactionView], search: str, topic: str) -> list[Row]:
    """``search`` in the transactional id or the producer id."""
    now_ms = SystemClock().wall_ms()
    words = search.casefold().split()
    return [
        _row(view, now_ms)
        for view in views
        if all(word in f"{view.transactional_id} {view.producer_id}".casefold() for word in words)
        and (not topic or any(each.topic == topic for each in view.partitions))
    ]


def _row(view: TransactionView, now_ms: int) -> Row:
    duration_ms = None if view.started_ms is None else max(now_ms - view.started_ms, 0)
    status = ""
    if duration_ms is not None and duration_ms > view.timeout_ms + GRACE_MS:
        status = "markers are missing" if view.state in ENDING else "past its time-out"
    shown = view.partitions[:PARTITIONS_SHOWN]
    return Row(view, duration_ms, status, shown, len(view.partitions) - len(shown))
