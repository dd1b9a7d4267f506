"""Jobs under a lease: claimed once, cancelled, lost, put back; two long ones at a time."""

import logging
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from broker.clock import SystemClock
from dashboard import jobs as job_table
from dashboard import run_logs
from dashboard.jobs import JobContext, runner
from dashboard.jobs.clean_up import clean_up
from dashboard.jobs.runner import Runner
from dashboard.models import AuditEntry, JobMark, JobRun
from dashboard.services import audit, jobs, runs

pytestmark = pytest.mark.django_db(transaction=True)
STATE = JobRun.State


class Stage:
    """Jobs of this test, and whom they rang for."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.entered = threading.Semaphore(0)
        self.rung: list[int] = []


@pytest.fixture(autouse=True)
def own_directory(settings: Any, tmp_path: Path) -> None:
    """Of the logs of runs."""
    settings.DATA_DIR = tmp_path


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    found = Stage()
    functions: dict[str, Callable[[JobContext], Any]] = {
        "ok": lambda context: {"target": context.target},
        "bad": _fail,
        "idle": lambda context: None,
        "long": lambda context: _wait(found, context),
    }
    monkeypatch.setattr(runner, "_function", functions.__getitem__)
    for name in functions:
        kind = job_table.JobKind(name, name, "", "")
        monkeypatch.setitem(job_table.KINDS, name, kind)
    monkeypatch.setattr(jobs, "ring", lambda run: found.rung.append(run.pk))
    monkeypatch.setattr(runner, "REPORT_MS", 0)
    return found


def _fail(context: JobContext) -> None:
    raise ValueError("no such thing")


def _wait(stage: Stage, context: JobContext) -> str:
    stage.entered.release()
    while not stage.go.wait(0.01):
        context.progress(1, 2, "half")
    return "done"


def queue(job: str, target: str = "", trigger: JobRun.Trigger = JobRun.Trigger.PERSON) -> JobRun:
    return jobs.enqueue(job=job, target=target, parameters={}, trigger=trigger, actor=audit.SYSTEM)


@pytest.fixture
def perform() -> Iterator[Callable[[Runner, JobRun], threading.Thread]]:
    """Performs in a thread, as a worker does."""
    threads: list[threading.Thread] = []

    def start(runner: Runner, run: JobRun) -> threading.Thread:
        def work() -> None:
            runner.perform(run.pk)
            connections.close_all()

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.join(30)


Perform = Callable[[Runner, JobRun], threading.Thread]


def state(run: JobRun) -> str:
    run.refresh_from_db()
    return run.state


def worker(name: str = "w") -> Runner:
    return Runner(name, SystemClock())


def test_a_job_leaves_its_result_and_a_failure_its_reason(stage: Stage) -> None:
    good, bad = queue("ok", "orders"), queue("bad")
    worker().perform(good.pk)
    worker().perform(bad.pk)
    assert (state(good), good.result) == (STATE.OK, {"target": "orders"})
    assert state(bad) == STATE.FAILED
    assert bad.error.splitlines()[0] == "no such thing"
    assert "ValueError: no such thing" in (run_logs.read(bad.pk) or "")


def test_only_what_somebody_asked_for_or_what_fails_is_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Schedules run every minute; an idle appliance is to be silent."""
    caplog.set_level(logging.INFO)
    worker().perform(queue("ok", "by-schedule", JobRun.Trigger.SCHEDULE).pk)
    assert caplog.messages == []
    asked = queue("ok", "asked")
    worker().perform(asked.pk)
    said = [f"ok asked: run {asked.pk} {word}" for word in ("begins", "is ok")]
    assert caplog.messages == said
    caplog.clear()
    bad = queue("bad", "by-schedule", JobRun.Trigger.SCHEDULE)
    worker().perform(bad.pk)
    said = [f"bad by-schedule: run {bad.pk} {word}" for word in ("failed", "is failed")]
    assert caplog.messages == said


def test_a_run_is_claimed_once(stage: Stage) -> None:
    run = queue("ok")
    assert runs.claim(run_id=run.pk, worker="a") is not None
    assert runs.claim(run_id=run.pk, worker="b") is None
    assert not runs.finish(run_id=run.pk, worker="b", state=STATE.OK)
    assert runs.finish(run_id=run.pk, worker="a", state=STATE.OK)


def test_a_run_that_is_delivered_again_while_it_goes_on_or_after_it_is_not_done_twice(
    stage: Stage, perform: Perform
) -> None:
    """C160: a pass that takes long, whose message is given to the other worker meanwhile."""
    run = queue("long", "orders")
    first = perform(worker("a"), run)
    assert stage.entered.acquire(timeout=30)
    for _ in range(3):
        worker("b").perform(run.pk)
    assert (state(run), run.worker) == (STATE.RUNNING, "a")
    stage.go.set()
    first.join(30)
    worker("b").perform(run.pk)
    assert (state(run), run.result) == (STATE.OK, "done")
    assert not stage.entered.acquire(blocking=False)


def test_after_a_kill_it_is_lost_and_the_next_one_may_be_asked_for(stage: Stage) -> None:
    """C160: nobody waits for a dead worker, and its run does not come to life again."""
    run = queue("ok", "orders")
    assert runs.claim(run_id=run.pk, worker="killed") is not None
    JobRun.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    assert runs.sweep().lost == 1
    worker().perform(run.pk)
    assert state(run) == STATE.LOST
    again = queue("ok", "orders")
    worker().perform(again.pk)
    assert state(again) == STATE.OK


