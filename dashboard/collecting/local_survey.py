"""The broker of this data directory, asked through its control socket: only what has changed.

One walk tells offsets, sizes and counters of the topics that something happened to since the last
walk; thousands of idle topics cost the broker next to nothing. Rates come from counters.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, Final

from broker.clock import Clock
from dashboard.broker_api import BrokerApi, NodeReport
from dashboard.collecting.facts import BrokerFacts, TopicFacts

REST_S: Final = 0.004
"""Between two pages: the broker's loop serves its clients meanwhile."""


@dataclass(slots=True)
class Traffic:
    """Rates of the whole broker, per second."""

    bytes_in: float | None = None
    bytes_out: float | None = None
    records_in: float | None = None
    records_out: float | None = None


@dataclass(slots=True)
class LocalSurvey:
    api: BrokerApi
    clock: Clock
    node: NodeReport | None = None
    """As it answered last; None when there is no control socket."""
    traffic: Traffic = field(default_factory=Traffic)
    _since: int = 0
    _loop_base: tuple[int, ...] | None = None
    """Counts at the last look: lag is told of the time since then."""
    _asked_ms: int | None = None
    _counters: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def ask_node(self) -> NodeReport | None:
        """Raises OSError when a broker is there and does not answer."""
        before, found = self.node, self.api.node()
        if found is None or before is None or found.started_ms != before.started_ms:
            self._forget()
        if found is None:
            self.node = None
            return None
        counts = found.loop_counts
        if self._loop_base is not None and sum(counts) > sum(self._loop_base):
            counts = tuple(
                max(0, new - old) for new, old in zip(counts, self._loop_base, strict=True)
            )
        self._loop_base = found.loop_counts
        self.node = replace(found, loop_counts=counts)
        return self.node

    def _forget(self) -> None:
        """Another life of the broker: it counts from zero."""
        self._since, self._asked_ms = 0, None
        self._loop_base = None
        self._counters.clear()
        self.traffic = Traffic()

    def look(self, facts: BrokerFacts) -> None:
        """Bring ``facts`` up to date. Raises OSError."""
        node = self.node
        assert node is not None
        now_ms = self.clock.monotonic_ms()
        elapsed_s = None if self._asked_ms is None else max(now_ms - self._asked_ms, 1) / 1000
        told: set[str] = set()
        begun: tuple[int, int] | None = None
        deleted = 0
        for page in self.api.topics(self._since):
            begun = begun or (page.now, page.deleted)
            deleted = page.deleted
            for row in page.rows:
                told.add(row["name"])
                self._take(facts, row, page.counters, elapsed_s)
            time.sleep(REST_S)
        facts.quiet(told)
        facts.changed |= told
        if begun is not None and begun[1] == deleted:
            self._since = begun[0]
        self._take_node(facts, node, elapsed_s)
        self._asked_ms = now_ms

    def _take(
        self,
        facts: BrokerFacts,
        row: dict[str, Any],
        names: tuple[str, ...],
        elapsed_s: float | None,
    ) -> None:
        name = row["name"]
        topic = facts.of(name)
        if row["partitions"] is not None:
            topic.starts = {one[0]: one[1] for one in row["partitions"]}
            topic.ends = {one[0]: one[2] for one in row["partitions"]}
            topic.sizes = {one[0]: one[3] for one in row["partitions"]}
        counters = tuple(row["counters"])
        before = self._counters.get(name)
        self._counters[name] = counters
        if elapsed_s is None:
            _set_rates(topic, 0.0, 0.0, 0.0)
            return
        moved = dict(zip(names, _moved(before, counters), strict=True))
        _set_rates(
            topic,
            moved["records_in"] / elapsed_s,
            moved["bytes_in"] / elapsed_s,
            moved["bytes_out"] / elapsed_s,
        )

    def _take_node(self, facts: BrokerFacts, node: NodeReport, elapsed_s: float | None) -> None:
        directories = {each.path: each for each in node.directories}
        known = [each for each in directories.values() if each.total_bytes is not None]
        # Directories on one volume share its room.
        volumes = {(each.total_bytes, each.free_bytes) for each in known}
        facts.disk_total_bytes = sum(total or 0 for total, _ in volumes) if known else None
        facts.disk_free_bytes = sum(free or 0 for _, free in volumes) if known else None
        facts.offline_directories = tuple(each.path for each in node.directories if each.is_offline)
        facts.size_bytes = sum(sum(topic.sizes.values()) for topic in facts.topics.values())
        damaged = self.api.offline() if node.offline_partition_count else None
        found = {(one["topic"], one["partition"]): one["reason"] for one in damaged or ()}
        facts.changed |= {name for name, _ in found.keys() ^ facts.damaged.keys()}
        facts.damaged = found
        facts.damaged_since = {
            (one["topic"], one["partition"]): one["since_ms"]
            for one in damaged or ()
            if one.get("since_ms")
        }
        traffic = node.traffic
        before = self._counters.get("")
        if traffic is None:
            return
        names = ("bytes_in", "bytes_out", "records_in", "records_out")
        now = tuple(traffic[name] for name in names)
        self._counters[""] = now
        if elapsed_s is not None and before is not None:
            self.traffic = Traffic(*(moved / elapsed_s for moved in _moved(before, now)))


def _moved(before: tuple[int, ...] | None, now: tuple[int, ...]) -> tuple[int, ...]:
    """Since the last look; a topic that was made anew counts from zero."""
    if before is None or any(new < old for old, new in zip(before, now, strict=True)):
        return now
    return tuple(new - old for old, new in zip(before, now, strict=True))


def _set_rates(topic: TopicFacts, records: float, bytes_in: float, bytes_out: float) -> None:
    topic.records_rate = records
    topic.bytes_in_rate = bytes_in
    topic.bytes_out_rate = bytes_out
