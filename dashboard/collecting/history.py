"""Which figures of a snapshot are kept for charts; the most important first, since room is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dashboard.samples import MAX_SERIES
from dashboard.snapshots import ClusterSnapshot, TopicState

MAX_GROUPS: Final = 400
ROOM_FOR_TOPICS: Final = MAX_SERIES - 1000


def series_of(snapshot: ClusterSnapshot) -> dict[str, float]:
    """The cluster, its brokers, the groups with the most lag, then the busiest topics."""
    found = dict(_told(_cluster(snapshot)))
    found |= dict(_told(_brokers(snapshot)))
    found |= dict(_told(_groups(snapshot)))
    room = min(ROOM_FOR_TOPICS, MAX_SERIES - len(found))
    for topic in sorted(snapshot.topics.values(), key=_business, reverse=True)[: room // 4]:
        found |= dict(_told(_topic(topic)))
    return found


def _told(figures: Iterator[tuple[str, float | None]]) -> Iterator[tuple[str, float]]:
    return ((name, value) for name, value in figures if value is not None)


def _cluster(snapshot: ClusterSnapshot) -> Iterator[tuple[str, float | None]]:
    yield "cluster.bytes_in", snapshot.bytes_in_rate
    yield "cluster.bytes_out", snapshot.bytes_out_rate
    yield "cluster.records_in", snapshot.records_in_rate
    yield "cluster.records_out", snapshot.records_out_rate
    yield "cluster.size", snapshot.size_bytes


def _brokers(snapshot: ClusterSnapshot) -> Iterator[tuple[str, float | None]]:
    for broker in snapshot.brokers.values():
        if broker.stale_since_ms is None:
            yield f"broker.disk_used:{broker.broker_id}", broker.disk_used_bytes
            yield f"broker.size:{broker.broker_id}", broker.size_bytes


def _groups(snapshot: ClusterSnapshot) -> Iterator[tuple[str, float | None]]:
    groups = sorted(snapshot.groups.values(), key=lambda group: -(group.lag or 0))
    for group in groups[:MAX_GROUPS]:
        if group.stale_since_ms is None:
            yield f"group.lag:{group.group}", group.lag
            yield f"group.lag_ms:{group.group}", group.lag_ms


def _topic(topic: TopicState) -> Iterator[tuple[str, float | None]]:
    if topic.stale_since_ms is None:
        yield f"topic.records_in:{topic.name}", topic.records_in_rate
        yield f"topic.bytes_in:{topic.name}", topic.bytes_in_rate
        yield f"topic.bytes_out:{topic.name}", topic.bytes_out_rate
        yield f"topic.size:{topic.name}", topic.size_bytes


def _business(topic: TopicState) -> tuple[float, float, int]:
    return (
        (topic.bytes_in_rate or 0) + (topic.bytes_out_rate or 0),
        topic.records_in_rate or 0,
        topic.size_bytes or 0,
    )
