"""The form of a schedule."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django_celery_beat.models import PeriodicTask

from dashboard import times
from dashboard.jobs import JobKind
from dashboard.schedules.plan import expression_of
from dashboard.services.schedules import Asked, call_of

MAX_TOPICS: Final = 500
PERIODS: Final = [
    ("seconds", "seconds"),
    ("minutes", "minutes"),
    ("hours", "hours"),
    ("days", "days"),
]


class ScheduleForm(forms.Form):
    """``task`` None: a new one. Parameters that the form does not show stay as they are."""

    name = forms.CharField(max_length=200, strip=True)
    kind = forms.ChoiceField(
        label="When",
        choices=[("interval", "Every so often"), ("cron", "By a cron expression")],
        widget=forms.RadioSelect,
        initial="interval",
    )
    every = forms.IntegerField(min_value=1, max_value=999_999, required=False, initial=10)
    period = forms.ChoiceField(label="Unit", choices=PERIODS, initial="minutes")
    expression = forms.CharField(
        label="Cron expression",
        max_length=240,
        required=False,
        help_text="Minute, hour, day of the month, month, day of the week: 30 2 * * mon-fri is 02:30 on"
        " working days. @hourly and @daily are understood.",
    )
    zone = forms.CharField(
        label="Time zone of the expression",
        max_length=63,
        required=False,
        initial="UTC",
        widget=forms.TextInput(attrs={"list": "zones", "autocomplete": "off"}),
        help_text="On the nights on which clocks change, a schedule of every hour follows the time that"
        " passes, and one of particular hours runs once.",
    )
    topics = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Names, separated by commas or blanks; empty: all.",
    )
    is_on = forms.BooleanField(label="On", required=False, initial=True)

    def __init__(self, data: Any, *, kind: JobKind, task: PeriodicTask | None = None) -> None:
        self.job_kind = kind
        self._call = call_of(task) if task is not None else None
        super().__init__(data, initial=_initial(task) if task is not None else {"name": kind.label})
        if not kind.takes_topics:
            del self.fields["topics"]

    def clean_zone(self) -> str:
        zone = str(self.cleaned_data["zone"]) or "UTC"
        if zone == "browser" or not times.is_zone(zone):
            raise ValidationError("There is no such time zone.")
        return zone

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or {}
        if cleaned.get("kind") == "interval" and not cleaned.get("every") and not self.errors:
            self.add_error("every", "How often?")
        return cleaned

    def asked(self) -> Asked:
        given = self.cleaned_data
        is_cron = given["kind"] == "cron"
        parameters = dict(self._call.parameters) if self._call else {}
        target = self._call.target if self._call else ""
        if "topics" in self.fields:
            names = str(given["topics"]).replace(",", " ").split()[:MAX_TOPICS]
            parameters.pop("topics", None)
            parameters |= {"topics": names} if names else {}
            target = ", ".join(names)[:300]
        return Asked(
            name=given["name"],
            job=self.job_kind.name,
            is_on=given["is_on"],
            every=None if is_cron else given["every"],
            period=given["period"],
            expression=given["expression"],
            zone=given["zone"],
            target=target,
            parameters=parameters,
        )


def _initial(task: PeriodicTask) -> dict[str, Any]:
    found: dict[str, Any] = {"name": task.name, "is_on": task.enabled}
    if task.interval is not None:
        found |= {"kind": "interval", "every": task.interval.every, "period": task.interval.period}
    elif task.crontab is not None:
        found |= {
            "kind": "cron",
            "expression": expression_of(task),
            "zone": str(task.crontab.timezone),
        }
    topics = call_of(task).parameters.get("topics")
    return found | ({"topics": " ".join(map(str, topics))} if isinstance(topics, list) else {})
