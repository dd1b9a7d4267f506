"""Changes of the cluster that were not made with this dashboard, written into the audit log.

After each good tick the collector shows us its snapshot. Topics that came, went or got partitions are
found by comparison with the one before; settings (and whether a name is still the same topic) by
asking for those of a bounded number of topics a tick, in turn, and of all brokers. What is found waits until a later tick: by then a change of our own
has its entry, also one made by another process of ours, and only what nobody here asked for is left. Who
it was cannot be told: Kafka does not say. What happens while the web process is down is not seen.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import close_old_connections
from django.db.models import Q

from broker.clock import Clock
from dashboard import times
from dashboard.cluster import DEFAULT_BROKER, ConfigSource, ConfigView, KafkaFailure, TopicView
from dashboard.gateway import Gateway
from dashboard.models import AuditEntry
from dashboard.services import audit
from dashboard.snapshots import ClusterSnapshot

logger = logging.getLogger(__name__)

TOPICS_PER_LOOK = 100
"""Whose settings are asked for at one tick: ten thousand topics take a hundred ticks."""
WAIT_MS = 8_000
"""Longer than a change made on a page may take (``clusters.PAGE_TIMEOUT_S``)."""
SLACK_MS = 10_000
"""An entry of our own may be older than the look before the one that saw its effect."""
ONE_BY_ONE = 100
"""More changes of one kind at one look than this share an entry."""
ACTOR = audit.Actor("outside", AuditEntry.Source.OUTSIDE)
_UNCERTAIN = ("TIMED_OUT", "REQUEST_TIMED_OUT", "MSG_TIMED_OUT", "NOT_CONNECTED", "TRANSPORT")
"""Refusals after which the change may have been made all the same."""
Settings = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered of a topic."""

    topic_id: str | None
    partitions: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference, until it is known whose it is. ``since_ms``: the last look that did not see it."""

    action: str
    target: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    since_ms: int
    seen_ms: int


class OutsideChanges:
    """One for a collector; called by its thread alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._forget(None)

    def _forget(self, cluster_id: str | None) -> None:
        """Of another cluster nothing is known, and nothing of the old one was deleted."""
        self._cluster_id = cluster_id
        self._topics: dict[str, Known] | None = None
        self._looked_ms = 0
        self._settings: dict[tuple[str, str], tuple[int, Settings]] = {}
        """By ``topic`` or ``broker`` and the name: when they were read, and what was set."""
        self._asked_last = ""
        self._in_turn: list[str] = []
        self._waiting: list[Finding] = []

    def look(self, snapshot: ClusterSnapshot, gateway: Gateway) -> None:
        """Never raises: the collector goes on."""
        try:
            self._look(snapshot, gateway)
        except KafkaFailure as failure:
            logger.info("changes from outside were not looked for: %s", failure)
        except Exception:
            logger.exception("looking for changes from outside failed")
        finally:
            close_old_connections()

    def _look(self, snapshot: ClusterSnapshot, gateway: Gateway) -> None:
        now_ms = self._clock.wall_ms()
        if snapshot.cluster_id != self._cluster_id:
            self._forget(snapshot.cluster_id)
        self._compare_topics(snapshot, gateway)
        self._compare_settings(snapshot, gateway, now_ms)
        self._looked_ms = now_ms
        self._settle(now_ms)

    def _find(self, action: str, target: str, before: Any, after: Any, since_ms: int) -> None:
        now_ms = self._clock.wall_ms()
        self._waiting.append(Finding(action, target, before, after, since_ms, now_ms))

    def _compare_topics(self, snapshot: ClusterSnapshot, gateway: Gateway) -> None:
        known = self._topics
        names = [name for name, topic in snapshot.topics.items() if not topic.is_internal]
        self._in_turn = self._next_topics(sorted(names))
        ids = {
            name: view.topic_id
            for name, view in (gateway.topics(self._in_turn) if self._in_turn else {}).items()
            if isinstance(view, TopicView)
        }
        seen = {}
        for name in names:
            topic = snapshot.topics[name]
            old_id = known[name].topic_id if known is not None and name in known else None
            topic_id = topic.topic_id or ids.get(name) or old_id
            seen[name] = Known(topic_id, len(topic.partitions))
        self._topics = seen
        if known is None:
            return
        for name, now in seen.items():
            old = known.get(name)
            if old is None:
                self._find("topic.create", name, None, _told(now), self._looked_ms)
            elif old.topic_id is not None and old.topic_id != now.topic_id:
                self._find("topic.delete", name, _told(old), None, self._looked_ms)
                self._find("topic.create", name, None, _told(now), self._looked_ms)
            elif now.partitions > old.partitions:
                before, after = {"partitions": old.partitions}, {"partitions": now.partitions}
                self._find("topic.partitions", name, before, after, self._looked_ms)
        for name, old in known.items():
            if name not in seen:
                self._find("topic.delete", name, _told(old), None, self._looked_ms)

    def _compare_settings(self, snapshot: ClusterSnapshot, gateway: Gateway, now_ms: int) -> None:
        if self._in_turn:
            self._take("topic", gateway.topic_configs(self._in_turn), now_ms)
        brokers = [DEFAULT_BROKER, *(str(broker_id) for broker_id in snapshot.brokers)]
        self._take("broker", gateway.broker_configs(brokers), now_ms)
        for kind, name in list(self._settings):
            if kind == "topic" and name not in (self._topics or ()):
                del self._settings[kind, name]

    def _next_topics(self, names: list[str]) -> list[str]:
        """The next in turn, by name: those that come and go do not disturb the turn."""
        start = bisect_right(names, self._asked_last)
        chosen = (names[start:] + names[:start])[:TOPICS_PER_LOOK]
        if chosen:
            self._asked_last = chosen[-1]
        return chosen

    def _take(
        self, kind: str, found: Mapping[str, list[ConfigView] | KafkaFailure], now_ms: int
    ) -> None:
        for name, views in found.items():
            if isinstance(views, KafkaFailure):
                continue
            now = {
                view.name: view.value
                for view in views
                if view.source is _source_of(kind, name) and not view.is_sensitive
            }
            earlier = self._settings.get((kind, name))
            self._settings[kind, name] = (now_ms, now)
            if earlier is None or earlier[1] == now:
                continue
            since_ms, then = earlier
            changed = [
                key for key in sorted(then.keys() | now.keys()) if then.get(key) != now.get(key)
            ]
            # A broker's settings are audited one by one, a topic's together.
            for target, keys in _targets(kind, name, changed):
                before = {key: then.get(key) for key in keys}
                after = {key: now.get(key) for key in keys}
                self._find(f"{kind}.settings", target, before, after, since_ms)

    def _settle(self, now_ms: int) -> None:
        """Decide about what has waited long enough."""
        ripe = [finding for finding in self._waiting if now_ms - finding.seen_ms >= WAIT_MS]
        if not ripe:
            return
        self._waiting = [finding for finding in self._waiting if finding not in ripe]
        own = _own_entries(min(finding.since_ms for finding in ripe) - SLACK_MS)
        foreign = [left for finding in ripe if (left := _not_ours(finding, own)) is not None]
        by_action: dict[str, list[Finding]] = {}
        for finding in foreign:
            by_action.setdefault(finding.action, []).append(finding)
        for action, findings in by_action.items():
            if len(findings) > ONE_BY_ONE:
                _record_many(action, findings)
            else:
                for finding in findings:
                    _record(finding)


