"""What the collector last saw of the cluster: immutable values that every page reads.

A part that could not be read keeps its last value and says since when it is stale; pages show that
beside each row instead of failing. ``None`` is what this cluster does not tell (DESIGN: only an
Odradek broker tells rates out, segments, disks). Times are wall-clock milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Condition, Event

from broker.clock import SystemClock
from dashboard.broker_api import NodeReport
from dashboard.groups import MemberView

STALE_AFTER_MS = 15_000
"""A snapshot this old is called old on the page while somebody looks."""
WATCHED_PAUSE_MS = 10_000
"""From one tick to the next while somebody looks, unless the appliance is set otherwise."""
FRESH_WAIT_S = 1.5
"""So long the first who looks after a pause waits for a new one: a tick is over by then, whatever
brokers do."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    broker_id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool
    leader_count: int
    replica_count: int
    size_bytes: int | None = None
    """Of all logs that it holds."""
    stale_since_ms: int | None = None
    """It did not answer since then; None: it answered at the last tick."""
    failure: str | None = None
    """Why it did not answer."""
    disk_total_bytes: int | None = None
    disk_free_bytes: int | None = None
    offline_directories: tuple[str, ...] = ()

    @property
    def disk_used_bytes(self) -> int | None:
        if self.disk_total_bytes is None or self.disk_free_bytes is None:
            return None
        return self.disk_total_bytes - self.disk_free_bytes


@dataclass(frozen=True, slots=True)
class PartitionState:
    index: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    log_start_offset: int | None = None
    high_watermark: int | None = None
    size_bytes: int | None = None
    stale_since_ms: int | None = None
    failure: str | None = None
    """Why its leader cannot open it."""

    @property
    def is_offline(self) -> bool:
        return self.leader is None or self.failure is not None

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)

    @property
    def record_count(self) -> int | None:
        """Offsets held; fewer records where compaction or transactions left holes."""
        if self.high_watermark is None or self.log_start_offset is None:
            return None
        return max(0, self.high_watermark - self.log_start_offset)


@dataclass(frozen=True, slots=True)
class TopicState:
    name: str
    topic_id: str | None
    is_internal: bool
    partitions: tuple[PartitionState, ...]
    min_isr: int = 1
    record_count: int | None = None
    size_bytes: int | None = None
    """All replicas that could be asked."""
    records_in_rate: float | None = None
    """Per second, from offsets; None until two ticks have seen it."""
    bytes_in_rate: float | None = None
    bytes_out_rate: float | None = None
    cleanup_policy: str | None = None
    stale_since_ms: int | None = None

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0

    @property
    def offline_count(self) -> int:
        return sum(partition.is_offline for partition in self.partitions)

    @property
    def under_replicated_count(self) -> int:
        return sum(partition.is_under_replicated for partition in self.partitions)

    @property
    def under_min_isr_count(self) -> int:
        return sum(len(partition.isr) < self.min_isr for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class GroupPartitionState:
    topic: str
    partition: int
    committed_offset: int | None
    log_end_offset: int | None
    lag: int | None
    lag_ms: int | None = None
    """Age of the first record that the group has not read."""
    lag_ms_is: str | None = None
    """How exact that is, by the words of ``dashboard.lag_time``: exact, about, at least."""
    member_id: str | None = None
    client_id: str | None = None
    host: str | None = None
    status: str | None = None
    reason: str = ""
    """Of the status, in words."""
    stale_since_ms: int | None = None
    """The end of its log is not known since then."""


@dataclass(frozen=True, slots=True)
class GroupState:
    """``status`` by the rules of ``dashboard.lag_status``: ok, warn, stall, stop, rewind."""

    group: str
    state: str
    group_type: str | None
    coordinator: int | None
    assignor: str | None
    member_count: int
    topics: tuple[str, ...]
    partitions: tuple[GroupPartitionState, ...]
    lag: int | None
    lag_ms: int | None = None
    """Of its partition that is furthest behind."""
    lag_ms_is: str | None = None
    status: str | None = None
    trend: float | None = None
    """Change of lag in records a second, over the last minutes."""
    members: tuple[MemberView, ...] = ()
    taken_ms: int | None = None
    """When its coordinator was asked last: with very many groups not at each tick."""
    stale_since_ms: int | None = None
    failure: str | None = None
    """What its coordinator said instead of an answer."""

    @property
    def reason(self) -> str:
        """Why its status is what it is: of its worst partition."""
        worst = next((one for one in self.partitions if one.status == self.status), None)
        if worst is None or not worst.reason:
            return ""
        return f"{worst.topic}-{worst.partition}: {worst.reason}"


@dataclass(frozen=True, slots=True)
class LaggingReplica:
    broker_id: int
    lag: int | None
    """In records, as the leader tells it, else its own broker; None: neither does."""
    since_ms: int
    is_since_known: bool
    """False: it was so when the dashboard first looked, or when its leader began to lead."""


@dataclass(frozen=True, slots=True)
class PartitionProblem:
    """A partition that is ``offline``, ``under_min_isr`` or ``under_replicated``: the gravest."""

    kind: str
    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int
    since_ms: int
    is_since_known: bool
    lagging: tuple[LaggingReplica, ...] = ()
    reason: str = ""
    stale_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """``kind``: failover, leaders_moved, leaders_lost, controller, broker_gone or broker_came.

    ``at_ms``: the look that saw it first."""

    at_ms: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    taken_ms: int
    cluster_id: str | None
    controller_id: int | None
    brokers: Mapping[int, BrokerState]
    topics: Mapping[str, TopicState]
    """Sorted by name."""
    groups: Mapping[str, GroupState] = field(default_factory=dict)
    groups_taken_ms: int | None = None
    failure: str | None = None
    """Why the last tick saw nothing; everything above is then as old as ``taken_ms``."""
    stale_since_ms: int | None = None
    problems: tuple[PartitionProblem, ...] = ()
    """The gravest first."""
    events: tuple[ClusterEvent, ...] = ()
    """The newest first."""
    node: NodeReport | None = None
    """The Odradek broker of this node; None: not told by this cluster."""
    size_bytes: int | None = None
    records_in_rate: float | None = None
    bytes_in_rate: float | None = None
    bytes_out_rate: float | None = None
    records_out_rate: float | None = None

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())


