"""One topic: what the snapshot knows of it, its groups, and what only the cluster itself can tell."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from dashboard import broker_api, clusters, topic_settings
from dashboard.answers import Answer, answers
from dashboard.cluster import (
    ConfigSource,
    ConfigView,
    KafkaFailure,
    OffsetView,
    TopicView,
)
from dashboard.gateway import Gateway, OffsetAt
from dashboard.selectors.topics import lag_by_topic
from dashboard.snapshots import (
    ClusterSnapshot,
    GroupState,
    LaggingReplica,
    PartitionState,
    TopicState,
)

LOOK_UP_WAIT_S = 2.0
"""A page about a topic that the snapshot does not know yet may wait this long for the cluster."""
BROKER_SETTINGS_AGE_MS = 60_000


class Settings(NamedTuple):
    """What the cluster tells about a topic's settings."""

    views: Sequence[ConfigView]
    is_odradek: bool


class TopicGroup(NamedTuple):
    group: GroupState
    lag: int | None
    """Here, over all partitions where it is known."""
    lag_ms: int | None
    member_count: int
    """That have partitions of this topic."""


def look_up(name: str) -> Answer[TopicState]:
    """A topic that is not in the snapshot: younger than it, or not there at all."""
    return answers.ask(
        ("topic", name),
        lambda: _one_state(clusters.gateway(), name),
        max_age_ms=2000,
        wait_s=LOOK_UP_WAIT_S,
    )


def _one_state(gateway: Gateway, name: str) -> TopicState:
    found = topic_states(gateway, [name])[name]
    if isinstance(found, KafkaFailure):
        raise found
    return found


def topic_states(gateway: Gateway, names: Collection[str]) -> dict[str, TopicState | KafkaFailure]:
    """As the cluster tells them now: partitions with their offsets, without sizes and rates."""
    views = gateway.topics(names)
    keys = [
        key
        for view in views.values()
        if isinstance(view, TopicView)
        for key, partition in zip(view.keys, view.partitions, strict=True)
        if partition.leader is not None
    ]
    starts = gateway.offsets(keys, OffsetAt.EARLIEST)
    ends = gateway.offsets(keys, OffsetAt.LATEST)
    found: dict[str, TopicState | KafkaFailure] = {}
    for name, view in views.items():
        if isinstance(view, KafkaFailure):
            found[name] = view
            continue
        partitions = []
        for key, partition in zip(view.keys, view.partitions, strict=True):
            start, end = starts.get(key), ends.get(key)
            partitions.append(
                PartitionState(
                    partition.index,
                    partition.leader,
                    partition.leader_epoch,
                    partition.replicas,
                    partition.isr,
                    start.offset if isinstance(start, OffsetView) else None,
                    end.offset if isinstance(end, OffsetView) else None,
                )
            )
        counts = [partition.record_count for partition in partitions]
        known = [count for count in counts if count is not None]
        found[name] = TopicState(
            view.name,
            view.topic_id,
            view.is_internal,
            tuple(partitions),
            record_count=sum(known) if known else None,
        )
    return found


def with_figures_of(new: TopicState, old: TopicState | None) -> TopicState:
    """What ``topic_states`` does not ask for, as it was known before."""
    if old is None:
        return new
    sizes = {partition.index: partition.size_bytes for partition in old.partitions}
    return replace(
        new,
        partitions=tuple(
            replace(partition, size_bytes=sizes.get(partition.index))
            for partition in new.partitions
        ),
        min_isr=old.min_isr,
        size_bytes=old.size_bytes,
        records_in_rate=old.records_in_rate,
        bytes_in_rate=old.bytes_in_rate,
        bytes_out_rate=old.bytes_out_rate,
        cleanup_policy=old.cleanup_policy,
    )


class PartitionLog(NamedTuple):
    """What only the broker that holds it tells of a partition."""

    log_end_offset: int | None
    last_stable_offset: int | None
    segment_count: int | None
    segments: list[dict[str, int]]
    """The first of them: ``base_offset``, ``size_bytes``."""

    @property
    def more_segments(self) -> int:
        return max(0, (self.segment_count or 0) - len(self.segments))


