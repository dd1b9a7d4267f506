"""Is the cluster well, and if not, why: reasons from the newest snapshot and from alerts that fire,
the gravest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from django.urls import NoReverseMatch, reverse

from dashboard.broker_api import NodeReport, is_beyond_loopback
from dashboard.collecting.problems import MAX_TOLD, OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED
from dashboard.models import Severity
from dashboard.moves import GOOD_REPLICAS
from dashboard.selectors.alerts import OpenRow
from dashboard.snapshots import ClusterSnapshot
from dashboard.templatetags.show import duration, number, size

BAD, WARN, GOOD = "bad", "warn", "good"
WORDS = {GOOD: "Healthy", WARN: "Needs attention", BAD: "Unhealthy"}
_GRAVITY = {BAD: 0, WARN: 1}
NEARLY_FULL = 0.9
"""Of a disk."""
LATE_LOOP_MS = 50
LEAST_TICKS = 200


class Reason(NamedTuple):
    level: str
    text: str
    url: str = ""
    link: str = ""


class Health(NamedTuple):
    level: str
    words: str
    reasons: tuple[Reason, ...]


def health_of(snapshot: ClusterSnapshot | None, firing: Sequence[OpenRow] = ()) -> Health:
    found = [*_of_alerts(firing), *(_reasons(snapshot) if snapshot is not None else ())]
    reasons = tuple(sorted(found, key=lambda reason: _GRAVITY[reason.level]))
    level = reasons[0].level if reasons else GOOD
    if snapshot is None and level != BAD:
        return Health(WARN, "Not known yet", reasons)
    return Health(level, WORDS[level], reasons)


def _of_alerts(firing: Sequence[OpenRow]) -> Iterator[Reason]:
    """Of each severity how many, and the newest in words; what is for information is no reason."""
    for severity, level in ((Severity.CRITICAL, BAD), (Severity.WARNING, WARN)):
        found = [row for row in firing if row.alert.severity == severity]
        if not found:
            continue
        alerts = "alert fires" if len(found) == 1 else "alerts fire"
        silenced = sum(row.is_silenced for row in found)
        quiet = (
            "" if not silenced else ", silenced" if len(found) == 1 else f", {silenced} silenced"
        )
        newest = found[0].alert.text.rstrip(".")
        others = f" and {number(len(found) - 1)} more" if len(found) > 1 else ""
        yield Reason(
            level,
            f"{number(len(found))} {severity.label.lower()} {alerts}{quiet}: {newest}{others}.",
            _url("alerts"),
            "Alerts",
        )


def _reasons(snapshot: ClusterSnapshot) -> Iterator[Reason]:
    if snapshot.stale_since_ms is not None:
        yield Reason(BAD, f"No broker answers: {snapshot.failure}")
    yield from _of_partitions(snapshot)
    yield from _of_brokers(snapshot)
    yield from _of_internal_topics(snapshot)
    if snapshot.controller_id is None and snapshot.brokers:
        yield Reason(BAD, "There is no controller: nothing can be created or elected.")
    if snapshot.node is not None:
        yield from _of_node(snapshot.node)
    yield from _of_groups(snapshot)


def _of_partitions(snapshot: ClusterSnapshot) -> Iterator[Reason]:
    counts = problem_counts(snapshot)
    for kind, level, words in (
        (OFFLINE, BAD, "offline"),
        (UNDER_MIN_ISR, BAD, "under the minimum of in-sync replicas: acks=all is refused"),
        (UNDER_REPLICATED, WARN, "under-replicated"),
    ):
        if count := counts[kind]:
            verb = "partition is" if count == 1 else "partitions are"
            yield Reason(level, f"{number(count)} {verb} {words}.", _url("problems"), "Problems")


def _of_internal_topics(snapshot: ClusterSnapshot) -> Iterator[Reason]:
    """They are made when they are first needed, with replicas on the brokers that are there then."""
    wanted = min(GOOD_REPLICAS, sum(bool(broker.host) for broker in snapshot.brokers.values()))
    few = sorted(
        topic.name
        for topic in snapshot.topics.values()
        if topic.is_internal and 0 < topic.replication_factor < wanted
    )
    if few:
        verb = "has" if len(few) == 1 else "have"
        yield Reason(
            WARN,
            f"{', '.join(few)} {verb} fewer than {wanted} replicas, though there are brokers for them:"
            " `odradek cluster join --execute` gives them more.",
        )


def problem_counts(snapshot: ClusterSnapshot) -> Counter[str]:
    """Partitions by their gravest problem; where they are too many to be told, by topic."""
    if len(snapshot.problems) < MAX_TOLD:
        return Counter(problem.kind for problem in snapshot.problems)
    counts: Counter[str] = Counter()
    for topic in snapshot.topics.values():
        counts[OFFLINE] += topic.offline_count
        counts[UNDER_MIN_ISR] += topic.under_min_isr_count
        counts[UNDER_REPLICATED] += topic.under_replicated_count
    return counts


def _of_brokers(snapshot: ClusterSnapshot) -> Iterator[Reason]:
    for broker in snapshot.brokers.values():
        url, link = _url("broker", broker.broker_id), f"Broker {broker.broker_id}"
        if broker.stale_since_ms is not None:
            if snapshot.stale_since_ms is None:
                yield Reason(BAD, f"Broker {broker.broker_id}: {broker.failure}.", url, link)
        elif not broker.host:
            yield Reason(BAD, f"Broker {broker.broker_id} is not in the cluster.", url, link)
        for path in broker.offline_directories:
            yield Reason(BAD, f"Broker {broker.broker_id}: {path} has failed.", url, link)
        used, total = broker.disk_used_bytes, broker.disk_total_bytes
        if used is not None and total and used > NEARLY_FULL * total:
            free = size(broker.disk_free_bytes)
            yield Reason(
                WARN, f"Broker {broker.broker_id}: its disks are {used / total:.0%} full, {free} free.",
                url, link,
            )  # fmt: skip


def _of_node(node: NodeReport) -> Iterator[Reason]:
    if node.retention is not None and node.retention["is_scheduler_silent"]:
        yield Reason(
            WARN,
            "The scheduler is silent: nobody has asked for retention for two minutes. The broker"
            " runs it by itself; reports and clean-ups wait.",
            _url("jobs"),
            "Jobs",
        )
    for each in node.directories:
        if each.free_bytes is not None and each.free_bytes < each.floor_bytes:
            yield Reason(
                BAD,
                f"{each.path} has {size(each.free_bytes)} left, less than its floor of"
                f" {size(each.floor_bytes)}: producers are refused.",
            )
    if node.loop_ticks >= LEAST_TICKS and node.loop_lag_p99_ms > LATE_LOOP_MS:
        late = duration(node.loop_lag_p99_ms)
        yield Reason(WARN, f"The broker is overloaded: one request in a hundred waits {late}.")


def _of_groups(snapshot: ClusterSnapshot) -> Iterator[Reason]:
    stuck = [group for group in snapshot.groups.values() if group.status in ("stall", "stop")]
    if stuck:
        what = "group has stopped" if len(stuck) == 1 else "groups have stopped"
        yield Reason(
            WARN,
            f"{number(len(stuck))} consumer {what}: records wait and none is read.",
            _url("groups"),
            "Groups",
        )


def open_listeners(snapshot: ClusterSnapshot | None, *, is_plain: bool) -> tuple[str, ...]:
    """Listeners beyond loopback that let anybody in, as far as this cluster tells."""
    if snapshot is None:
        return ()
    if snapshot.node is not None:
        return snapshot.node.open_listeners
    if not is_plain:
        return ()
    # We came in without a name and a password; so can whoever reaches the same addresses.
    return tuple(
        f"{broker.host}:{broker.port}"
        for broker in snapshot.brokers.values()
        if broker.host and is_beyond_loopback(broker.host)
    )


def _url(name: str, *arguments: Any) -> str:
    try:
        return reverse(name, args=arguments)
    except NoReverseMatch:
        return ""
