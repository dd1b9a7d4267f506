"""What has to be remembered between two looks at groups, and how a group's state is made with it.

A window of samples for each partition of each group (``lag_status``), a track of each log's ends
(``lag_time``), and where nothing but transaction markers was found. Shared by the collector and
by who watches single groups: every call is guarded. Bounded by what groups have committed:
about 500 bytes a partition of a group, and 1 KB a partition at most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from threading import RLock
from typing import Final, NamedTuple

from broker.model.ids import TopicPartition
from dashboard.groups import MemberView
from dashboard.lag_status import OK, Sample, Verdict, Window, judge, worst
from dashboard.lag_time import EndTrack, Exactness
from dashboard.snapshots import (
    GroupPartitionState,
    GroupState,
    PartitionState,
    TopicState,
)

LATE_MS: Final = 20_000


class LogEnd(NamedTuple):
    offset: int
    stale_since_ms: int | None = None
    log_start_offset: int | None = None


Ends = Mapping[TopicPartition, LogEnd]


@dataclass(frozen=True, slots=True)
class GroupLook:
    """What is known of a group at one moment, before anything is made of it."""

    group: str
    state: str
    group_type: str | None
    coordinator: int | None
    assignor: str | None
    members: tuple[MemberView, ...]
    committed: Mapping[TopicPartition, int]
    taken_ms: int
    stale_since_ms: int | None = None
    failure: str | None = None


class Probe(NamedTuple):
    """A record worth reading, to learn its time and whether it is one."""

    key: TopicPartition
    offset: int


class GroupMemory:
    def __init__(self) -> None:
        self._lock = RLock()
        self._windows: dict[str, dict[TopicPartition, Window]] = {}
        self._tracks: dict[TopicPartition, EndTrack] = {}
        self._probed: dict[TopicPartition, int] = {}
        self._voids: dict[TopicPartition, tuple[int, int]] = {}
        """From here to there no record was found."""

    def see_ends(self, keys: Collection[TopicPartition], ends: Ends, now_ms: int) -> None:
        """The ends of logs at a tick. What is not among ``keys`` is forgotten."""
        with self._lock:
            for key in [key for key in self._tracks if key not in keys]:
                for table in (self._tracks, self._probed, self._voids):
                    table.pop(key, None)
            self._see(keys, ends, now_ms)

    def see_some_ends(self, ends: Ends, now_ms: int) -> None:
        """Between two ticks, for what somebody watches."""
        with self._lock:
            self._see(ends, ends, now_ms)

    def _see(self, keys: Iterable[TopicPartition], ends: Ends, now_ms: int) -> None:
        for key in keys:
            end = ends.get(key)
            if end is None or end.stale_since_ms is not None:
                continue
            track = self._tracks.get(key)
            if track is None:
                track = self._tracks[key] = EndTrack()
            track.see(end.offset, now_ms)

    def keep_groups(self, groups: Collection[str]) -> None:
        with self._lock:
            for name in [name for name in self._windows if name not in groups]:
                del self._windows[name]

    def forget_group(self, group: str) -> None:
        """Its offsets were moved on purpose: what was before says nothing any more."""
        with self._lock:
            self._windows.pop(group, None)

    # Records that were read

    def wanted_probes(self, states: Iterable[GroupState], limit: int) -> list[Probe]:
        """What is not as it should be first, then what is older than we have looked, then what is
        late by our estimate: it may be no record at all."""
        wanted: list[tuple[int, Probe]] = []
        with self._lock:
            for state in states:
                for one in state.partitions:
                    urgency = _urgency(one)
                    if urgency is None:
                        continue
                    key = TopicPartition(one.topic, one.partition)
                    if self._probed.get(key) == one.committed_offset:
                        continue
                    wanted.append((urgency, Probe(key, one.committed_offset or 0)))
        # One partition read by several groups: each offset in its turn.
        found: dict[TopicPartition, Probe] = {}
        for _, probe in sorted(wanted, key=lambda one: one[0]):
            found.setdefault(probe.key, probe)
            if len(found) >= limit:
                break
        return list(found.values())

    def learn_record(self, probe: Probe, offset: int, timestamp_ms: int) -> None:
        """The first record at or after the probe's offset."""
        with self._lock:
            track = self._tracks.get(probe.key)
            if track is None:
                return
            self._probed[probe.key] = probe.offset
            if timestamp_ms >= 0:
                track.anchor(offset, timestamp_ms)
            if offset > probe.offset:
                self._voids[probe.key] = (probe.offset, offset)

    def learn_void(self, probe: Probe, log_end_offset: int) -> None:
        """There was none up to this end. Asked again once the log has gone on."""
        with self._lock:
            if probe.key in self._tracks:
                self._voids[probe.key] = (probe.offset, log_end_offset)

    # States

    def state_of(self, look: GroupLook, ends: Ends, now_ms: int, *, is_new: bool) -> GroupState:
        """``is_new``: what is committed is known as of now, and counts as a sample. Lag is made anew
        in any case: a group that is not asked goes on falling behind."""
        owners = {key: member for member in look.members for key in member.assignment}
        keys = sorted({*look.committed, *owners})
        with self._lock:
            windows = self._windows.setdefault(look.group, {})
            for key in [key for key in windows if key not in look.committed]:
                del windows[key]
            partitions = tuple(
                self._partition(key, look, owners.get(key), ends.get(key), windows, now_ms, is_new)
                for key in keys
            )
            trends = [window.trend() for window in windows.values()]
        lags = [max(0, one.lag) for one in partitions if one.lag is not None]
        aged = [one for one in partitions if one.lag_ms is not None]
        oldest = max(aged, key=lambda one: one.lag_ms or 0, default=None)
        is_known = all(one.lag_ms_is != Exactness.AT_LEAST for one in aged)
        known_trends = [trend for trend in trends if trend is not None]
        return GroupState(
            group=look.group,
            state=look.state,
            group_type=look.group_type,
            coordinator=look.coordinator,
            assignor=look.assignor,
            member_count=len(look.members),
            topics=tuple(sorted({key.topic for key in keys})),
            partitions=partitions,
            lag=sum(lags) if lags else None,
            lag_ms=oldest.lag_ms if oldest is not None else None,
            lag_ms_is=_exactness(oldest, is_known),
            status=worst(one.status for one in partitions),
            trend=sum(known_trends) if known_trends else None,
            members=look.members,
            taken_ms=look.taken_ms or None,
            stale_since_ms=look.stale_since_ms,
            failure=look.failure,
        )

    def _partition(
        self,
        key: TopicPartition,
        look: GroupLook,
        owner: MemberView | None,
        end: LogEnd | None,
        windows: dict[TopicPartition, Window],
        now_ms: int,
        is_new: bool,
    ) -> GroupPartitionState:
        committed = look.committed.get(key)
        lag, lag_ms, lag_ms_is = None, None, None
        verdict: Verdict | None = None
        if committed is not None and end is not None:
            lag = end.offset - committed
            read_from = self._read_from(key, committed, end)
            window = windows.setdefault(key, Window())
            if is_new and end.stale_since_ms is None:
                window.add(Sample(now_ms, read_from, end.offset))
            verdict = judge(window, has_owner=owner is not None)
            lag_ms, lag_ms_is = self._age(key, read_from, end, now_ms)
        return GroupPartitionState(
            key.topic,
            key.partition,
            committed,
            end.offset if end is not None else None,
            lag,
            lag_ms,
            lag_ms_is,
            owner.member_id if owner is not None else None,
            owner.client_id if owner is not None else None,
            owner.host if owner is not None else None,
            verdict.status if verdict is not None else None,
            verdict.reason if verdict is not None else "",
            end.stale_since_ms if end is not None else look.taken_ms,
        )

    def _read_from(self, key: TopicPartition, committed: int, end: LogEnd) -> int:
        """Where reading would go on: behind what holds no records. (Not at the start of a log that
        was cut below: a start that moves must not look like a consumer that does.)"""
        low, high = self._voids.get(key, (0, 0))
        return high if low <= committed < high <= end.offset else committed

    def _age(
        self, key: TopicPartition, read_from: int, end: LogEnd, now_ms: int
    ) -> tuple[int | None, str | None]:
        """Of the first record that is not read yet."""
        if read_from >= end.offset:
            return 0, Exactness.EXACT
        track = self._tracks.get(key)
        first = max(read_from, end.log_start_offset or 0)
        appended = track.time_of(first) if track is not None else None
        if appended is None:
            return None, None
        return max(0, now_ms - appended.at_ms), appended.exactness


