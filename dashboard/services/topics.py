"""Changes of topics. A refusal is a value: every caller says it in its own way.

Each item is audited by itself, with what was there before. What was changed is asked for again and
put into the snapshot, so that the next page shows it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from broker.model.ids import TopicPartition
from dashboard import clusters
from dashboard.answers import answers
from dashboard.cluster import (
    ConfigChange,
    ConfigOperation,
    KafkaFailure,
    OffsetView,
    TopicView,
)
from dashboard.collecting import topic_settings
from dashboard.gateway import Gateway, OffsetAt
from dashboard.selectors.topic_detail import own_settings, topic_states, with_figures_of
from dashboard.services import audit
from dashboard.services.audit import Actor, Change
from dashboard.snapshots import ClusterSnapshot, TopicState, shelf

Outcome = KafkaFailure | None
"""None: it was done."""


def create(
    *,
    actor: Actor,
    name: str,
    partitions: int = -1,
    replication_factor: int = -1,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> Outcome:
    """-1 leaves a count to the broker. Validating only is not a change, hence not audited."""

    def ask() -> Outcome:
        return clusters.gateway().create_topics(
            [name],
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
            validate_only=validate_only,
        )[name]

    if validate_only:
        return _outcome(ask)
    with audit.change(actor, "topic.create", name) as change:
        change.after = {
            "partitions": partitions if partitions > 0 else "default",
            "replication_factor": replication_factor if replication_factor > 0 else "default",
            "settings": dict(configs or {}),
        }
        outcome = _outcome(ask)
        change.failure = str(outcome or "")
    if outcome is None:
        show_again([name])
    return outcome


def delete(*, actor: Actor, names: Sequence[str]) -> dict[str, Outcome]:
    return _each(actor, "topic.delete", names, _delete)


def _delete(gateway: Gateway, name: str, change: Change) -> Outcome:
    change.before = _told(gateway, name)
    return gateway.delete_topics([name])[name]


def empty(*, actor: Actor, names: Sequence[str]) -> dict[str, Outcome]:
    """Forget all records that are there now; the topic, its settings and offsets stay."""
    return _each(actor, "topic.empty", names, _empty)


def _empty(gateway: Gateway, name: str, change: Change) -> Outcome:
    view = gateway.topics([name])[name]
    if isinstance(view, KafkaFailure):
        return view
    starts = gateway.offsets(view.keys, OffsetAt.EARLIEST)
    ends = gateway.offsets(view.keys, OffsetAt.LATEST)
    change.before = {"log_start_offsets": _by_partition(starts)}
    targets = {key: found.offset for key, found in ends.items() if isinstance(found, OffsetView)}
    outcomes = gateway.delete_records(targets)
    change.after = {"log_start_offsets": _by_partition(outcomes)}
    failures = [
        found for found in (*ends.values(), *outcomes.values()) if isinstance(found, KafkaFailure)
    ]
    if not failures or len(failures) == len(view.partitions):
        return failures[0] if failures else None
    first = failures[0]
    words = (
        f"{len(failures)} of {len(view.partitions)} partitions were not emptied: {first.message}"
    )
    return KafkaFailure(first.code, words, is_transport=first.is_transport)


def _by_partition(
    found: Mapping[TopicPartition, OffsetView | int | KafkaFailure],
) -> dict[str, int]:
    return {
        str(key.partition): outcome.offset if isinstance(outcome, OffsetView) else outcome
        for key, outcome in found.items()
        if not isinstance(outcome, KafkaFailure)
    }


def add_partitions(*, actor: Actor, name: str, total: int, validate_only: bool = False) -> Outcome:
    """``total`` is how many there are afterwards."""
    gateway = clusters.gateway()

    def ask() -> Outcome:
        return gateway.create_partitions(name, total, validate_only=validate_only)

    if validate_only:
        return _outcome(ask)
    with audit.change(actor, "topic.partitions", name) as change:
        with contextlib.suppress(KafkaFailure):
            view = gateway.topics([name])[name]
            if isinstance(view, TopicView):
                change.before = {"partitions": len(view.partitions)}
        change.after = {"partitions": total}
        outcome = _outcome(ask)
        change.failure = str(outcome or "")
    show_again([name])
    return outcome


def set_setting(
    *, actor: Actor, name: str, key: str, value: str, validate_only: bool = False
) -> Outcome:
    change = ConfigChange(key, ConfigOperation.SET, value)
    return _change_setting(actor, name, change, validate_only=validate_only)


def reset_setting(*, actor: Actor, name: str, key: str) -> Outcome:
    """Back to what the brokers give."""
    change = ConfigChange(key, ConfigOperation.DELETE)
    return _change_setting(actor, name, change, validate_only=False)


def _change_setting(
    actor: Actor, name: str, wanted: ConfigChange, *, validate_only: bool
) -> Outcome:
    gateway = clusters.gateway()

    def ask() -> Outcome:
        return gateway.alter_topic_configs({name: [wanted]}, validate_only=validate_only)[name]

    if validate_only:
        return _outcome(ask)
    key = wanted.name
    with audit.change(actor, "topic.settings", name) as change:
        change.before = {key: _setting(gateway, name, key)}
        outcome = _outcome(ask)
        after = wanted.value if outcome is not None else _setting(gateway, name, key)
        change.after = {key: after}
        change.failure = str(outcome or "")
    answers.forget(("settings", name))
    topic_settings.watch.forget(name)
    if outcome is None and key == "cleanup.policy":
        _amend(name, lambda topic: replace(topic, cleanup_policy=after))
    return outcome


def _setting(gateway: Gateway, name: str, key: str) -> str | None:
    """For the audit: what holds now, wherever it comes from."""
    with contextlib.suppress(KafkaFailure):
        views = gateway.topic_configs([name], [key])[name]
        if not isinstance(views, KafkaFailure):
            return next((view.value for view in views if view.name == key), None)
    return None


# What all of them do


def _each(
    actor: Actor,
    action: str,
    names: Sequence[str],
    do: Callable[[Gateway, str, Change], Outcome],
) -> dict[str, Outcome]:
    """One after the other: a refused one does not stop the rest."""
    gateway = clusters.gateway()
    outcomes: dict[str, Outcome] = {}
    for name in dict.fromkeys(names):
        with audit.change(actor, action, name) as change:
            outcomes[name] = outcome = _outcome(partial(do, gateway, name, change))
            change.failure = str(outcome or "")
    show_again(list(outcomes))
    return outcomes


def _outcome(do: Callable[[], Outcome]) -> Outcome:
    """Whoever could not be reached refuses too."""
    try:
        return do()
    except KafkaFailure as failure:
        return failure


def _told(gateway: Gateway, name: str) -> dict[str, Any] | None:
    """What there was of a topic, for the audit: enough to make it again, without its records."""
    view = gateway.topics([name])[name]
    if isinstance(view, KafkaFailure):
        return None
    configs = gateway.topic_configs([name])[name]
    return {
        "partitions": len(view.partitions),
        "replication_factor": view.replication_factor,
        "settings": {} if isinstance(configs, KafkaFailure) else own_settings(configs),
    }


def show_again(names: Collection[str]) -> None:
    """Put what the cluster tells of these topics now into the snapshot."""
    answers.forget(*(("topic", name) for name in names))
    answers.forget(*(("settings", name) for name in names))
    try:
        found = topic_states(clusters.gateway(), names)
    except KafkaFailure:
        return  # The next tick tells it.

    def change(snapshot: ClusterSnapshot) -> ClusterSnapshot:
        topics = dict(snapshot.topics)
        for name, state in found.items():
            if isinstance(state, TopicState):
                topics[name] = with_figures_of(state, topics.get(name))
            elif state.code == "UNKNOWN_TOPIC_OR_PARTITION":
                topics.pop(name, None)
        return replace(snapshot, topics=dict(sorted(topics.items())))

    shelf.amend(change)


def _amend(name: str, change: Callable[[TopicState], TopicState]) -> None:
    def amended(snapshot: ClusterSnapshot) -> ClusterSnapshot:
        topic = snapshot.topics.get(name)
        if topic is None:
            return snapshot
        return replace(snapshot, topics={**snapshot.topics, name: change(topic)})

    shelf.amend(amended)
