"""What one broker told last of the logs that it holds: the collector's memory between ticks.

Filled by ``local_survey`` (control socket) or ``broker_survey`` (Kafka protocol), read when the
snapshot is put together. ``changed`` names the topics that a snapshot has to tell anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dashboard.quorum_wire import Followers


@dataclass(slots=True)
class TopicFacts:
    """By partition index, of the partitions that this broker leads; sizes of all that it holds."""

    starts: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    records_rate: float | None = None
    bytes_in_rate: float | None = None
    bytes_out_rate: float | None = None


@dataclass(slots=True)
class BrokerFacts:
    broker_id: int
    topics: dict[str, TopicFacts] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    lags: dict[tuple[str, int], int] = field(default_factory=dict)
    """By how many records its follower logs lag; only those that do."""
    followers: Followers = field(default_factory=dict)
    """Of partitions that it leads and that are short of replicas: who lags, and since when."""
    damaged: dict[tuple[str, int], str] = field(default_factory=dict)
    """Partitions that it cannot open, and why."""
    damaged_since: dict[tuple[str, int], int] = field(default_factory=dict)
    """When it found that out, where it tells."""
    size_bytes: int | None = None
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    offline_directories: tuple[str, ...] = ()
    stale_since_ms: int | None = None
    failure: str | None = None

    def of(self, topic: str) -> TopicFacts:
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicFacts()
        return found

    def forget(self, names: set[str]) -> None:
        """Topics that are gone."""
        for name in names:
            self.topics.pop(name, None)

    def quiet(self, told: set[str]) -> None:
        """Whatever was not told of has stood still since the last look."""
        for name, facts in self.topics.items():
            if name in told:
                continue
            if facts.records_rate or facts.bytes_in_rate or facts.bytes_out_rate:
                self.changed.add(name)
            if facts.records_rate is not None:
                facts.records_rate = 0.0
            if facts.bytes_in_rate is not None:
                facts.bytes_in_rate = 0.0
            if facts.bytes_out_rate is not None:
                facts.bytes_out_rate = 0.0
