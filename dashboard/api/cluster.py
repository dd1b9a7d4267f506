"""The cluster and its brokers."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Router, Schema

from dashboard import clusters
from dashboard.api.auth import may
from dashboard.api.errors import NotFound
from dashboard.api.shapes import Int64, Taken, moment, responses, snapshot, taken
from dashboard.cluster import ConfigView, KafkaFailure
from dashboard.permissions import Permission
from dashboard.snapshots import BrokerState

router = Router(tags=["Cluster"])


class ClusterOut(Taken):
    cluster_id: str | None
    controller_id: int | None
    brokers: int
    topics: int
    partitions: int
    groups: int
    offline_partitions: int
    under_replicated_partitions: int
    under_min_isr_partitions: int


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


@router.get("/cluster", auth=may(Permission.SEE), response=responses(ClusterOut))
def get_cluster(request: HttpRequest):  # type: ignore[no-untyped-def]
    """What there is, and how much of it is in trouble."""
    seen = snapshot()
    states = seen.topics.values()
    return {
        **taken(seen),
        "cluster_id": seen.cluster_id,
        "controller_id": seen.controller_id,
        "brokers": len(seen.brokers),
        "topics": len(seen.topics),
        "partitions": seen.partition_count,
        "groups": len(seen.groups),
        "offline_partitions": sum(topic.offline_count for topic in states),
        "under_replicated_partitions": sum(topic.under_replicated_count for topic in states),
        "under_min_isr_partitions": sum(topic.under_min_isr_count for topic in states),
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
