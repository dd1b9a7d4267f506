"""Judges what was seen by a rule's figures: sources in, readings for the machine out. Pure."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping

from dashboard.alerting.disk_trend import NEVER
from dashboard.alerting.kinds import globs, seconds, times
from dashboard.alerting.machine import Level, Observed, Reading
from dashboard.alerting.sources import Disk, Sources
from dashboard.snapshots import ClusterSnapshot, GroupState, TopicState
from dashboard.templatetags.show import duration, size

MAX_TARGET_LENGTH = 300
LAG_CLEARS_BELOW = 0.9
DISK_CLEARS_ABOVE = 1.1
TREND_CLEARS_ABOVE = 1.25
MIB = 1024 * 1024
CLUSTER = "cluster"

Values = Mapping[str, int]
Matches = Callable[[str], bool]
Observer = Callable[[Sources, Values, Matches], Observed | None]


def observe(kind: str, sources: Sources, values: Values, targets: str) -> Observed | None:
    """None: what this kind watches cannot be seen now."""
    return _OBSERVERS[kind](sources, values, matcher(targets))


def matcher(targets: str) -> Matches:
    """Whether a name is one of the globs'; no globs are every name."""
    found = globs(targets)
    if not found or "*" in found:
        return lambda name: True
    pattern = re.compile("|".join(fnmatch.translate(glob) for glob in found))
    return lambda name: pattern.match(name) is not None


def _broker_silent(sources: Sources, values: Values, matches: Matches) -> Observed | None:
    snapshot = sources.snapshot
    if snapshot is None:
        return None
    if snapshot.stale_since_ms is not None:
        text = f"The cluster does not answer: {snapshot.failure or 'no reason known'}"
        silent = [Reading(CLUSTER, Level.BAD, text, since_ms=snapshot.stale_since_ms)]
        # Nobody tells of single brokers now: what was open stays open.
        known = {*snapshot.brokers, *_replica_ids(snapshot)}
        others = [Reading(f"broker-{one}", Level.UNKNOWN, "") for one in sorted(known)]
        return Observed(sources.now_ms, _only(matches, silent + others))
    readings = []
    for broker in snapshot.brokers.values():
        if broker.stale_since_ms is not None:
            text = f"Broker {broker.broker_id} at {broker.host}:{broker.port} does not answer"
            name = f"broker-{broker.broker_id}"
            readings.append(Reading(name, Level.BAD, text, since_ms=broker.stale_since_ms))
    for missing in sorted(_replica_ids(snapshot) - snapshot.brokers.keys()):
        text = f"Broker {missing} holds replicas and is not in the cluster"
        readings.append(Reading(f"broker-{missing}", Level.BAD, text))
    return Observed(snapshot.taken_ms, _only(matches, readings))


def _replica_ids(snapshot: ClusterSnapshot) -> set[int]:
    return {
        replica
        for topic in snapshot.topics.values()
        for partition in topic.partitions
        for replica in partition.replicas
    }


def _partition_observer(count: Callable[[TopicState], int], words: str) -> Observer:
    def observe_topics(sources: Sources, values: Values, matches: Matches) -> Observed | None:
        snapshot = sources.snapshot
        if snapshot is None or snapshot.stale_since_ms is not None:
            return None

        def readings() -> Iterator[Reading]:
            for name, topic in snapshot.topics.items():
                if not matches(name):
                    continue
                if topic.stale_since_ms is not None:
                    yield Reading(name, Level.UNKNOWN, "")
                elif found := count(topic):
                    text = f"{found} of {len(topic.partitions)} partitions of {name} {words}"
                    yield Reading(name, Level.BAD, text, found)

        return Observed(snapshot.taken_ms, list(readings()))

    return observe_topics


def _group_lag(sources: Sources, values: Values, matches: Matches) -> Observed | None:
    snapshot = sources.snapshot
    if snapshot is None or snapshot.stale_since_ms is not None or snapshot.groups_taken_ms is None:
        return None
    most_ms = values["lag_seconds"] * 1000
    readings = [
        _lag_reading(group, most_ms)
        for name, group in snapshot.groups.items()
        if matches(name) and not (group.lag == 0 and group.stale_since_ms is None)
    ]
    kept = [reading for reading in readings if reading is not None]
    return Observed(snapshot.groups_taken_ms, _with_safe_names(kept))


def _lag_reading(group: GroupState, most_ms: int) -> Reading | None:
    if group.lag_ms is None or group.stale_since_ms is not None:
        return Reading(group.group, Level.UNKNOWN, "")
    lag = f"{group.lag} records" if group.lag is not None else "records"
    text = f"Group {group.group} is {duration(group.lag_ms)} behind ({lag})"
    if group.lag_ms > most_ms:
        return Reading(group.group, Level.BAD, text, group.lag_ms / 1000)
    if group.lag_ms >= most_ms * LAG_CLEARS_BELOW:
        return Reading(group.group, Level.BETWEEN, text, group.lag_ms / 1000)
    return None


