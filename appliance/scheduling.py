"""Beat: asks for what is due, by the schedules in the database; a thread of the worker.

One of all workers does so at a time: the lease ``scheduler``. What is due, and that a due time leads
to one run, is ``dashboard.services.schedules``; the lease only spares the others the looking. The
one that holds it also sweeps once a minute: lost runs, and runs whose bell nobody heard.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from celery.beat import Scheduler, Service
from django.db import close_old_connections

from appliance import worker
from appliance.celery import app
from dashboard import leases
from dashboard.services import runs, schedules

logger = logging.getLogger(__name__)

LEASE_S = 30.0
LOOK_S = 1.0
STANDBY_S = 2.0
RETRY_S = 5.0
SWEEP_EVERY_S = 60.0


class LeasedScheduler(Scheduler):  # type: ignore[misc]  # untyped
    """Celery's beat with the schedules of ``dashboard.services.schedules``. Ticks only while this
    process holds the lease."""

    holder = ""
    _is_holder = False
    _sweep_at = 0.0

    def setup_schedule(self) -> None:
        schedules.make_missing()

    def tick(self, *_: Any, **__: Any) -> float:
        is_holder = leases.hold(leases.SCHEDULER, self.holder, LEASE_S)
        if is_holder and not self._is_holder:
            logger.info("schedules are watched from here")
            self._sweep_at = 0.0
        self._is_holder = is_holder
        if time.monotonic() >= self._sweep_at:
            self._sweep_at = time.monotonic() + SWEEP_EVERY_S
            self._sweep()
        if not is_holder:
            return STANDBY_S
        schedules.fire_due()
        return LOOK_S

    def _sweep(self) -> None:
        worker.hold_transport()
        worker.give_back()
        if self._is_holder:
            runs.sweep()

    def should_sync(self) -> bool:
        return False  # rows are written as they are fired


class Beat:
    """The thread. ``stop`` passes the lease on."""

    def __init__(self, holder: str) -> None:
        self._holder = holder
        self._stopping = threading.Event()
        self._service: Service | None = None
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def begin_stop(self) -> None:
        """Returns at once; may be called in a signal's handler."""
        self._stopping.set()
        if self._service is not None:
            self._service.stop()

    def stop(self, timeout_s: float = 5.0) -> None:
        self.begin_stop()
        if self._thread.ident is not None:  # a worker may end before it has begun
            self._thread.join(timeout_s)

    def _run(self) -> None:
        app.set_current()
        scheduler = type("Scheduler", (LeasedScheduler,), {"holder": self._holder})
        while not self._stopping.is_set():
            try:
                # A second at most between two looks at whether it shall stop.
                self._service = Service(app, max_interval=1, scheduler_cls=scheduler)
                self._service.start()
            except Exception:  # the database may be away: go on when it is back
                logger.warning("schedules cannot be watched, again in a moment", exc_info=True)
                close_old_connections()
                self._stopping.wait(RETRY_S)
        try:
            leases.release(leases.SCHEDULER, self._holder)
        except Exception:  # then it ends by itself
            logger.info("the scheduler's lease could not be given up", exc_info=True)
        finally:
            close_old_connections()
