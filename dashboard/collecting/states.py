"""A topic's state out of what the controller and its partitions' leaders told."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard.cluster import PartitionView, TopicView
from dashboard.collecting.facts import BrokerFacts, TopicFacts
from dashboard.snapshots import PartitionState, TopicState

_NOTHING = TopicFacts()


def topic_state(
    view: TopicView, facts: Mapping[int, BrokerFacts], before: TopicState | None
) -> TopicState:
    """``before`` lends the settings, which are learnt elsewhere."""
    partitions = tuple(_partition(view.name, one, facts) for one in view.partitions)
    counts = [one.record_count for one in partitions if one.record_count is not None]
    of_brokers = [one.topics[view.name] for one in facts.values() if view.name in one.topics]
    sizes = [sum(one.sizes.values()) for one in of_brokers if one.sizes]
    leaders = {partition.leader for partition in view.partitions if partition.leader is not None}
    leading = [
        facts[leader].topics.get(view.name, _NOTHING) for leader in leaders if leader in facts
    ]
    return TopicState(
        view.name,
        view.topic_id,
        view.is_internal,
        partitions,
        before.min_isr if before is not None else 1,
        sum(counts) if counts else None,
        sum(sizes) if sizes else None,
        total([one.records_rate for one in leading]),
        total([one.bytes_in_rate for one in leading]),
        total([one.bytes_out_rate for one in leading]),
        before.cleanup_policy if before is not None else None,
        min(
            (one.stale_since_ms for one in partitions if one.stale_since_ms is not None),
            default=None,
        ),
    )


def _partition(name: str, view: PartitionView, facts: Mapping[int, BrokerFacts]) -> PartitionState:
    leader = facts.get(view.leader) if view.leader is not None else None
    told = leader.topics.get(name, _NOTHING) if leader is not None else _NOTHING
    index = view.index
    size: int | None = told.sizes.get(index)
    stale_since_ms = leader.stale_since_ms if leader is not None else None
    if len(view.replicas) > 1 or size is None:
        for broker_id in view.replicas:
            holder = facts.get(broker_id)
            held = holder.topics.get(name, _NOTHING).sizes.get(index) if holder else None
            if held is not None and (size is None or held > size):
                size = held
            if leader is None and holder is not None and holder.stale_since_ms is not None:
                stale_since_ms = min(stale_since_ms or holder.stale_since_ms, holder.stale_since_ms)
    return PartitionState(
        index,
        view.leader,
        view.leader_epoch,
        view.replicas,
        view.isr,
        told.starts.get(index),
        told.ends.get(index),
        size,
        stale_since_ms,
        leader.damaged.get((name, index)) if leader is not None else None,
    )


def total(values: list[float | None]) -> float | None:
    """None where somebody could not tell."""
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None
