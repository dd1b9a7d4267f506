"""Is a cluster healthy? Reads what the gateway tells and says what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from appliance.lagging import Lagging
from appliance.output import Column, Table, render_description
from dashboard.cluster import ClusterView, PartitionView, TopicView

SHOWN_PARTITIONS = 20
"""Text lists so many troubled partitions; documents hold all."""


@dataclass(frozen=True, slots=True)
class Health:
    """Partitions are named ``topic-3``, as in Kafka's own log."""

    cluster_id: str | None
    controller: int | None
    brokers: tuple[int, ...]
    expected_brokers: tuple[int, ...]
    leaderless: tuple[str, ...]
    under_replicated: tuple[str, ...]
    under_min_isr: tuple[str, ...]
    lagging: tuple[Lagging, ...] = ()
    failed_directories: tuple[str, ...] = ()

    @property
    def reasons(self) -> list[str]:
        missing = sorted(set(self.expected_brokers) - set(self.brokers))
        found = []
        if self.controller is None:
            found.append("there is no controller")
        if missing:
            found.append(f"brokers are missing: {', '.join(map(str, missing))}")
        for partitions, words in (
            (self.leaderless, "without a leader"),
            (self.under_replicated, "with replicas behind"),
            (self.under_min_isr, "below min.insync.replicas"),
        ):
            if partitions:
                noun = "partition" if len(partitions) == 1 else "partitions"
                found.append(f"{len(partitions)} {noun} {words}")
        if self.failed_directories:
            found.append(f"log directories have failed: {', '.join(self.failed_directories)}")
        return found

    @property
    def is_healthy(self) -> bool:
        return not self.reasons

    def as_object(self) -> dict[str, Any]:
        return {
            "healthy": self.is_healthy,
            "reasons": self.reasons,
            "cluster_id": self.cluster_id,
            "controller": self.controller,
            "brokers": list(self.brokers),
            "brokers_expected": list(self.expected_brokers),
            "leaderless": list(self.leaderless),
            "under_replicated": list(self.under_replicated),
            "under_min_isr": list(self.under_min_isr),
            "lagging": [each.as_object() for each in self.lagging],
            "failed_directories": list(self.failed_directories),
        }

    def as_table(self, now_ms: int) -> Table:
        row = {**self.as_object(), "lagging": self._lagging_words(now_ms)}
        return Table([Column(key) for key in row], [row])

    def _lagging_words(self, now_ms: int) -> tuple[str, ...]:
        return tuple(each.as_words(now_ms) for each in self.lagging)

    def as_text(self, now_ms: int) -> str:
        count = f"{len(self.brokers)}/{len(self.expected_brokers)}"
        lines: list[tuple[str, Any]] = [
            ("HEALTHY", self.is_healthy),
            ("REASONS", "; ".join(self.reasons)),
            ("CLUSTER-ID", self.cluster_id),
            ("CONTROLLER", self.controller),
            ("BROKERS", f"{count} ({', '.join(map(str, self.brokers))})"),
            (f"LEADERLESS ({len(self.leaderless)})", _listed(self.leaderless)),
            (f"UNDER-REPLICATED ({len(self.under_replicated)})", _listed(self.under_replicated)),
            (f"UNDER-MIN-ISR ({len(self.under_min_isr)})", _listed(self.under_min_isr)),
        ]
        if self.lagging:
            words = self._lagging_words(now_ms)
            lines.append((f"LAGGING ({len(words)})", _listed(words)))
        return render_description(lines, [])


def judge(cluster: ClusterView, min_isr: Mapping[str, int]) -> Health:
    """``min_isr``: min.insync.replicas by topic; topics that are not in it are not judged by it."""
    alive = tuple(sorted(broker.broker_id for broker in cluster.brokers))
    replicas = {
        replica
        for topic in cluster.topics
        for partition in topic.partitions
        for replica in partition.replicas
    }

    def is_under_min_isr(topic: TopicView, partition: PartitionView) -> bool:
        return len(partition.isr) < min_isr.get(topic.name, 0)

    return Health(
        cluster_id=cluster.cluster_id,
        controller=cluster.controller_id,
        brokers=alive,
        expected_brokers=tuple(sorted(replicas | set(alive))),
        leaderless=_where(cluster.topics, lambda _, p: p.is_leaderless),
        under_replicated=_where(cluster.topics, lambda _, p: p.is_under_replicated),
        under_min_isr=_where(cluster.topics, is_under_min_isr),
    )


def _where(
    topics: Iterable[TopicView], is_so: Callable[[TopicView, PartitionView], bool]
) -> tuple[str, ...]:
    return tuple(
        f"{topic.name}-{partition.index}"
        for topic in topics
        for partition in topic.partitions
        if is_so(topic, partition)
    )


def _listed(partitions: tuple[str, ...]) -> str:
    shown = ", ".join(partitions[:SHOWN_PARTITIONS])
    hidden = len(partitions) - SHOWN_PARTITIONS
    return f"{shown} and {hidden} more" if hidden > 0 else shown
