"""What has settings: topics, brokers, and the cluster-wide defaults of brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import click

from appliance.failure import ItemError
from appliance.options import TOPIC
from dashboard.cluster import (
    DEFAULT_BROKER,
    ConfigChange,
    ConfigSource,
    ConfigView,
    KafkaFailure,
)
from dashboard.gateway import Gateway

DEFAULT_WORD = "default"


class Entity(NamedTuple):
    """``kind`` is topic or broker; a broker's name is its id, or empty for the defaults."""

    kind: str
    name: str

    @property
    def label(self) -> str:
        return f"{self.kind} {self.name or DEFAULT_WORD}"

    @property
    def classic_update_words(self) -> str:
        """What kafka-configs says after a change."""
        if self.kind == "broker" and self.name == DEFAULT_BROKER:
            return "Completed updating default config for brokers in the cluster."
        return f"Completed updating config for {self.label}."

    @property
    def subject(self) -> dict[str, Any]:
        return {self.kind: self.name or DEFAULT_WORD}

    @property
    def own_source(self) -> ConfigSource:
        """Where a setting stands that was made on this very entity."""
        if self.kind == "topic":
            return ConfigSource.DYNAMIC_TOPIC_CONFIG
        if self.name == DEFAULT_BROKER:
            return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        return ConfigSource.DYNAMIC_BROKER_CONFIG


def entity_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--topic`` and ``--broker``, each of which may be repeated."""
    topic = click.option(
        "--topic", "topics", multiple=True, type=TOPIC, metavar="NAME", help="Topic."
    )
    broker = click.option(
        "--broker",
        "brokers",
        multiple=True,
        metavar="ID|default",
        help="Broker; default: what holds for all brokers.",
    )
    return topic(broker(function))


def chosen_entities(topics: Sequence[str], brokers: Sequence[str]) -> list[Entity]:
    if not topics and not brokers:
        raise click.UsageError("say whose settings: --topic NAME, --broker ID or --broker default")
    return [
        *(Entity("topic", name) for name in dict.fromkeys(topics)),
        *(
            Entity("broker", DEFAULT_BROKER if name == DEFAULT_WORD else name)
            for name in dict.fromkeys(brokers)
        ),
    ]


def read_configs(
    gateway: Gateway, entities: Iterable[Entity], keys: Sequence[str] | None
) -> tuple[dict[Entity, list[ConfigView]], list[ItemError]]:
    """Settings by entity; errors for entities that cannot be read and keys that do not exist."""
    ordered = list(entities)
    topics = gateway.topic_configs([e.name for e in ordered if e.kind == "topic"], keys)
    brokers = gateway.broker_configs([e.name for e in ordered if e.kind == "broker"], keys)
    found, errors = {}, []
    for entity in ordered:
        outcome = (topics if entity.kind == "topic" else brokers)[entity.name]
        if isinstance(outcome, KafkaFailure):
            errors.append(ItemError.of(outcome, **entity.subject))
            continue
        found[entity] = outcome
        if entity.name != DEFAULT_BROKER:
            known = {view.name for view in outcome}
            errors += [_unknown(entity, key) for key in keys or () if key not in known]
    return found, errors


def _unknown(entity: Entity, key: str) -> ItemError:
    option = f"--{entity.kind} {entity.name}"
    return ItemError(
        "INVALID_CONFIG",
        "there is no such setting",
        {**entity.subject, "key": key},
        f"`odradek config get {option} -a` lists every key.",
    )


def alter_entity(
    gateway: Gateway, entity: Entity, changes: Sequence[ConfigChange], *, validate_only: bool
) -> KafkaFailure | None:
    if entity.kind == "topic":
        outcomes = gateway.alter_topic_configs({entity.name: changes}, validate_only=validate_only)
        return outcomes[entity.name]
    return gateway.alter_broker_configs(entity.name, changes, validate_only=validate_only)
