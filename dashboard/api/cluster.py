"""The cluster and its brokers."""

from __future__ import annotations

from typing import Literal

from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import Field

from dashboard import clusters
from dashboard.api.auth import actor_of, may
from dashboard.api.errors import NotFound
from dashboard.api.shapes import (
    Done,
    Int64,
    Milliseconds,
    Rfc3339,
    Taken,
    moment,
    responses,
    snapshot,
    taken,
)
from dashboard.cluster import ConfigView, KafkaFailure
from dashboard.permissions import Permission
from dashboard.selectors import alerts
from dashboard.selectors.health import health_of
from dashboard.services import brokers as service
from dashboard.snapshots import BrokerState

router = Router(tags=["Cluster"])


class ReasonOut(Schema):
    level: Literal["warn", "bad"]
    text: str


class EventOut(Schema):
    """Seen by the look at ``at_ms``: what had happened since the one before."""

    at_ms: Milliseconds
    at_time: Rfc3339
    kind: Literal[
        "failover", "leaders_moved", "leaders_lost", "controller", "broker_gone", "broker_came"
    ]
    text: str


class ClusterOut(Taken):
    """``health`` with its reasons is what the Overview says: of the cluster, and of firing alerts."""

    health: Literal["good", "warn", "bad"]
    reasons: list[ReasonOut]
    cluster_id: str | None
    controller_id: int | None
    brokers: int
    topics: int
    partitions: int
    groups: int
    offline_partitions: int
    under_replicated_partitions: int
    under_min_isr_partitions: int
    events: list[EventOut] = Field(description="The newest first, at most 50.")


class BrokerOut(Schema):
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool
    leader_count: int
    replica_count: int
    size_bytes: Int64 | None
    stale_since_ms: Int64 | None
    stale_since_time: str | None


class BrokersOut(Taken):
    brokers: list[BrokerOut]


class SettingOut(Schema):
    """``source`` in Kafka's words, such as DYNAMIC_TOPIC_CONFIG; ``value`` null: not told."""

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool


class NewBrokerValue(Schema):
    value: str = Field(max_length=10_000)
    for_all: bool = Field(False, description="Of all brokers, instead of this one alone.")


@router.get("/cluster", auth=may(Permission.SEE), response=responses(ClusterOut))
def get_cluster(request: HttpRequest):  # type: ignore[no-untyped-def]
    """What there is, and how much of it is in trouble."""
    seen = snapshot()
    states = seen.topics.values()
    health = health_of(seen, alerts.firing())
    return {
        **taken(seen),
        "health": health.level,
        "reasons": [{"level": each.level, "text": each.text} for each in health.reasons],
        "cluster_id": seen.cluster_id,
        "controller_id": seen.controller_id,
        "brokers": len(seen.brokers),
        "topics": len(seen.topics),
        "partitions": seen.partition_count,
        "groups": len(seen.groups),
        "offline_partitions": sum(topic.offline_count for topic in states),
        "under_replicated_partitions": sum(topic.under_replicated_count for topic in states),
        "under_min_isr_partitions": sum(topic.under_min_isr_count for topic in states),
        "events": [
            {**moment("at", one.at_ms), "kind": one.kind, "text": one.text} for one in seen.events
        ],
    }


@router.get("/brokers", auth=may(Permission.SEE), response=responses(BrokersOut))
def list_brokers(request: HttpRequest):  # type: ignore[no-untyped-def]
    seen = snapshot()
    return {**taken(seen), "brokers": [_told(broker) for broker in seen.brokers.values()]}


@router.get("/brokers/{int:broker_id}", auth=may(Permission.SEE), response=responses(BrokerOut))
def get_broker(request: HttpRequest, broker_id: int):  # type: ignore[no-untyped-def]
    return _told(_broker(broker_id))


@router.get(
    "/brokers/{int:broker_id}/settings",
    auth=may(Permission.SEE),
    response=responses(list[SettingOut]),
)
def list_broker_settings(request: HttpRequest, broker_id: int):  # type: ignore[no-untyped-def]
    """As the broker tells them now."""
    name = str(_broker(broker_id).broker_id)
    found = clusters.gateway().broker_configs([name])[name]
    if isinstance(found, KafkaFailure):
        raise found
    return [setting(view) for view in found]


@router.put(
    "/brokers/{int:broker_id}/settings/{key}",
    auth=may(Permission.CHANGE_BROKERS),
    response=responses(Done),
)
def set_broker_setting(  # type: ignore[no-untyped-def]
    request: HttpRequest, broker_id: int, key: str, wanted: NewBrokerValue
):
    """A dynamic setting, of this broker or of all."""
    _set(request, broker_id, key, wanted.value, for_all=wanted.for_all)
    return {}


@router.delete(
    "/brokers/{int:broker_id}/settings/{key}",
    auth=may(Permission.CHANGE_BROKERS),
    response=responses(Done),
)
def reset_broker_setting(  # type: ignore[no-untyped-def]
    request: HttpRequest, broker_id: int, key: str, for_all: bool = False
):
    """Take away what was set by hand: its file and defaults hold again."""
    _set(request, broker_id, key, None, for_all=for_all)
    return {}


def _set(
    request: HttpRequest, broker_id: int, key: str, value: str | None, *, for_all: bool
) -> None:
    name = str(_broker(broker_id).broker_id)
    found = clusters.gateway().broker_configs([name])[name]
    if isinstance(found, KafkaFailure):
        raise found
    view = next((view for view in found if view.name == key), None)
    if view is None:
        raise NotFound(f"Broker {broker_id} has no setting {key[:100]}.")
    failure = service.set_setting(
        actor=actor_of(request),
        broker_id=broker_id,
        key=key,
        value=value,
        for_all=for_all,
        before=view.value,
    )
    if failure is not None:
        raise failure


def setting(view: ConfigView) -> dict[str, object]:
    return {
        "name": view.name,
        "value": None if view.is_sensitive else view.value,
        "source": view.source.name,
        "is_read_only": view.is_read_only,
        "is_sensitive": view.is_sensitive,
    }


def _broker(broker_id: int) -> BrokerState:
    found = snapshot().brokers.get(broker_id)
    if found is None:
        raise NotFound(f"There is no broker {broker_id}.")
    return found


def _told(broker: BrokerState) -> dict[str, object]:
    return {
        "broker_id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "is_controller": broker.is_controller,
        "leader_count": broker.leader_count,
        "replica_count": broker.replica_count,
        "size_bytes": broker.size_bytes,
        **moment("stale_since", broker.stale_since_ms),
    }
