"""A run's life, as its worker tells it: every step is a compare-and-set on the row.

A worker that lost its lease (it slept, its machine was away) finds that its steps change nothing,
and gives up: nobody finishes a run that somebody else has declared lost.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from dashboard.jobs import KINDS
from dashboard.models import JobMark, JobRun
from dashboard.services import jobs

logger = logging.getLogger(__name__)

LEASE_S = 30
MAX_ERROR_CHARACTERS = 20_000
RING_AFTER_S = 10
"""A run that was queued just now has its bell on the way."""
INTERRUPTED = "its worker was stopped before it was done: it begins again"
MAX_RINGS = 200
"""Bells of one sweep; the next one goes on."""


class Swept(NamedTuple):
    lost: int
    rung: int


def claim(*, run_id: int, worker: str) -> JobRun | None:
    """Make a queued run this worker's; None when it is somebody else's, or over."""
    now = timezone.now()
    taken = JobRun.objects.filter(pk=run_id, state=JobRun.State.QUEUED).update(
        state=JobRun.State.RUNNING,
        worker=worker,
        started_at=now,
        lease_until=now + timedelta(seconds=LEASE_S),
    )
    return JobRun.objects.get(pk=run_id) if taken else None


def _mine(run_id: int, worker: str) -> QuerySet[JobRun]:
    return JobRun.objects.filter(pk=run_id, state=JobRun.State.RUNNING, worker=worker)


def renew(*, run_ids: Collection[int], worker: str) -> set[int]:
    """Those of the runs that are still this worker's, for another ``LEASE_S``."""
    until = timezone.now() + timedelta(seconds=LEASE_S)
    mine = JobRun.objects.filter(pk__in=run_ids, state=JobRun.State.RUNNING, worker=worker)
    mine.update(lease_until=until)
    return set(mine.values_list("pk", flat=True))


def report(*, run_id: int, worker: str, done: int, total: int | None, text: str) -> bool:
    """Write how far it is; whether it may go on."""
    mine = _mine(run_id, worker)
    if not mine.update(done=done, total=total, progress_text=text[:200]):
        return False
    return not mine.filter(is_cancel_requested=True).exists()


def remember(*, run_id: int, worker: str, parameters: dict[str, Any]) -> bool:
    return bool(_mine(run_id, worker).update(parameters=parameters))


def finish(*, run_id: int, worker: str, state: str, result: Any = None, error: str = "") -> bool:
    """End a run of this worker's; False when it is not this worker's any more.

    A scheduled run that found nothing to do (``ok`` without a result) leaves a mark and no row; one
    that fails as the one before it did takes that one's place.
    """
    now = timezone.now()
    with transaction.atomic():
        ended = _mine(run_id, worker).update(
            state=state,
            result=result,
            error=error[:MAX_ERROR_CHARACTERS],
            finished_at=now,
            lease_until=None,
        )
        if not ended:
            return False
        run = JobRun.objects.get(pk=run_id)
        is_idle = (
            state == JobRun.State.OK and result is None and run.trigger == JobRun.Trigger.SCHEDULE
        )
        if KINDS.get(run.job) is None or KINDS[run.job].has_schedule:
            _mark(run, is_idle=is_idle)
        if is_idle:
            run.delete()
        elif state == JobRun.State.FAILED and run.trigger == JobRun.Trigger.SCHEDULE:
            _stand_for_the_one_before(run)
    return True


def _mark(run: JobRun, *, is_idle: bool) -> None:
    is_ok = run.state == JobRun.State.OK
    mark, _ = JobMark.objects.get_or_create(
        job=run.job, target=run.target, defaults={"finished_at": timezone.now()}
    )
    mark.finished_at = run.finished_at or timezone.now()
    mark.state = run.state
    mark.took_ms = int(run.took_ms or 0)
    mark.ok_at = mark.finished_at if is_ok else mark.ok_at
    mark.idle_count = mark.idle_count + 1 if is_idle else 0
    mark.save()


def _stand_for_the_one_before(run: JobRun) -> None:
    """A fault that lasts is one row that counts, not one a minute."""
    before = (
        JobRun.objects.filter(job=run.job, target=run.target, pk__lt=run.pk)
        .exclude(state__in=JobRun.UNFINISHED)
        .order_by("-pk")
        .first()
    )
    if (
        before is None
        or (before.state, before.trigger) != (run.state, run.trigger)
        or before.error_line != run.error_line
    ):
        return
    run.repeat_count = before.repeat_count + 1
    run.repeats_since = before.repeats_since or before.queued_at
    run.save(update_fields=["repeat_count", "repeats_since"])
    before.delete()


def requeue(*, run_id: int, worker: str) -> bool:
    """Put it back: it begins anew. What is said of it is that it was interrupted."""
    return bool(
        _mine(run_id, worker).update(
            state=JobRun.State.QUEUED,
            worker="",
            started_at=None,
            lease_until=None,
            done=0,
            total=None,
            progress_text=INTERRUPTED,
        )
    )


def sweep() -> Swept:
    """Declare runs lost whose worker is gone; ring again for those that nobody has taken."""
    now = timezone.now()
    lost = JobRun.objects.filter(state=JobRun.State.RUNNING, lease_until__lt=now).update(
        state=JobRun.State.LOST,
        finished_at=now,
        error="Its worker ended, or stopped answering, before the job was done.",
    )
    if lost:
        logger.warning("%d runs are lost: their worker is gone", lost)
    waiting = JobRun.objects.filter(
        state=JobRun.State.QUEUED, queued_at__lt=now - timedelta(seconds=RING_AFTER_S)
    ).order_by("queued_at", "pk")[:MAX_RINGS]
    rung = 0
    for run in waiting:
        jobs.ring(run)
        rung += 1
    return Swept(lost, rung)


def next_queued(
    *, quick: Collection[str] = (), only: Collection[str] | None = None
) -> JobRun | None:
    """The run that waits longest for a slot: of ``only`` these jobs, or of all but the ``quick``."""
    waiting = JobRun.objects.filter(state=JobRun.State.QUEUED)
    return (
        (waiting.filter(job__in=only) if only is not None else waiting.exclude(job__in=quick))
        .order_by("queued_at", "pk")
        .first()
    )
