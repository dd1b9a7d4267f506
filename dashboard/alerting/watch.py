"""The web process's two threads for alerts: one evaluates after each tick of the collector (and by
itself, should the collector hang), the other sends. The first never waits for the second.
"""

from __future__ import annotations

import logging
import threading

from django.db import close_old_connections

from broker.clock import Clock, SystemClock
from dashboard import leases
from dashboard.alerting import housekeeping
from dashboard.alerting.defaults import make_default_rules
from dashboard.alerting.evaluator import LEASE_S, LeaseLost, evaluate
from dashboard.alerting.sender import Sender
from dashboard.alerting.sources import Lookout, from_ms
from dashboard.snapshots import SnapshotShelf, shelf

logger = logging.getLogger(__name__)

LONGEST_PAUSE_S = 10.0
"""Shorter than the lease, which is renewed by each tick."""
HOUSEKEEPING_MS = 3_600_000


class AlertWatch:
    def __init__(self, shelf: SnapshotShelf, clock: Clock) -> None:
        self._shelf = shelf
        self._clock = clock
        self._wake = threading.Event()
        self._lookout = Lookout()
        self._holder = leases.this_process()
        self._kept_ms: int | None = None
        self._sender = Sender(clock)

    def start(self) -> None:
        self._sender.start()
        threading.Thread(target=self._run, name="alerts", daemon=True).start()

    def wake(self) -> None:
        """There is a new snapshot, or a changed rule. Called by the collector: returns at once."""
        self._wake.set()

    def _run(self) -> None:
        has_rules = False
        while True:
            self._wake.wait(LONGEST_PAUSE_S)
            self._wake.clear()
            try:
                close_old_connections()
                if not has_rules:
                    make_default_rules()
                    has_rules = True
                self.tick()
            except LeaseLost:
                logger.warning("another process evaluates the alerts now")
            except Exception:  # the database may be away for a while
                logger.exception("the alerts could not be evaluated")

    def tick(self) -> bool:
        """Returns whether this process is the one that evaluates."""
        now_ms = self._clock.wall_ms()
        # Also without the lease: the disk's trend has to be known when it comes.
        sources = self._lookout.look(self._shelf.peek(), now_ms)
        if not self._has_lease():
            return False
        evaluate(sources, self._holder)
        if self._kept_ms is None or now_ms - self._kept_ms >= HOUSEKEEPING_MS:
            self._kept_ms = now_ms
            housekeeping.prune(from_ms(now_ms))
        return True

    def _has_lease(self) -> bool:
        """A successor on this machine need not wait for the end of a dead process's lease."""
        lease = (leases.ALERTS, self._holder, LEASE_S)
        return leases.hold(*lease) or leases.take_from_dead(*lease)


alert_watch = AlertWatch(shelf, SystemClock())
"""Of this process; a changed rule wakes it."""
