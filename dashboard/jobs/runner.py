"""Runs jobs in a worker: two long ones and one report at a time, each under a lease that a thread renews.

``perform`` is called by the worker's threads with the id of a run, as often as somebody rings; it
does nothing when the run is taken, over, or when both slots are in use (the run stays queued, and
whoever frees a slot rings for it). A job ends early when its run is cancelled, when its lease was
lost, or when the worker stops: it learns that from ``progress``.
"""

from __future__ import annotations

import logging
import threading
import traceback
from importlib import import_module
from typing import Any

from django.db import DatabaseError, close_old_connections

from broker.clock import Clock
from dashboard import run_logs, tasks
from dashboard.jobs import KINDS, Cancelled, Incomplete, WorkerStopping, lone_jobs, quick_jobs
from dashboard.models import JobRun
from dashboard.services import jobs, runs

logger = logging.getLogger(__name__)

LONG_SLOTS = 2
RENEW_S = 10.0
REPORT_MS = 1_000


class RunContext:
    """``dashboard.jobs.JobContext`` of one run."""

    def __init__(self, run: JobRun, worker: str, clock: Clock, stopping: threading.Event) -> None:
        self.run_id = run.pk
        self.target = run.target
        self.parameters: dict[str, Any] = dict(run.parameters)
        self.is_lost = False
        self._worker = worker
        self._clock = clock
        self._stopping = stopping
        self._reported_ms: int | None = None
        self._log = run_logs.RunLog(run.pk, clock)

    def log(self, text: str) -> None:
        self._log.write(text)

    def remember(self, **parameters: Any) -> None:
        self.parameters |= parameters
        if not runs.remember(run_id=self.run_id, worker=self._worker, parameters=self.parameters):
            raise Cancelled

    def progress(self, done: int, total: int | None = None, text: str = "") -> None:
        if self._stopping.is_set():
            raise WorkerStopping
        if self.is_lost:
            raise Cancelled
        now_ms = self._clock.monotonic_ms()
        if self._reported_ms is not None and now_ms - self._reported_ms < REPORT_MS:
            return
        self._reported_ms = now_ms
        may_go_on = runs.report(
            run_id=self.run_id, worker=self._worker, done=done, total=total, text=text
        )
        if not may_go_on:
            raise Cancelled


def _level(run: JobRun) -> int:
    """What runs by schedule, every minute some of it, and ends well is told by the page of jobs alone."""
    return logging.DEBUG if run.trigger == JobRun.Trigger.SCHEDULE else logging.INFO


class Runner:
    """Of one worker process, whose ``name`` stands in its runs' rows."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self._long_slots = threading.BoundedSemaphore(LONG_SLOTS)
        self._lone_slot = threading.BoundedSemaphore(1)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._running: dict[int, RunContext] = {}

    def start(self) -> None:
        tasks.keep_thread(self._keep_leases, "leases")

    def stop(self) -> None:
        """Running jobs end at their next ``progress`` and go back into the queue."""
        self._stopping.set()

    @property
    def running_count(self) -> int:
        with self._lock:
            return len(self._running)

    def perform(self, run_id: int) -> None:
        job = JobRun.objects.filter(pk=run_id).values_list("job", flat=True).first()
        if job is None or self._stopping.is_set():
            return
        if job in quick_jobs():
            self._claim_and_run(run_id)
            return
        is_alone = job in lone_jobs()
        slot = self._lone_slot if is_alone else self._long_slots
        if not slot.acquire(blocking=False):
            return
        try:
            self._claim_and_run(run_id)
        finally:
            slot.release()
        if self._stopping.is_set():
            return
        waiting = (
            runs.next_queued(only=lone_jobs())
            if is_alone
            else runs.next_queued(quick=quick_jobs() | lone_jobs())
        )
        if waiting is not None:
            jobs.ring(waiting)

    def _claim_and_run(self, run_id: int) -> None:
        run = runs.claim(run_id=run_id, worker=self.name)
        if run is None:
            return
        context = RunContext(run, self.name, self._clock, self._stopping)
        with self._lock:
            self._running[run_id] = context
        try:
            self._run(run, context)
        finally:
            with self._lock:
                del self._running[run_id]

    def _run(self, run: JobRun, context: RunContext) -> None:
        logger.log(_level(run), "%s %s: run %d begins", run.job, run.target, run.pk)
        try:
            result = _function(run.job)(context)
        except WorkerStopping:
            context.log(runs.INTERRUPTED)
            runs.requeue(run_id=run.pk, worker=self.name)
            logger.info("%s %s: run %d goes back into the queue", run.job, run.target, run.pk)
            return
        except Cancelled:
            self._finish(run, JobRun.State.CANCELLED)
        except Incomplete as incomplete:
            self._finish(run, JobRun.State.INCOMPLETE, result=incomplete.result)
        except Exception as error:  # a job's fault is its run's result
            logger.warning("%s %s: run %d failed", run.job, run.target, run.pk, exc_info=True)
            text = f"{error or type(error).__name__}\n\n{traceback.format_exc()}"
            context.log(text)
            self._finish(run, JobRun.State.FAILED, error=text)
        else:
            self._finish(run, JobRun.State.OK, result=result)

    def _finish(self, run: JobRun, state: str, *, result: Any = None, error: str = "") -> None:
        done = runs.finish(run_id=run.pk, worker=self.name, state=state, result=result, error=error)
        ended = state if done else "over, but its lease was lost before"
        level = _level(run) if ended == JobRun.State.OK else logging.INFO
        logger.log(level, "%s %s: run %d is %s", run.job, run.target, run.pk, ended)

    def _keep_leases(self) -> None:
        # The process ends only after this thread is of no more use: jobs may outlast ``stop``.
        pause = threading.Event()
        while not pause.wait(RENEW_S):
            with self._lock:
                running = dict(self._running)
            if not running:
                continue
            try:
                kept = runs.renew(run_ids=running.keys(), worker=self.name)
            except DatabaseError:
                logger.warning("leases of runs could not be renewed", exc_info=True)
            else:
                for run_id in running.keys() - kept:
                    running[run_id].is_lost = True
            finally:
                close_old_connections()


def _function(job: str) -> Any:
    kind = KINDS.get(job)
    if kind is None:
        raise LookupError(f"this version of Odradek knows no job {job!r}")
    module, _, name = kind.function.partition(":")
    return getattr(import_module(module), name)