def test_a_second_run_of_the_same_is_refused_until_the_first_is_over(stage: Stage) -> None:
    run = queue("ok", "x")
    with pytest.raises(jobs.AlreadyQueued):
        queue("ok", "x")
    queue("ok", "y")
    worker().perform(run.pk)
    queue("ok", "x")


def test_two_long_jobs_run_at_a_time_and_the_third_is_rung_for_when_one_ends(
    stage: Stage, perform: Perform
) -> None:
    one = worker()
    first, second, third = (queue("long", name) for name in "abc")
    stage.rung.clear()
    threads = [perform(one, first), perform(one, second)]
    for _ in threads:
        assert stage.entered.acquire(timeout=30)
    one.perform(third.pk)
    assert state(third) == STATE.QUEUED
    assert state(first) == state(second) == STATE.RUNNING
    stage.go.set()
    for thread in threads:
        thread.join(30)
    assert state(first) == state(second) == STATE.OK
    assert third.pk in stage.rung


def test_a_cancelled_run_ends_at_its_next_step(stage: Stage, perform: Perform) -> None:
    run = queue("long")
    thread = perform(worker(), run)
    assert stage.entered.acquire(timeout=30)
    jobs.cancel(run=run)
    thread.join(30)
    assert state(run) == STATE.CANCELLED
    assert (run.done, run.total, run.progress_text) == (1, 2, "half")


def test_a_worker_that_stops_puts_its_runs_back(stage: Stage, perform: Perform) -> None:
    one, run = worker(), queue("long")
    thread = perform(one, run)
    assert stage.entered.acquire(timeout=30)
    one.stop()
    thread.join(30)
    assert (state(run), run.worker, run.lease_until) == (STATE.QUEUED, "", None)
    assert run.progress_text == runs.INTERRUPTED
    assert runs.INTERRUPTED in (run_logs.read(run.pk) or "")


def test_the_sweep_declares_runs_lost_and_rings_for_those_that_wait(stage: Stage) -> None:
    gone, waiting, new = queue("long", "gone"), queue("ok", "waiting"), queue("ok", "new")
    runs.claim(run_id=gone.pk, worker="dead")
    before = timezone.now() - timedelta(seconds=1)
    JobRun.objects.filter(pk=gone.pk).update(lease_until=before)
    JobRun.objects.filter(pk=waiting.pk).update(queued_at=before - timedelta(minutes=1))
    stage.rung.clear()
    assert runs.sweep() == runs.Swept(lost=1, rung=1)
    assert stage.rung == [waiting.pk]
    assert state(gone) == STATE.LOST
    assert not runs.report(run_id=gone.pk, worker="dead", done=1, total=None, text="")
    assert state(new) == STATE.QUEUED


def test_leases_are_renewed_for_the_runs_that_are_still_ours(stage: Stage) -> None:
    kept, lost = queue("ok", "kept"), queue("ok", "lost")
    for run in (kept, lost):
        runs.claim(run_id=run.pk, worker="w")
    JobRun.objects.filter(pk=lost.pk).update(state=STATE.LOST)
    assert runs.renew(run_ids=[kept.pk, lost.pk], worker="w") == {kept.pk}


class NoContext:
    run_id, target = 1, ""
    parameters: dict[str, Any] = {}

    def progress(self, done: int, total: int | None = None, text: str = "") -> None:
        pass

    def log(self, text: str) -> None:
        pass


def test_clean_up_deletes_what_is_old_or_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    from dashboard.jobs import clean_up as module

    now = timezone.now()
    for days in (1, 2, 3, 1000):
        AuditEntry.objects.create(
            at=now - timedelta(days=days), actor_name="a", source="page", action="x", target="y"
        )
    JobRun.objects.create(
        job="ok", trigger="person", state=STATE.OK, queued_at=now - timedelta(days=500)
    )
    queued = JobRun.objects.create(
        job="ok", trigger="person", state=STATE.QUEUED, queued_at=now - timedelta(days=500)
    )
    monkeypatch.setattr(module, "AUDIT", module.Bound(days=400, rows=2))
    assert clean_up(NoContext()) == {"runs": 1, "audit": 2}
    assert AuditEntry.objects.count() == 2
    assert list(JobRun.objects.all()) == [queued]
    assert clean_up(NoContext()) is None


def scheduled(job: str) -> JobRun:
    run = jobs.enqueue(
        job=job, target="", parameters={}, trigger=JobRun.Trigger.SCHEDULE, actor=audit.SYSTEM
    )
    worker().perform(run.pk)
    return run


def test_a_scheduled_run_that_found_nothing_to_do_leaves_a_mark_and_no_row(stage: Stage) -> None:
    scheduled("idle")
    scheduled("idle")
    by_hand = queue("idle")
    worker().perform(by_hand.pk)
    assert list(JobRun.objects.all()) == [by_hand]
    mark = JobMark.objects.get(job="idle")
    assert (mark.state, mark.idle_count, mark.ok_at) == (STATE.OK, 0, mark.finished_at)
    scheduled("idle")
    mark.refresh_from_db()
    assert mark.idle_count == 1


def test_a_fault_that_lasts_is_one_row_that_counts(stage: Stage) -> None:
    first = scheduled("bad")
    scheduled("bad")
    last = scheduled("bad")
    (row,) = JobRun.objects.filter(job="bad")
    assert (row.pk, row.repeat_count, row.repeats_since) == (last.pk, 2, first.queued_at)
    assert JobMark.objects.get(job="bad").ok_at is None
    scheduled("ok")
    assert JobRun.objects.filter(job="bad").count() == 1
