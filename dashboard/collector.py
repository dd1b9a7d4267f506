"""Asks the cluster every few seconds and puts a snapshot on the shelf; threads of the web process.

Every 10 s (``refresh_s``) while somebody looks, else every 60 s; woken by a change made here, and by a page that
finds an old snapshot. Two lanes: the *tick* looks at topics and brokers (``collecting.cluster_survey``)
and is over within seconds whatever the brokers do; the *slow lane* follows each snapshot with what
takes longer (groups, settings of topics, history, observers) and skips snapshots when it falls
behind. A tick that nobody answered leaves the last snapshot in place, every row marked stale. The
collector ends with its process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from broker.clock import Clock
from dashboard import room, tasks
from dashboard.broker_api import BrokerApi
from dashboard.cluster import BrokerView, KafkaFailure
from dashboard.collecting import by_library, topic_settings
from dashboard.collecting.cluster_survey import CannotSurvey, ClusterSurvey
from dashboard.collecting.events import EventMemory
from dashboard.collecting.groups import collect_groups
from dashboard.collecting.history import series_of
from dashboard.collecting.problems import ProblemMemory
from dashboard.collecting.staleness import all_stale, stale_groups
from dashboard.gateway import Gateway
from dashboard.samples import Samples
from dashboard.snapshots import ClusterSnapshot, SnapshotShelf

logger = logging.getLogger(__name__)

IDLE_PAUSE_MS = 60_000
FAILED_PAUSE_MS = 2_000
LEAST_PAUSE_MS = 500
"""Whoever wakes it again and again does not make it run all the time."""
TIMEOUT_S = 1.25


class Collector:
    """``wake`` makes the next tick come at once."""

    def __init__(
        self,
        connect: Callable[[], Gateway],
        shelf: SnapshotShelf,
        clock: Clock,
        observers: Sequence[Callable[[ClusterSnapshot, Gateway], None]] = (),
        after_tick: Callable[[], None] = lambda: None,
        api: BrokerApi | None = None,
        samples: Samples | None = None,
        problems: ProblemMemory | None = None,
        events: EventMemory | None = None,
    ) -> None:
        """``observers`` see snapshots after they are on the shelf; they must not raise.

        ``after_tick`` is called after each tick, also one that failed; it must return at once.
        """
        self._after_tick = after_tick
        self._connect = connect
        self._shelf = shelf
        self._clock = clock
        self._observers = observers
        self._api = api
        self._samples = samples
        self._gateway: Gateway | None = None
        self._survey: ClusterSurvey | None = None
        self._problems = problems or ProblemMemory()
        self._events = events or EventMemory()
        self._is_by_library = False
        self._has_news = threading.Event()

    def start(self) -> None:
        self._shelf.is_followed = True
        tasks.keep_thread(self._run, "collector")
        tasks.keep_thread(self._run_slow_lane, "collector-slow")

    def wake(self) -> None:
        self._shelf.woken.set()

    def _run(self) -> None:
        while True:
            started_ms = self._clock.monotonic_ms()
            is_good = self.tick()
            self._after_tick()
            is_watched = self._shelf.is_watched(self._clock.wall_ms())
            pause_ms = self._shelf.pace_ms if is_watched else IDLE_PAUSE_MS
            # From tick to tick, so that a long one does not make the next snapshot older.
            now_ms = self._clock.monotonic_ms()
            self._wait_until(started_ms + pause_ms if is_good else now_ms + FAILED_PAUSE_MS)

    def _wait_until(self, end_ms: int) -> None:
        """Until then, or until somebody wakes us or begins to look."""
        threading.Event().wait(LEAST_PAUSE_MS / 1000)
        while (left_ms := end_ms - self._clock.monotonic_ms()) > 0:
            if self._shelf.woken.wait(min(1.0, left_ms / 1000)):
                break
        self._shelf.woken.clear()

    def close(self) -> None:
        """For whoever ticks by hand: gives connections and threads back."""
        if self._survey is not None:
            self._survey.close()
        if self._samples is not None:
            self._samples.close()

    # -- the tick -----------------------------------------------------------------------------

    def tick(self) -> bool:
        """One look at topics and brokers. Returns whether anybody answered."""
        now_ms = self._clock.wall_ms()
        try:
            snapshot = self._look(now_ms)
            snapshot = replace(snapshot, events=self._events.look(self._shelf.peek(), snapshot))
        except KafkaFailure as failure:
            self._keep(now_ms, str(failure))
            return False
        except Exception as error:
            logger.exception("collecting failed")
            self._keep(now_ms, f"{type(error).__name__}: {error}")
            return False

        def renewed(old: ClusterSnapshot | None) -> ClusterSnapshot:
            if old is None:
                return snapshot
            groups = stale_groups(old.groups, snapshot.brokers)
            return replace(snapshot, groups=groups, groups_taken_ms=old.groups_taken_ms)

        self._shelf.update(renewed)
        self._has_news.set()
        return True

    def _look(self, now_ms: int) -> ClusterSnapshot:
        if self._gateway is None:
            self._gateway = self._connect()
            self._is_by_library = not self._gateway.is_plain
        is_complete = self._shelf.take_changed()
        if not self._is_by_library:
            if self._survey is None:
                self._survey = ClusterSurvey(
                    self._gateway.bootstrap, self._clock, self._api, self._problems
                )
            try:
                return self._survey.look(
                    now_ms, topic_settings.watch.applied, is_complete=is_complete
                )
            except CannotSurvey:
                self._is_by_library = True
        self._gateway.check()
        return by_library.collect(
            self._gateway,
            now_ms,
            self._shelf.peek(),
            topic_settings.watch.applied,
            self._problems,
        )

    def _keep(self, now_ms: int, failure: str) -> None:
        def kept(old: ClusterSnapshot | None) -> ClusterSnapshot:
            return all_stale(old or ClusterSnapshot(now_ms, None, None, {}, {}), failure, now_ms)

        self._shelf.update(kept)

    # -- the slow lane ------------------------------------------------------------------------

    def _run_slow_lane(self) -> None:
        while True:
            self._has_news.wait()
            self._has_news.clear()
            self.follow()

    def follow(self) -> None:
        """What takes longer, for the newest snapshot. Never raises."""
        snapshot, gateway = self._shelf.peek(), self._gateway
        if snapshot is None or gateway is None or snapshot.stale_since_ms is not None:
            return
        for step in (self._take_groups, self._learn_settings, self._keep_history):
            try:
                step(snapshot, gateway)
            except KafkaFailure as failure:
                logger.info("%s: %s", step.__name__, failure)
            except Exception:
                logger.exception("%s failed", step.__name__)
        newest = self._shelf.peek() or snapshot
        for observe in self._observers:
            try:
                observe(newest, gateway)
            except Exception:  # one's fault is not the others'
                logger.exception("what follows a look failed")

    def _take_groups(self, snapshot: ClusterSnapshot, gateway: Gateway) -> None:
        brokers = [
            BrokerView(one.broker_id, one.host, one.port, one.rack)
            for one in snapshot.brokers.values()
            if one.host
        ]
        groups, taken_ms = collect_groups(
            gateway, brokers, snapshot.topics, self._clock.wall_ms(), snapshot
        )

        def with_groups(newest: ClusterSnapshot | None) -> ClusterSnapshot:
            return replace(newest or snapshot, groups=groups, groups_taken_ms=taken_ms)

        self._shelf.update(with_groups)

    def _learn_settings(self, snapshot: ClusterSnapshot, gateway: Gateway) -> None:
        topic_settings.watch.learn(gateway, snapshot.topics, snapshot.taken_ms)

    def _keep_history(self, _: ClusterSnapshot, __: Gateway) -> None:
        newest = self._shelf.peek()
        if self._samples is not None and newest is not None and not room.is_short():
            self._samples.write(newest.taken_ms, series_of(newest))
