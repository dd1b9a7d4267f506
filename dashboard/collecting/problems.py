"""Which partitions are offline, under their minimum of in-sync replicas, or short of replicas.

Remembers since when: the time of the tick that saw it first, or what the broker tells: when it found out, or
(a leader, of who lags behind it) when a replica was in sync last. Remembered in a file too, for the next process: what is there then, and was there when
the last process looked last, is taken for the same problem if at most ``MAX_GAP_MS`` lie between.
What else is there at a first look is told as such, since nobody knows how long it lasts.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from dashboard.collecting.facts import BrokerFacts
from dashboard.quorum_wire import NOTHING_TOLD, Behind
from dashboard.snapshots import LaggingReplica, PartitionProblem, PartitionState, TopicState

OFFLINE: Final = "offline"
UNDER_MIN_ISR: Final = "under_min_isr"
UNDER_REPLICATED: Final = "under_replicated"
_ORDER: Final = {OFFLINE: 0, UNDER_MIN_ISR: 1, UNDER_REPLICATED: 2}
MAX_TOLD: Final = 5000
"""The rest is only counted on the pages that count."""
FILE_NAME: Final = "problems.json"
MAX_GAP_MS: Final = 10 * 60_000
WRITE_AGAIN_MS: Final = 60_000
"""Nothing has changed, but we have looked: so often the file says so."""
MAX_FILE_BYTES: Final = 16 * 1024 * 1024

Key = tuple[str, int, str]
Since = tuple[int, bool]


class ProblemMemory:
    """Of the collector's thread. ``path``: where the next process finds it; None: nowhere."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._since: dict[Key, Since] = {}
        self._is_first = True
        self._written_ms = 0
        #: States in which nothing was wrong: the same object needs no second look.
        self._clean: dict[str, TopicState] = {}

    def look(
        self,
        topics: Iterable[TopicState],
        facts: Mapping[int, BrokerFacts],
        now_ms: int,
        cluster_id: str | None = None,
    ) -> tuple[PartitionProblem, ...]:
        """``topics``: those that have any, or all."""
        if self._is_first and self._path is not None:
            self._read(self._path, cluster_id, now_ms)
        before, self._since = self._since, {}
        clean, self._clean = self._clean, {}
        found: list[PartitionProblem] = []
        for topic in topics:
            if clean.get(topic.name) is topic:
                self._clean[topic.name] = topic
                continue
            count = len(found)
            for partition in topic.partitions:
                kind = kind_of(partition, topic.min_isr)
                if kind is not None and len(found) < MAX_TOLD:
                    found.append(self._problem(kind, topic, partition, facts, before, now_ms))
            if len(found) == count < MAX_TOLD:
                self._clean[topic.name] = topic
        self._is_first = False
        if self._path is not None and (
            self._since != before or (found and now_ms - self._written_ms >= WRITE_AGAIN_MS)
        ):
            self._write(self._path, cluster_id, now_ms)
        found.sort(key=lambda one: (_ORDER[one.kind], one.topic, one.partition))
        return tuple(found)

    def _problem(
        self,
        kind: str,
        topic: TopicState,
        partition: PartitionState,
        facts: Mapping[int, BrokerFacts],
        before: Mapping[Key, Since],
        now_ms: int,
    ) -> PartitionProblem:
        def since(what: str, told_ms: int | None = None, is_exact: bool = True) -> Since:
            """Who tells an exact time knows it. One who only says that it lasts at least so long moves the
            time back; whether we saw it begin is another matter."""
            key = (topic.name, partition.index, what)
            kept = before.get(key) or (now_ms, not self._is_first)
            if told_ms is not None and told_ms < kept[0]:
                kept = (told_ms, is_exact or kept[1])
            self._since[key] = kept
            return kept

        place = (topic.name, partition.index)
        holder = facts.get(partition.leader) if partition.leader is not None else None
        damaged_ms = None if holder is None else holder.damaged_since.get(place)
        told = {} if holder is None else holder.followers.get(place, {})

        lagging = []
        for broker_id in partition.replicas:
            if broker_id in partition.isr:
                continue
            holder = facts.get(broker_id)
            behind = told.get(broker_id, NOTHING_TOLD)
            lag = behind.lag
            if lag is None and holder is not None and holder.stale_since_ms is None:
                lag = holder.lags.get(place)
            found = since(f"replica {broker_id}", behind.since_ms, behind.is_since_known)
            lagging.append(LaggingReplica(broker_id, lag, *found))
        begun = _begun(kind, topic.min_isr, partition, [told.get(one.broker_id) for one in lagging])
        return PartitionProblem(
            kind,
            topic.name,
            partition.index,
            partition.leader,
            partition.replicas,
            partition.isr,
            topic.min_isr,
            *since(kind, damaged_ms) if kind == OFFLINE else since(kind, *begun),
            lagging=tuple(lagging),
            reason=partition.failure or "",
            stale_since_ms=partition.stale_since_ms,
        )

    # -- over restarts ------------------------------------------------------------------------

    def _read(self, path: Path, cluster_id: str | None, now_ms: int) -> None:
        """A file that is missing, damaged, of another cluster or old tells nothing."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            if path.stat().st_size > MAX_FILE_BYTES:
                return
            kept = json.loads(path.read_bytes())
            if kept["cluster_id"] != cluster_id or not 0 <= now_ms - kept["seen_ms"] <= MAX_GAP_MS:
                return
            self._since = {
                (str(topic), int(partition), str(what)): (int(since_ms), bool(is_known))
                for topic, partition, what, since_ms, is_known in kept["since"]
            }
            self._is_first = False

    def _write(self, path: Path, cluster_id: str | None, now_ms: int) -> None:
        kept: dict[str, Any] = {
            "cluster_id": cluster_id,
            "seen_ms": now_ms,
            "since": [(*key, *since) for key, since in self._since.items()],
        }
        aside = path.with_suffix(".tmp")
        with contextlib.suppress(OSError):  # a full disk costs the next process its memory
            aside.write_text(json.dumps(kept))
            os.replace(aside, path)
        self._written_ms = now_ms


def _begun(
    kind: str, min_isr: int, partition: PartitionState, lagging: list[Behind | None]
) -> tuple[int | None, bool]:
    """When so many lagged that it became this problem, and whether that is exact; None: not told."""
    times = sorted(
        (one.since_ms, not one.is_since_known)
        for one in lagging
        if one is not None and one.since_ms is not None
    )
    allowed = len(partition.replicas) - min_isr if kind == UNDER_MIN_ISR else 0
    if len(times) < len(lagging) or not 0 <= allowed < len(times):
        return None, False
    since_ms, is_vague = times[allowed]
    return since_ms, not is_vague


def kind_of(partition: PartitionState, min_isr: int) -> str | None:
    if partition.is_offline:
        return OFFLINE
    if len(partition.isr) < min_isr:
        return UNDER_MIN_ISR
    return UNDER_REPLICATED if partition.is_under_replicated else None
