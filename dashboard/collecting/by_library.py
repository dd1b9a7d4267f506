"""One look at a cluster by the client library: where plain sockets of ours cannot be used.

Listeners with TLS or SASL, and brokers that are too old for ``cluster_survey``. Slower, and sizes are
told only where DescribeLogDirs can be asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from broker.model.ids import TopicPartition
from dashboard.cluster import BrokerView, ClusterView, KafkaFailure, OffsetView, TopicView
from dashboard.collecting.cluster_survey import Settings
from dashboard.collecting.problems import ProblemMemory
from dashboard.gateway import Gateway, OffsetAt
from dashboard.snapshots import BrokerState, ClusterSnapshot, PartitionState, TopicState


def collect(
    gateway: Gateway,
    now_ms: int,
    previous: ClusterSnapshot | None,
    settings: Settings,
    problems: ProblemMemory,
) -> ClusterSnapshot:
    """Everything but the groups. Raises KafkaFailure when nobody answers."""
    cluster = gateway.cluster()
    racks = {broker.broker_id: broker.rack for broker in gateway.brokers()}
    keys = [key for topic in cluster.topics for key in topic.keys]
    starts = gateway.offsets(keys, OffsetAt.EARLIEST)
    ends = gateway.offsets(keys, OffsetAt.LATEST)
    sizes = gateway.broker_log_sizes(cluster.brokers)
    topics = {
        topic.name: _topic_state(topic, starts, ends, sizes, now_ms, previous)
        for topic in cluster.topics
    }
    topics = settings(topics)
    brokers = {
        broker.broker_id: _broker_state(broker, cluster, racks, sizes, now_ms, previous)
        for broker in cluster.brokers
    }
    return ClusterSnapshot(
        now_ms,
        cluster.cluster_id,
        cluster.controller_id,
        brokers,
        topics,
        problems=problems.look(topics.values(), {}, now_ms, cluster.cluster_id),
    )


Offsets = Mapping[TopicPartition, "OffsetView | KafkaFailure"]
Sizes = Mapping[int, Mapping[TopicPartition, int]]


def _topic_state(
    topic: TopicView,
    starts: Offsets,
    ends: Offsets,
    sizes: Sizes,
    now_ms: int,
    previous: ClusterSnapshot | None,
) -> TopicState:
    partitions = []
    for key, view in zip(topic.keys, topic.partitions, strict=True):
        start, end = starts.get(key), ends.get(key)
        held = [found[key] for found in sizes.values() if key in found]
        partitions.append(
            PartitionState(
                view.index,
                view.leader,
                view.leader_epoch,
                view.replicas,
                view.isr,
                start.offset if isinstance(start, OffsetView) else None,
                end.offset if isinstance(end, OffsetView) else None,
                max(held, default=None),
            )
        )
    counts = [partition.record_count for partition in partitions]
    known = [count for count in counts if count is not None]
    held_bytes = [found[key] for found in sizes.values() for key in topic.keys if key in found]
    state = TopicState(
        topic.name,
        topic.topic_id,
        topic.is_internal,
        tuple(partitions),
        record_count=sum(known) if known else None,
        size_bytes=sum(held_bytes) if held_bytes else None,
    )
    return replace(state, records_in_rate=_records_in_rate(state, now_ms, previous))


def _records_in_rate(
    state: TopicState, now_ms: int, previous: ClusterSnapshot | None
) -> float | None:
    """By how much the ends have moved since the last tick that saw them."""
    before = previous.topics.get(state.name) if previous is not None else None
    if previous is None or before is None or now_ms <= previous.taken_ms:
        return None
    moved = 0
    for old, new in zip(before.partitions, state.partitions, strict=False):
        if old.high_watermark is not None and new.high_watermark is not None:
            moved += max(0, new.high_watermark - old.high_watermark)
    return moved * 1000 / (now_ms - previous.taken_ms)


def _broker_state(
    broker: BrokerView,
    cluster: ClusterView,
    racks: Mapping[int, str | None],
    sizes: Sizes,
    now_ms: int,
    previous: ClusterSnapshot | None,
) -> BrokerState:
    partitions = [partition for topic in cluster.topics for partition in topic.partitions]
    found = sizes.get(broker.broker_id)
    before = previous.brokers.get(broker.broker_id) if previous is not None else None
    stale_ms = None
    if found is None and before is not None:
        stale_ms = before.stale_since_ms or now_ms
    return BrokerState(
        broker.broker_id,
        broker.host,
        broker.port,
        racks.get(broker.broker_id),
        broker.broker_id == cluster.controller_id,
        sum(partition.leader == broker.broker_id for partition in partitions),
        sum(broker.broker_id in partition.replicas for partition in partitions),
        sum(found.values()) if found is not None else None,
        stale_ms,
    )
