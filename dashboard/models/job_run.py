"""One run of a job: the row is the truth, a message to a worker only a bell (DESIGN.md)."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q


class JobRun(models.Model):
    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        OK = "ok"
        FAILED = "failed"
        INCOMPLETE = "incomplete"
        """It came out, but of less than was asked for."""
        CANCELLED = "cancelled"
        LOST = "lost"
        """Its worker is gone: the lease ran out."""
        SKIPPED = "skipped"

    class Trigger(models.TextChoices):
        SCHEDULE = "schedule"
        PERSON = "person"
        API = "api"
        BROKER = "broker"
        """The broker did it by itself: nobody had asked in time."""

    UNFINISHED = (State.QUEUED, State.RUNNING)

    job = models.CharField(max_length=64)
    """A name in ``dashboard.jobs``."""
    target = models.CharField(max_length=300, blank=True)
    trigger = models.CharField(max_length=16, choices=Trigger)
    schedule = models.ForeignKey(
        "django_celery_beat.PeriodicTask",
        null=True,
        on_delete=models.SET_NULL,
        related_name="job_runs",
    )
    """That asked for it, or that somebody ran out of its turn."""
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    state = models.CharField(max_length=16, choices=State, default=State.QUEUED, db_index=True)
    parameters = models.JSONField(default=dict)
    done = models.BigIntegerField(default=0)
    total = models.BigIntegerField(null=True)
    progress_text = models.CharField(max_length=200, blank=True)
    result = models.JSONField(null=True)
    error = models.TextField(blank=True)
    """First line: what went wrong; then the details."""
    repeat_count = models.PositiveIntegerField(default=0)
    """Runs before it that failed the same way: this row stands for theirs too."""
    repeats_since = models.DateTimeField(null=True)
    is_cancel_requested = models.BooleanField(default=False)
    queued_at = models.DateTimeField(db_index=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    worker = models.CharField(max_length=128, blank=True)
    lease_until = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-queued_at", "-id")
        constraints = [
            models.UniqueConstraint(
                fields=["job", "target"],
                condition=Q(state__in=["queued", "running"]),
                name="one_unfinished_run_of_a_job_and_target",
            )
        ]

    @property
    def is_finished(self) -> bool:
        return self.state not in self.UNFINISHED

    @property
    def took_ms(self) -> float | None:
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds() * 1000

    @property
    def error_line(self) -> str:
        return self.error.partition("\n")[0]


class JobMark(models.Model):
    """When a job was last done, also when it found nothing to do and left no row."""

    job = models.CharField(max_length=64)
    target = models.CharField(max_length=300, blank=True)
    finished_at = models.DateTimeField()
    state = models.CharField(max_length=16, choices=JobRun.State)
    took_ms = models.PositiveBigIntegerField(default=0)
    ok_at = models.DateTimeField(null=True)
    """When it last ended well."""
    idle_count = models.PositiveIntegerField(default=0)
    """How often since then it was done and found nothing to do."""

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "target"], name="one_mark_of_a_job_and_target")
        ]