def _urgency(one: GroupPartitionState) -> int | None:
    """Of reading its first unread record; None: not worth it."""
    if one.committed_offset is None or not one.lag or one.stale_since_ms or not one.lag_ms_is:
        return None
    if one.status not in (None, OK.status):
        return 0
    if one.lag_ms_is == Exactness.AT_LEAST:
        return 1
    is_late = (one.lag_ms or 0) >= LATE_MS
    return 2 if is_late and one.lag_ms_is == Exactness.ABOUT else None


def _exactness(oldest: GroupPartitionState | None, is_known: bool) -> str | None:
    """Of a whole group: one partition that is older than we have looked makes it so."""
    if oldest is None:
        return None
    return oldest.lag_ms_is if is_known else Exactness.AT_LEAST


def ends_of(
    topics: Mapping[str, TopicState], keys: Iterable[TopicPartition]
) -> dict[TopicPartition, LogEnd]:
    """From the snapshot of this tick; without partitions whose end was never told."""
    found = {}
    for key in keys:
        topic = topics.get(key.topic)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            continue
        partition: PartitionState = topic.partitions[key.partition]
        if partition.high_watermark is not None:
            since_ms = partition.stale_since_ms or topic.stale_since_ms
            found[key] = LogEnd(partition.high_watermark, since_ms, partition.log_start_offset)
    return found


memory = GroupMemory()
"""Of this process."""