def logs_of(name: str, cluster_id: str | None) -> Answer[dict[int, PartitionLog]]:
    """By partition, of the logs on this machine's broker; empty where this cluster does not tell."""

    def ask() -> dict[int, PartitionLog]:
        api = broker_api.local()
        try:
            node = api.node()
            if node is None or node.cluster_id != cluster_id:
                return {}
            told = api.partitions(name) or []
        except OSError as error:
            raise KafkaFailure("NOT_CONNECTED", str(error), is_transport=True) from None
        return {
            each["partition"]: PartitionLog(
                each.get("log_end_offset"),
                each.get("last_stable_offset"),
                each.get("segment_count"),
                each.get("segments") or [],
            )
            for each in told
        }

    return answers.ask(("logs", name), ask, max_age_ms=5000)


def lagging_of(snapshot: ClusterSnapshot, topic: str) -> dict[int, tuple[LaggingReplica, ...]]:
    """By partition, where any replica is not in sync."""
    return {
        problem.partition: problem.lagging
        for problem in snapshot.problems
        if problem.topic == topic and problem.lagging
    }


def groups_of(snapshot: ClusterSnapshot, topic: str) -> list[TopicGroup]:
    """Groups that read the topic or have read it, those furthest behind first."""
    found = []
    for group in snapshot.groups.values():
        here = [partition for partition in group.partitions if partition.topic == topic]
        if not here and topic not in group.topics:
            continue
        ages = [partition.lag_ms for partition in here if partition.lag_ms is not None]
        members = {partition.member_id for partition in here if partition.member_id}
        lag = lag_by_topic(group).get(topic)
        found.append(TopicGroup(group, lag, max(ages, default=None), len(members)))
    return sorted(found, key=lambda each: (-(each.lag or 0), each.group.group))


def settings_of(name: str, *, max_age_ms: int = 0) -> Answer[Settings]:
    """Every setting of the topic, as the cluster tells it now."""

    def ask() -> Settings:
        found = clusters.gateway().topic_configs([name])[name]
        if isinstance(found, KafkaFailure):
            raise found
        return Settings(found, any(view.name.startswith("odradek.") for view in found))

    return answers.ask(("settings", name), ask, max_age_ms=max_age_ms)


def own_settings(views: Sequence[ConfigView]) -> dict[str, str]:
    """Those that were set on the topic itself: what a copy of it takes over."""
    return {
        view.name: view.value
        for view in views
        if view.source is ConfigSource.DYNAMIC_TOPIC_CONFIG and view.value is not None
    }


def broker_settings() -> Answer[Sequence[ConfigView]]:
    """Of any broker that answers: they give the defaults of new topics."""

    def ask() -> Sequence[ConfigView]:
        gateway = clusters.gateway()
        failure: KafkaFailure | None = None
        for broker in gateway.cluster().brokers:
            found = gateway.broker_configs([str(broker.broker_id)])[str(broker.broker_id)]
            if not isinstance(found, KafkaFailure):
                return found
            failure = found
        raise failure or KafkaFailure("BROKER_NOT_AVAILABLE", "no broker is up", is_transport=True)

    return answers.ask(("broker settings",), ask, max_age_ms=BROKER_SETTINGS_AGE_MS, wait_s=1.0)


class NewTopicDefaults(NamedTuple):
    partitions: str
    replicas: str
    settings: dict[str, str | None]
    names: list[str]
    """Of the settings that a topic of this cluster can have."""


def new_topic_defaults() -> Answer[NewTopicDefaults]:
    """What the brokers give a topic that says nothing itself."""
    answer = broker_settings()
    views = answer.value
    if views is None:
        return Answer(None, None, answer.failure, answer.is_pending)
    told = {view.name: view.value for view in views}
    found = NewTopicDefaults(
        told.get("num.partitions") or "1",
        told.get("default.replication.factor") or "1",
        topic_settings.defaults(views),
        topic_settings.settable(views),
    )
    return Answer(found, answer.taken_ms, answer.failure, answer.is_pending)
