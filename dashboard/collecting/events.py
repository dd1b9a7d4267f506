"""What has happened to the cluster between two looks: failovers, brokers that went and came, controllers.

Kafka tells no history, so this is what the looks differ in; what came and went between two of them is not
seen, and nothing is while no web process runs. The newest ``MAX_EVENTS`` are kept, in a file too.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from dashboard.snapshots import ClusterEvent, ClusterSnapshot

FILE_NAME: Final = "events.json"
MAX_EVENTS: Final = 50
NAMED: Final = 3
"""Partitions that an event calls by name; the rest is counted."""
MAX_FILE_BYTES: Final = 1024 * 1024


class EventMemory:
    """Of the collector's thread. ``path``: where the next process finds it; None: nowhere."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._events: tuple[ClusterEvent, ...] = ()
        self._cluster_id: str | None = None
        self._is_first = True

    def look(self, old: ClusterSnapshot | None, new: ClusterSnapshot) -> tuple[ClusterEvent, ...]:
        """The newest first."""
        if self._is_first or new.cluster_id != self._cluster_id:
            self._is_first, self._cluster_id = False, new.cluster_id
            self._events = self._read()
        # Before the first good look there is nothing that it could differ from.
        if old is not None and old.brokers and old.cluster_id == new.cluster_id:
            found = tuple(_differences(old, new))
            if found:
                self._events = (*reversed(found), *self._events)[:MAX_EVENTS]
                self._write()
        return self._events

    def _read(self) -> tuple[ClusterEvent, ...]:
        """A file that is missing, damaged or of another cluster tells nothing."""
        if self._path is None:
            return ()
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            if self._path.stat().st_size <= MAX_FILE_BYTES:
                kept = json.loads(self._path.read_bytes())
                if kept["cluster_id"] == self._cluster_id:
                    return tuple(ClusterEvent(**one) for one in kept["events"])
        return ()

    def _write(self) -> None:
        if self._path is None:
            return
        kept = {"cluster_id": self._cluster_id, "events": [asdict(one) for one in self._events]}
        aside = self._path.with_suffix(".tmp")
        with contextlib.suppress(OSError):  # a full disk costs the next process its memory
            aside.write_text(json.dumps(kept))
            os.replace(aside, self._path)


def _differences(old: ClusterSnapshot, new: ClusterSnapshot) -> Iterator[ClusterEvent]:
    before, now = _members(old), _members(new)
    for broker_id in sorted(before - now):
        yield ClusterEvent(new.taken_ms, "broker_gone", f"Broker {broker_id} left the cluster.")
    for broker_id in sorted(now - before):
        yield ClusterEvent(new.taken_ms, "broker_came", f"Broker {broker_id} joined the cluster.")
    was, is_now = old.controller_id, new.controller_id
    if was != is_now and was is not None and is_now is not None:
        words = f"The controller is broker {is_now}; it was broker {was}."
        yield ClusterEvent(new.taken_ms, "controller", words)
    yield from _leaders(old, new, now)


def _members(snapshot: ClusterSnapshot) -> set[int]:
    """A broker that is only known by replicas on it has no address."""
    return {broker_id for broker_id, broker in snapshot.brokers.items() if broker.host}


def _leaders(
    old: ClusterSnapshot, new: ClusterSnapshot, members: set[int]
) -> Iterator[ClusterEvent]:
    """By who led before: a failover where that broker is gone, a move where it is still there."""
    moved: dict[int, tuple[list[str], set[int]]] = {}
    lost: dict[int, list[str]] = {}
    for name, topic in new.topics.items():
        known = old.topics.get(name)
        if known is None or known is topic:
            continue
        for one, then in zip(topic.partitions, known.partitions, strict=False):
            if then.leader is None or then.leader == one.leader:
                continue
            partition = f"{name}-{one.index}"
            if one.leader is None:
                lost.setdefault(then.leader, []).append(partition)
            else:
                partitions, leaders = moved.setdefault(then.leader, ([], set()))
                partitions.append(partition)
                leaders.add(one.leader)
    for broker_id, (partitions, leaders) in sorted(moved.items()):
        kind = "leaders_moved" if broker_id in members else "failover"
        by = " and ".join(f"broker {one}" for one in sorted(leaders))
        yield ClusterEvent(
            new.taken_ms,
            kind,
            f"{_named(partitions)}, led by broker {broker_id} before, by {by} now.",
        )
    for broker_id, partitions in sorted(lost.items()):
        words = f"{_named(partitions)}, led by broker {broker_id} before, by nobody now."
        yield ClusterEvent(new.taken_ms, "leaders_lost", words)


def _named(partitions: list[str]) -> str:
    count = len(partitions)
    names = ", ".join(partitions[:NAMED]) + (" and others" if count > NAMED else "")
    return f"{count} partition{'' if count == 1 else 's'} ({names})"