def _disk_floor(sources: Sources, values: Values, matches: Matches) -> Observed | None:
    if sources.disks is None:
        return None
    readings = []
    for disk in sources.disks:
        if not disk.is_known:
            readings.append(Reading(disk.name, Level.UNKNOWN, ""))
            continue
        floor = max(disk.total_bytes * values["free_percent"] / 100, values["free_mib"] * MIB)
        if (level := _below(disk.free_bytes, floor, DISK_CLEARS_ABOVE)) is not None:
            readings.append(Reading(disk.name, level, _free_text(disk), disk.free_bytes))
    return Observed(sources.now_ms, _only(matches, readings))


def _free_text(disk: Disk) -> str:
    share = 100 * disk.free_bytes / disk.total_bytes if disk.total_bytes else 0
    return f"{size(disk.free_bytes)} ({share:.1f} %) of {disk.name} is free"


def _disk_trend(sources: Sources, values: Values, matches: Matches) -> Observed | None:
    if sources.disks is None:
        return None
    readings = []
    for disk in sources.disks:
        hours = disk.hours_to_full
        if hours is None or not disk.is_known:
            readings.append(Reading(disk.name, Level.UNKNOWN, ""))
            continue
        level = _below(hours, values["hours"], TREND_CLEARS_ABOVE)
        if hours != NEVER and level is not None:
            left = duration(hours * 3_600_000)
            text = f"{disk.name} will be full in {left}; {size(disk.free_bytes)} is free"
            readings.append(Reading(disk.name, level, text, hours))
    return Observed(sources.now_ms, _only(matches, readings))


def _below(value: float, floor: float, clears_above: float) -> Level | None:
    if value < floor:
        return Level.BAD
    return Level.BETWEEN if value < floor * clears_above else None


def _scheduler_silent(sources: Sources, values: Values, matches: Matches) -> Observed | None:
    sign_ms = sources.scheduler_sign_ms
    if sign_ms is None:
        return None  # none runs here, or it has not begun
    silent_ms = sources.now_ms - sign_ms
    readings = []
    if silent_ms > values["silent_seconds"] * 1000:
        text = f"The scheduler has given no sign for {duration(silent_ms)}"
        since_ms = sign_ms
        readings = [Reading("scheduler", Level.BAD, text, silent_ms / 1000, since_ms)]
    return Observed(sources.now_ms, readings)


def _job_failed(sources: Sources, values: Values, matches: Matches) -> Observed | None:
    if sources.failing_jobs is None:
        return None
    readings = [
        Reading(
            job.name,
            Level.BAD,
            f"{job.name} failed {times(job.failure_count)} in a row: {job.error}",
            job.failure_count,
            job.since_ms,
        )
        for job in sources.failing_jobs
        if job.failure_count >= values["count"] and matches(job.name)
    ]
    return Observed(sources.now_ms, _with_safe_names(readings))


def _child_restarts(sources: Sources, values: Values, matches: Matches) -> Observed | None:
    if sources.restarts_ms is None:
        return None
    window_ms = values["within_minutes"] * 60_000
    readings = []
    for name, restarts_ms in sources.restarts_ms.items():
        recent = [at_ms for at_ms in restarts_ms if sources.now_ms - at_ms <= window_ms]
        if len(recent) >= values["count"]:
            within = seconds(values["within_minutes"] * 60)
            text = f"{name} was started again {times(len(recent))} within {within}"
            readings.append(Reading(name, Level.BAD, text, len(recent), min(recent)))
    return Observed(sources.now_ms, _only(matches, readings))


def _only(matches: Matches, readings: list[Reading]) -> list[Reading]:
    return [reading for reading in readings if matches(reading.target)]


def _with_safe_names(readings: list[Reading]) -> list[Reading]:
    """Names that clients chose may be longer than the column, or break a mail's header."""
    return [
        Reading(
            clean(reading.target, MAX_TARGET_LENGTH),
            reading.level,
            clean(reading.text, 500),
            reading.value,
            reading.since_ms,
        )
        for reading in readings
    ]


def clean(text: str, length: int) -> str:
    """One printable line of at most this many characters."""
    line = "".join(character if character.isprintable() else "\ufffd" for character in text)
    return line if len(line) <= length else line[: length - 1] + "…"


_OBSERVERS: dict[str, Observer] = {
    "broker_silent": _broker_silent,
    "partition_offline": _partition_observer(lambda topic: topic.offline_count, "are offline"),
    "under_min_isr": _partition_observer(
        lambda topic: topic.under_min_isr_count, "are under min.insync.replicas"
    ),
    "under_replicated": _partition_observer(
        lambda topic: topic.under_replicated_count, "are under-replicated"
    ),
    "group_lag": _group_lag,
    "disk_floor": _disk_floor,
    "disk_trend": _disk_trend,
    "scheduler_silent": _scheduler_silent,
    "job_failed": _job_failed,
    "child_restarts": _child_restarts,
}
