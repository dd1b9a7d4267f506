"""Looks at single groups more often than the collector's tick, while their page is open.

A page asks for a group and gets what is known of it now: it waits a quarter of a second at most for
a fresh answer (two where nothing at all is known), so a broker that does not answer never holds a
page. One thread, started by the
first page and gone when nobody looks any more; at most ``MAX_WATCHED`` groups, one after another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from threading import Condition, Thread
from typing import Final

from broker.clock import Clock, SystemClock
from broker.model.ids import TopicPartition
from dashboard import clusters
from dashboard.cluster import KafkaFailure, OffsetView
from dashboard.collecting.group_memory import Ends, GroupMemory, LogEnd, ends_of, memory
from dashboard.collecting.groups import look_of, probe
from dashboard.gateway import Gateway, OffsetAt
from dashboard.groups import GroupListing
from dashboard.snapshots import GroupState, SnapshotShelf, shelf

logger = logging.getLogger(__name__)

PAUSE_MS: Final = 2_000
WATCHED_FOR_MS: Final = 12_000
FRESH_MS: Final = 1_500
WAIT_S: Final = 0.25
TIMEOUT_S: Final = 2.0
MAX_WATCHED: Final = 20
PROBES: Final = 32
MISSING: Final = "GROUP_ID_NOT_FOUND"


@dataclass(slots=True)
class _Watched:
    looked_ms: int
    asked_ms: int = -1
    """Monotonic, of the last answer or failure."""
    state: GroupState | None = None
    is_missing: bool = False
    failure: str | None = None
    failed_since_ms: int | None = None


class GroupWatch:
    def __init__(
        self,
        connect: Callable[[], Gateway],
        shelf: SnapshotShelf,
        remembered: GroupMemory,
        clock: Clock,
    ) -> None:
        self._connect = connect
        self._shelf = shelf
        self._memory = remembered
        self._clock = clock
        self._changed = Condition()
        self._watched: dict[str, _Watched] = {}
        self._is_running = False
        self._gateway: Gateway | None = None

    def look(self, group: str, wait_s: float = WAIT_S) -> GroupState | None:
        """The group as it is now, or as it was last seen.

        None when there is no such group (``is_missing``), or nothing is known of it yet.
        """
        snapshot = self._shelf.look(self._clock.wall_ms())
        known = snapshot.groups.get(group) if snapshot is not None else None
        with self._changed:
            watched = self._join(group)
            if watched is None:
                return known
            if known is None and watched.asked_ms < 0:
                wait_s = max(wait_s, TIMEOUT_S)  # there is nothing older to show
            if watched.failure is None:  # else what is known is told at once, until it answers
                self._changed.wait_for(lambda: self._is_fresh(watched), wait_s)
            if watched.is_missing:
                return None
            return _newest(watched, known)

    def is_missing(self, group: str) -> bool:
        """The last answer was that there is no such group."""
        with self._changed:
            return group in self._watched and self._watched[group].is_missing

    def ask_again(self, group: str) -> None:
        """It was changed here: what is known of it is no longer true."""
        self._memory.forget_group(group)
        with self._changed:
            if group in self._watched:
                self._watched[group].asked_ms = -1
                self._changed.notify_all()

    def _join(self, group: str) -> _Watched | None:
        """None when too many are watched already."""
        now_ms = self._clock.monotonic_ms()
        watched = self._watched.get(group)
        if watched is None:
            if len(self._watched) >= MAX_WATCHED:
                return None
            watched = self._watched[group] = _Watched(now_ms)
        watched.looked_ms = now_ms
        self._changed.notify_all()
        if not self._is_running:
            self._is_running = True
            Thread(target=self._run, name="group-watch", daemon=True).start()
        return watched

    def _is_fresh(self, watched: _Watched) -> bool:
        return watched.asked_ms >= 0 and (self._clock.monotonic_ms() - watched.asked_ms < FRESH_MS)

    def _run(self) -> None:
        while True:
            with self._changed:
                now_ms = self._clock.monotonic_ms()
                for group in [
                    group
                    for group, one in self._watched.items()
                    if now_ms - one.looked_ms > WATCHED_FOR_MS
                ]:
                    del self._watched[group]
                if not self._watched:
                    self._is_running = False
                    return
                due = self._due(now_ms)
                if not due:
                    self._changed.wait(PAUSE_MS / 8000)
                    continue
            for group in due:
                self._refresh(group)

    def _due(self, now_ms: int) -> list[str]:
        """Somebody looks right now, or the pause is over."""
        return [
            group
            for group, one in self._watched.items()
            if one.asked_ms < 0 or now_ms - one.asked_ms >= PAUSE_MS
        ]

    def _refresh(self, group: str) -> None:
        state, failure = None, None
        try:
            state = self._ask(group)
        except KafkaFailure as failed:
            failure = failed
        except Exception as error:
            logger.exception("asking for a group failed")
            failure = KafkaFailure("UNKNOWN", f"{type(error).__name__}: {error}")
        with self._changed:
            watched = self._watched.get(group)
            if watched is None:
                return
            watched.asked_ms = self._clock.monotonic_ms()
            watched.is_missing = failure is not None and failure.code == MISSING
            watched.failure = None if failure is None else failure.message
            if failure is None:
                watched.state, watched.failed_since_ms = state, None
            elif watched.failed_since_ms is None:
                watched.failed_since_ms = self._clock.wall_ms()
            self._changed.notify_all()
        if state is not None:
            self._probe(state)

    def _ask(self, group: str) -> GroupState:
        """Raises KafkaFailure, by the name MISSING for a group that does not exist."""
        if self._gateway is None:
            self._gateway = self._connect()
        gateway = self._gateway
        view = gateway.groups.describe([group])[group]
        if isinstance(view, KafkaFailure):
            raise view
        committed = gateway.groups.committed([group])[group]
        if isinstance(committed, KafkaFailure):
            raise committed
        now_ms = self._clock.wall_ms()
        coordinator = view.coordinator.broker_id if view.coordinator is not None else None
        listed = GroupListing(group, view.state, view.group_type, coordinator)
        look = look_of(listed, view, committed, None, now_ms)
        keys = {*committed, *(key for member in view.members for key in member.assignment)}
        ends = self._ends(gateway, sorted(keys))
        self._memory.see_some_ends(ends, now_ms)
        return self._memory.state_of(look, ends, now_ms, is_new=True)

    def _ends(self, gateway: Gateway, keys: list[TopicPartition]) -> Ends:
        """Of now; as the snapshot has them where nobody answers."""
        snapshot = self._shelf.peek()
        known: dict[TopicPartition, LogEnd] = {}
        if snapshot is not None:
            known = ends_of(snapshot.topics, keys)
        try:
            found = gateway.offsets(keys, OffsetAt.LATEST) if keys else {}
        except KafkaFailure:
            return known
        for key, end in found.items():
            if isinstance(end, OffsetView):
                start = known[key].log_start_offset if key in known else None
                known[key] = LogEnd(end.offset, None, start)
        return known

    def _probe(self, state: GroupState) -> None:
        """On its own page a group's time behind is read, not only estimated."""
        assert self._gateway is not None
        wanted = self._memory.wanted_probes([state], PROBES)
        if wanted and probe(self._gateway, wanted, self._memory):
            with self._changed:
                if state.group in self._watched:
                    self._watched[state.group].asked_ms = -1


def _newest(watched: _Watched, known: GroupState | None) -> GroupState | None:
    state = watched.state
    if state is None or (known is not None and (known.taken_ms or 0) > (state.taken_ms or 0)):
        state = known
    if state is None or watched.failure is None:
        return state
    return replace(
        state,
        stale_since_ms=state.stale_since_ms or watched.failed_since_ms,
        failure=state.failure or watched.failure,
    )


@cache
def watch() -> GroupWatch:
    """Of this process."""
    return GroupWatch(lambda: clusters.new_gateway(TIMEOUT_S), shelf, memory, SystemClock())