def _source_of(kind: str, name: str) -> ConfigSource:
    """What is set on this very thing: what a broker takes from the cluster's defaults is told there."""
    if kind == "topic":
        return ConfigSource.DYNAMIC_TOPIC_CONFIG
    if name == DEFAULT_BROKER:
        return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return ConfigSource.DYNAMIC_BROKER_CONFIG


def _targets(kind: str, name: str, keys: list[str]) -> list[tuple[str, list[str]]]:
    """As our own entries name them (``services.topics``, ``services.brokers``)."""
    if kind == "topic":
        return [(name, keys)]
    whose = "all brokers" if name == DEFAULT_BROKER else f"broker {name}"
    return [(f"{whose}: {key}", [key]) for key in keys]


def _told(topic: Known) -> dict[str, Any]:
    return {"partitions": topic.partitions, "topic_id": topic.topic_id}


def _own_entries(since_ms: int) -> dict[str, list[AuditEntry]]:
    """What was done here since then, by target."""
    maybe_done = Q(failure="")
    for code in _UNCERTAIN:
        maybe_done |= Q(failure__startswith=code)
    entries = AuditEntry.objects.filter(
        maybe_done,
        Q(action__startswith="topic.") | Q(action__startswith="broker."),
        at__gte=times.to_datetime(max(0, since_ms)),
    ).exclude(source=AuditEntry.Source.OUTSIDE)
    found: dict[str, list[AuditEntry]] = {}
    for entry in entries:
        found.setdefault(entry.target, []).append(entry)
    return found


def _not_ours(finding: Finding, own: Mapping[str, list[AuditEntry]]) -> Finding | None:
    """What is left of it when our own changes are taken away; None: nothing."""
    since = times.to_datetime(max(0, finding.since_ms - SLACK_MS))
    entries = [entry for entry in own.get(finding.target, ()) if entry.at >= since]
    if not finding.action.endswith(".settings"):
        return None if any(entry.action == finding.action for entry in entries) else finding
    before, after = finding.before or {}, finding.after or {}
    keys = [key for key in after if not any(_set_here(entry, key, after[key]) for entry in entries)]
    if not keys:
        return None
    return Finding(
        finding.action,
        finding.target,
        {key: before.get(key) for key in keys},
        {key: after.get(key) for key in keys},
        finding.since_ms,
        finding.seen_ms,
    )


def _set_here(entry: AuditEntry, key: str, value: str | None) -> bool:
    """Whether this entry of ours left the key at this value; None is one that was reset."""
    after = entry.after if isinstance(entry.after, dict) else {}
    after = after.get("settings", after)
    return isinstance(after, dict) and key in after and (value is None or after[key] == value)


def _record(finding: Finding) -> None:
    audit.record(ACTOR, finding.action, finding.target, before=finding.before, after=finding.after)


def _record_many(action: str, findings: Iterable[Finding]) -> None:
    names = [finding.target for finding in findings]
    told = {"count": len(names), "first": names[:ONE_BY_ONE]}
    is_gone = action == "topic.delete"
    audit.record(
        ACTOR,
        action,
        f"{len(names)} at once",
        before=told if is_gone else None,
        after=None if is_gone else told,
    )
