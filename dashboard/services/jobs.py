"""Asks for a run of a job, or for its end."""

from __future__ import annotations

import logging
from typing import Any

import celery
from django.db import IntegrityError, transaction
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from dashboard.jobs import KINDS
from dashboard.models import AuditEntry, JobRun
from dashboard.services.audit import Actor

logger = logging.getLogger(__name__)

RUN_TASK = "odradek.run"
"""The Celery task that takes a run by its id."""


class AlreadyQueued(Exception):
    """A run of this job and target is not finished yet."""


def trigger_of(actor: Actor) -> JobRun.Trigger:
    """Of a run that somebody asks for."""
    is_api = actor.source == AuditEntry.Source.API
    return JobRun.Trigger.API if is_api else JobRun.Trigger.PERSON


def enqueue(
    *,
    job: str,
    target: str,
    parameters: dict[str, Any],
    trigger: str,
    actor: Actor,
    schedule: PeriodicTask | None = None,
) -> JobRun:
    """The row first, then the bell; a bell that is not heard is rung again by the worker's sweep.

    Raises AlreadyQueued.
    """
    run = queue(
        job=job,
        target=target,
        parameters=parameters,
        trigger=trigger,
        actor=actor,
        schedule=schedule,
    )
    ring(run)
    return run


def queue(
    *,
    job: str,
    target: str,
    parameters: dict[str, Any],
    trigger: str,
    actor: Actor,
    schedule: PeriodicTask | None,
) -> JobRun:
    """The row alone: its bell is rung once the transaction around it has ended."""
    assert job in KINDS, job
    try:
        with transaction.atomic():
            return JobRun.objects.create(
                job=job,
                target=target,
                parameters=parameters,
                trigger=trigger,
                schedule=schedule,
                requested_by=actor.user,
                queued_at=timezone.now(),
            )
    except IntegrityError:
        words = f"{job} of {target}" if target else job
        raise AlreadyQueued(f"{words} is queued or running already") from None


def record_skipped(
    *, job: str, target: str, parameters: dict[str, Any], schedule: PeriodicTask
) -> None:
    """It was due while the run before it was not over."""
    now = timezone.now()
    JobRun.objects.create(
        job=job,
        target=target,
        parameters=parameters,
        trigger=JobRun.Trigger.SCHEDULE,
        schedule=schedule,
        state=JobRun.State.SKIPPED,
        queued_at=now,
        finished_at=now,
        error="The run before it was not over yet.",
    )


def ring(run: JobRun) -> None:
    try:
        celery.current_app.send_task(RUN_TASK, args=[run.pk])
    except Exception:  # the row is there; the sweep finds it
        logger.warning("the worker could not be told of run %s", run.pk, exc_info=True)


def cancel(*, run: JobRun) -> None:
    """A queued run ends now; a running one when it next says how far it is."""
    now = timezone.now()
    queued = JobRun.objects.filter(pk=run.pk, state=JobRun.State.QUEUED)
    if queued.update(state=JobRun.State.CANCELLED, finished_at=now, is_cancel_requested=True):
        return
    JobRun.objects.filter(pk=run.pk, state=JobRun.State.RUNNING).update(is_cancel_requested=True)
