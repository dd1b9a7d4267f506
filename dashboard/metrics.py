"""Figures of the web side for Prometheus, by the names that Kafka's own JMX exporter gives where they exist.

Read from the last snapshot and the database; asking costs the cluster nothing. Labels are bounded:
the largest topics and the groups with the most lag are listed up to a number, the rest is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.conf import settings
from django.db import DatabaseError
from django.db.models import Count, Q
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric

from broker.clock import SystemClock
from dashboard import leases, room
from dashboard.broker_api import NodeReport
from dashboard.jobs import KINDS
from dashboard.models import AlertRule, JobMark, JobRun
from dashboard.readiness import readiness
from dashboard.room import Room
from dashboard.snapshots import ClusterSnapshot, TopicState, shelf

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
MAX_TOPICS = 500
MAX_GROUP_TOPICS = 2_000
"""Pairs of a group and a topic."""


class WebCollector:
    """Made anew of what is known at each scrape."""

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("odradek", "What runs.", value={"version": settings.ODRADEK_VERSION})
        yield _gauge("odradek_broker_ready", "The broker answers.", readiness.ask().is_ready)
        yield from _room(room.look())
        snapshot = shelf.peek()
        if snapshot is not None:
            yield from _cluster(snapshot)
            if snapshot.node is not None:
                yield from _silence(snapshot.node)
            yield from _topics(snapshot)
            yield from _groups(snapshot)
        try:
            yield from _database()
        except DatabaseError:
            yield _gauge("odradek_database_up", "The database answers.", 0)
        else:
            yield _gauge("odradek_database_up", "The database answers.", 1)


def render() -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(WebCollector())
    return generate_latest(registry)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _cluster(snapshot: ClusterSnapshot) -> Iterator[Metric]:
    topics = snapshot.topics.values()
    age_s = max(0, SystemClock().wall_ms() - snapshot.taken_ms) / 1000
    yield _gauge("odradek_snapshot_age_seconds", "Age of what the figures below come from.", age_s)
    controller, replicas = "kafka_controller_kafkacontroller", "kafka_server_replicamanager"
    figures = (
        (f"{controller}_activebrokercount", "Brokers.", len(snapshot.brokers)),
        (f"{controller}_globaltopiccount", "Topics.", len(topics)),
        (f"{controller}_globalpartitioncount", "Partitions.", snapshot.partition_count),
        (
            f"{controller}_offlinepartitionscount",
            "Partitions without a leader.",
            sum(topic.offline_count for topic in topics),
        ),
        (
            f"{replicas}_underreplicatedpartitions",
            "Partitions with a replica that is behind.",
            sum(topic.under_replicated_count for topic in topics),
        ),
        (
            f"{replicas}_underminisrpartitioncount",
            "Partitions with fewer replicas in sync than min.insync.replicas.",
            sum(topic.under_min_isr_count for topic in topics),
        ),
    )
    for name, text, value in figures:
        yield _gauge(name, text, value)


def _room(found: Room) -> Iterator[Metric]:
    if found.free_bytes is not None:
        yield _gauge("odradek_data_free_bytes", "Room where the data lies.", found.free_bytes)
    yield _gauge(
        "odradek_writing_paused",
        "Whether the appliance writes nothing of its own for want of room.",
        found.is_short,
    )


def _silence(node: NodeReport) -> Iterator[Metric]:
    if node.retention is not None:
        yield _gauge(
            "odradek_scheduler_silent",
            "The broker has not been asked for retention for two minutes, and runs it by itself.",
            node.retention["is_scheduler_silent"],
        )
        yield _gauge(
            "odradek_retention_last_run_timestamp_seconds",
            "Last run over all topics, since 1970; 0: none since the broker's start.",
            node.retention["last_run_ms"] / 1000,
        )


def _topics(snapshot: ClusterSnapshot) -> Iterator[Metric]:
    by_size = sorted(snapshot.topics.values(), key=_weight, reverse=True)
    listed, rest = by_size[:MAX_TOPICS], by_size[MAX_TOPICS:]
    size = GaugeMetricFamily("kafka_log_log_size", "Bytes of a topic.", labels=["topic"])
    records = GaugeMetricFamily(
        "odradek_topic_records", "Offsets that a topic holds.", labels=["topic"]
    )
    for topic in listed:
        if topic.size_bytes is not None:
            size.add_metric([topic.name], topic.size_bytes)
        if topic.record_count is not None:
            records.add_metric([topic.name], topic.record_count)
    yield size
    yield records
    yield _gauge("odradek_topics_left_out", f"Topics beyond the {MAX_TOPICS} largest.", len(rest))


def _weight(topic: TopicState) -> tuple[int, int]:
    return topic.size_bytes or 0, topic.record_count or 0


def _groups(snapshot: ClusterSnapshot) -> Iterator[Metric]:
    lags: dict[tuple[str, str], int] = {}
    for group in snapshot.groups.values():
        for each in group.partitions:
            if each.lag is not None:
                key = (group.group, each.topic)
                lags[key] = lags.get(key, 0) + max(0, each.lag)
    ordered = sorted(lags.items(), key=lambda item: item[1], reverse=True)
    lag = GaugeMetricFamily(
        "kafka_consumergroup_lag", "Records to read.", labels=["consumergroup", "topic"]
    )
    for (name, topic), value in ordered[:MAX_GROUP_TOPICS]:
        lag.add_metric([name, topic], value)
    yield lag
    behind = GaugeMetricFamily(
        "odradek_consumergroup_lag_seconds",
        "Age of the oldest record that the group has not read.",
        labels=["consumergroup"],
    )
    aged = [(group.lag_ms, group.group) for group in snapshot.groups.values()]
    known = sorted(((ms, name) for ms, name in aged if ms is not None), reverse=True)
    for lag_ms, name in known[:MAX_GROUP_TOPICS]:
        behind.add_metric([name], lag_ms / 1000)
    yield behind
    yield _gauge(
        "odradek_consumergroups_left_out",
        f"Pairs of group and topic beyond the {MAX_GROUP_TOPICS} with the most lag.",
        max(0, len(ordered) - MAX_GROUP_TOPICS),
    )


def _database() -> Iterable[Metric]:
    counts = JobRun.objects.values_list("job", "state").annotate(count=Count("id"))
    runs = GaugeMetricFamily(
        "odradek_job_runs", "Rows of runs that are kept, by state.", labels=["job", "state"]
    )
    for job, state, count in counts.order_by("job", "state"):
        if job in KINDS:
            runs.add_metric([job, state], count)
    firing = GaugeMetricFamily(
        "odradek_alerts_firing", "Alerts that fire, by rule.", labels=["rule", "kind", "severity"]
    )
    rules = AlertRule.objects.filter(is_on=True).annotate(
        count=Count("alerts", filter=Q(alerts__state="firing"))
    )
    for rule in rules:
        firing.add_metric([rule.name, rule.kind, rule.severity], rule.count)
    last_ok = GaugeMetricFamily(
        "odradek_job_last_ok_timestamp_seconds",
        "When a job of all targets last ended well, since 1970.",
        labels=["job"],
    )
    for mark in JobMark.objects.filter(target="", ok_at__isnull=False):
        if mark.job in KINDS and mark.ok_at is not None:
            last_ok.add_metric([mark.job], mark.ok_at.timestamp())
    is_scheduled = leases.holder_of(leases.SCHEDULER) is not None
    return [
        runs,
        firing,
        last_ok,
        _gauge("odradek_scheduler_up", "Some worker watches the schedules.", is_scheduled),
    ]
