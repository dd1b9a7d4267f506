"""Topics here for topics there: made, widened, and set up so that they behave as they did.

A topic's settings are what holds for it at the source, its brokers' defaults included: how long records live
must not depend on which cluster they lie in. Only what differs from what would hold here anyway is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.config.topic_keys import TOPIC_KEYS
from dashboard.cluster import (
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    ConfigView,
    KafkaFailure,
    TopicView,
)
from dashboard.gateway import Gateway

FROM: Final = "odradek.import.from"
_OF_REPLICAS: Final = "min.insync.replicas"
#: About the other cluster's own machines, or of no consequence here.
_NOT_OURS: Final = frozenset(
    {FROM, "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
)


@dataclass(slots=True)
class TopicPlan:
    """One topic that is to be copied. ``source`` names it for ever: its cluster and its id."""

    name: str
    source: str
    partitions: int
    replication_factor: int
    """Here, where there may be fewer brokers."""
    here: TopicView | None = None
    notes: list[str] = field(default_factory=list)


def source_name(cluster_id: str | None, topic: TopicView) -> str:
    return f"{cluster_id}/{topic.topic_id or topic.name}"


def create(gateway: Gateway, plan: TopicPlan) -> KafkaFailure | None:
    """Make the topic, closed for everybody else from its first moment, or add what partitions it lacks."""
    if plan.here is None:
        return gateway.create_topics(
            [plan.name],
            partitions=plan.partitions,
            replication_factor=plan.replication_factor,
            configs={FROM: plan.source},
        )[plan.name]
    if len(plan.here.partitions) < plan.partitions:
        return gateway.create_partitions(plan.name, plan.partitions)
    return None


def changes(
    there: Sequence[ConfigView], here: Sequence[ConfigView], replication_factor: int
) -> tuple[list[ConfigChange], list[str]]:
    """What is to be set so that the topic behaves here as there, and what cannot be."""
    now = {view.name: view.value for view in here}
    wanted, notes = [], []
    for view in there:
        is_own = view.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        key = TOPIC_KEYS.get(view.name)
        if view.value is None or view.name in _NOT_OURS or view.value == now.get(view.name):
            continue
        if key is None or view.name not in now or view.name.startswith("remote."):
            if is_own:
                notes.append(f"{view.name}={view.value} is unknown here")
        elif view.name == _OF_REPLICAS and int(view.value) > replication_factor:
            if is_own:
                notes.append(f"{view.name}={view.value} needs more replicas than there are here")
        elif is_own or key.has_effect:
            wanted.append(ConfigChange(view.name, ConfigOperation.SET, view.value))
    return wanted, notes


def set_up(source: Gateway, target: Gateway, plans: Iterable[TopicPlan]) -> dict[str, KafkaFailure]:
    """Bring the settings over; returns what failed, by topic. May be done again at any time."""
    by_name: Mapping[str, TopicPlan] = {plan.name: plan for plan in plans}
    names = list(by_name)
    there, here = source.topic_configs(names), target.topic_configs(names)
    failed: dict[str, KafkaFailure] = {}
    wanted: dict[str, list[ConfigChange]] = {}
    for name, plan in by_name.items():
        told, known = there[name], here[name]
        if isinstance(told, KafkaFailure):
            failed[name] = told
        elif isinstance(known, KafkaFailure):
            failed[name] = known
        else:
            found, notes = changes(told, known, plan.replication_factor)
            plan.notes += notes
            if found:
                wanted[name] = found
    for name, outcome in (target.alter_topic_configs(wanted) if wanted else {}).items():
        if outcome is not None:
            failed[name] = outcome
    return failed


def open_to_all(gateway: Gateway, name: str) -> KafkaFailure | None:
    """The copy is finished: clients may produce."""
    return gateway.alter_topic_configs({name: [ConfigChange(FROM, ConfigOperation.DELETE)]})[name]
