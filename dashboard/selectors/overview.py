"""What the first page shows."""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

from django.db.models import Max

from dashboard import clusters
from dashboard.collecting.problems import OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED
from dashboard.jobs import RETENTION
from dashboard.models import JobMark, JobRun
from dashboard.selectors import alerts, charts
from dashboard.selectors.health import health_of, open_listeners, problem_counts
from dashboard.snapshots import ClusterSnapshot, GroupState, TopicState

BUSIEST = 8
LAGGING = 8
JOBS = 8
EVENTS = 8
MARKED = (RETENTION, "report")
"""Jobs of which the page says when they were last done, also when they found nothing to do."""


class Disk(NamedTuple):
    broker_id: int
    size_bytes: int | None
    used_bytes: int | None
    total_bytes: int | None
    free_bytes: int | None


def context_of(snapshot: ClusterSnapshot | None, range_name: str) -> dict[str, Any]:
    firing = alerts.firing()
    context: dict[str, Any] = {
        "snapshot": snapshot,
        "firing_alerts": firing,
        "health": health_of(snapshot, firing),
        "open_listeners": open_listeners(snapshot, is_plain=clusters.gateway().is_plain),
        "runs": last_runs(),
        "marks": list(JobMark.objects.filter(job__in=MARKED, target="").order_by("job")),
        "charts": [
            charts.chart("Bytes", ["cluster.bytes_in", "cluster.bytes_out"], range_name),
            charts.chart("Records", ["cluster.records_in", "cluster.records_out"], range_name),
        ],
        "ranges": charts.range_choices(range_name),
    }
    if snapshot is not None:
        counts = problem_counts(snapshot)
        context |= {
            "offline": counts[OFFLINE],
            "under_min_isr": counts[UNDER_MIN_ISR],
            "under_replicated": counts[UNDER_REPLICATED],
            "busiest": busiest(snapshot),
            "lagging": lagging(snapshot),
            "disks": disks(snapshot),
            "events": snapshot.events[:EVENTS],
        }
    return context


def busiest(snapshot: ClusterSnapshot) -> list[TopicState]:
    """By bytes where they are told, else by records; those with any."""
    found = heapq.nlargest(BUSIEST, snapshot.topics.values(), key=_business)
    return [topic for topic in found if any(_business(topic))]


def _business(topic: TopicState) -> tuple[float, float]:
    return (
        (topic.bytes_in_rate or 0) + (topic.bytes_out_rate or 0),
        topic.records_in_rate or 0,
    )


def lagging(snapshot: ClusterSnapshot) -> list[GroupState]:
    """Those furthest behind in time, then in records."""
    behind = [group for group in snapshot.groups.values() if group.lag]
    return heapq.nlargest(LAGGING, behind, key=lambda group: (group.lag_ms or 0, group.lag or 0))


def disks(snapshot: ClusterSnapshot) -> list[Disk]:
    return [
        Disk(
            broker.broker_id,
            broker.size_bytes,
            broker.disk_used_bytes,
            broker.disk_total_bytes,
            broker.disk_free_bytes,
        )
        for broker in snapshot.brokers.values()
    ]


def last_runs() -> list[JobRun]:
    """The newest run of each job, newest first; exports are people's own and have their page."""
    newest = (
        JobRun.objects.exclude(job="export")
        .order_by()
        .values("job", "target")
        .annotate(newest=Max("id"))
        .values("newest")
    )
    return list(JobRun.objects.filter(id__in=newest).order_by("-queued_at")[:JOBS])