class SnapshotShelf:
    """The newest snapshot, and whether anybody looks: the collector's pace follows."""

    WATCHED_FOR_MS = 30_000

    def __init__(self, pace_ms: int = WATCHED_PAUSE_MS) -> None:
        self.pace_ms = pace_ms
        """From one tick to the next while somebody looks."""
        self._changed = Condition()
        self._snapshot: ClusterSnapshot | None = None
        self._looked_ms: int | None = None
        self._waited_for: int | None = None
        """When that was taken for whose successor somebody waited in vain: it is not waited for again,
        or each page would be that slow."""
        self.is_followed = False
        """Whether a collector renews what lies here."""
        self.has_changed = False
        self.woken = Event()
        """The next tick shall come at once."""

    def put(self, snapshot: ClusterSnapshot) -> None:
        self.update(lambda _: snapshot)

    def look(
        self, now_ms: int, *, wait_s: float = 0, needs_groups: bool = False
    ) -> ClusterSnapshot | None:
        """None before the first tick. Somebody looks: the next ticks come sooner.

        An old snapshot is asked for anew and waited for, as long as ``wait_s`` and once: with
        ``needs_groups`` until its groups are new, too. While ticks come in their usual pace nobody waits,
        though very many groups may be told some seconds later than the rest.
        """
        with self._changed:
            self._looked_ms = now_ms
            snapshot = self._snapshot
            if snapshot is not None and not _is_old(snapshot, now_ms):
                if now_ms - snapshot.taken_ms > 2 * self.pace_ms:
                    self.woken.set()
                return snapshot
            self.woken.set()
            if snapshot is None or not self.is_followed or self._waited_for == snapshot.taken_ms:
                return snapshot

            def is_new() -> bool:
                newest = self._snapshot
                return newest is None or not _is_old(newest, now_ms, needs_groups=needs_groups)

            if not self._changed.wait_for(is_new, wait_s):
                self._waited_for = snapshot.taken_ms
            return self._snapshot

    def peek(self) -> ClusterSnapshot | None:
        """Without counting as somebody who looks."""
        with self._changed:
            return self._snapshot

    def amend(self, change: Callable[[ClusterSnapshot], ClusterSnapshot]) -> None:
        """What was just changed here is seen at once; the next tick tells everything anew."""
        with self._changed:
            if self._snapshot is not None:
                self._snapshot = change(self._snapshot)
            self.has_changed = True
        self.woken.set()

    def update(self, change: Callable[[ClusterSnapshot | None], ClusterSnapshot]) -> None:
        """For the collector: a new snapshot made out of the one that lies here now."""
        with self._changed:
            self._snapshot = change(self._snapshot)
            self._changed.notify_all()

    def take_changed(self) -> bool:
        """Whether something was changed here since this was asked last."""
        with self._changed:
            was, self.has_changed = self.has_changed, False
        return was

    def is_watched(self, now_ms: int) -> bool:
        with self._changed:
            looked_ms = self._looked_ms
        return looked_ms is not None and now_ms - looked_ms < self.WATCHED_FOR_MS


def _is_old(snapshot: ClusterSnapshot, now_ms: int, *, needs_groups: bool = False) -> bool:
    """What is marked as stale is not called old: the cluster was asked, and does not answer."""
    oldest_ms = snapshot.taken_ms
    if needs_groups:
        oldest_ms = min(oldest_ms, snapshot.groups_taken_ms or 0)
    return snapshot.stale_since_ms is None and now_ms - oldest_ms > STALE_AFTER_MS


shelf = SnapshotShelf()
"""Of this process."""


def look_now(*, needs_groups: bool = False) -> ClusterSnapshot | None:
    """What a page shows: the newest snapshot of this process, looked at by somebody."""
    return shelf.look(SystemClock().wall_ms(), wait_s=FRESH_WAIT_S, needs_groups=needs_groups)
