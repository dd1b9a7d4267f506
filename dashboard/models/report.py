"""A report that somebody has set up: which one, of which topics, with which parameters."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models


class Report(models.Model):
    """Its runs are JobRuns of the job ``report`` whose target is its name, which never changes."""

    name = models.CharField(
        max_length=64,
        unique=True,
        validators=[
            RegexValidator(
                r"^[a-z0-9][a-z0-9._-]*\Z", "Small letters, digits, dot, - and _, please."
            )
        ],
    )
    kind = models.CharField(max_length=80)
    """A name in ``spark_tasks.registry``."""
    topics = models.TextField(blank=True, max_length=4000)
    """Names, parted by commas."""
    parameters = models.JSONField(default=dict)
    """As text, by name."""
    format = models.JSONField(default=dict)
    """Fields of ``spark_tasks.job.Format``."""
    range = models.CharField(max_length=200, default="start")
    """In the grammar of ``dashboard.offset_range``; relative times count from the run."""
    is_incremental = models.BooleanField(default=False)
    position = models.JSONField(default=dict)
    """Where the last incremental run stopped: ``{topic: {partition: next offset}}``."""
    timeout_s = models.PositiveIntegerField(
        default=1800, validators=[MinValueValidator(30), MaxValueValidator(86_400)]
    )
    keep_runs = models.PositiveIntegerField(
        default=20, validators=[MinValueValidator(1), MaxValueValidator(500)]
    )
    """Results that are kept; rows of runs have a bound of their own."""
    result_topic = models.CharField(max_length=249, blank=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def topic_names(self) -> list[str]:
        return [name.strip() for name in self.topics.split(",") if name.strip()]
