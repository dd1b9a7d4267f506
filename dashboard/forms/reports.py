"""The form of a report: what every report asks for, and the parameters of its kind."""

from __future__ import annotations

import zoneinfo
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django_celery_beat.models import PeriodicTask

from broker.clock import SystemClock
from dashboard.models import Report
from dashboard.offset_range import GRAMMAR, parse_offset_range
from dashboard.schedules.plan import expression_of
from spark_tasks.job import Format
from spark_tasks.report import Report as Kind

if TYPE_CHECKING:
    _ReportForm = forms.ModelForm[Report]
else:  # Django's own class takes no parameters
    _ReportForm = forms.ModelForm

PREFIX: Final = "parameter_"
MAX_TOPICS: Final = 50
FORMATS: Final = (
    ("none", "Values are not looked into"),
    ("json", "JSON objects"),
    ("csv", "CSV"),
    ("regex", "Text, by a regular expression"),
    ("avro", "Avro, with a schema"),
)
SCHEDULES: Final = (
    ("", "Not scheduled"),
    ("5 minutes", "Every 5 minutes"),
    ("15 minutes", "Every 15 minutes"),
    ("1 hours", "Every hour"),
    ("6 hours", "Every 6 hours"),
    ("1 days", "Every day"),
    ("cron", "By a cron expression…"),
)


class ReportForm(_ReportForm):
    format_kind = forms.ChoiceField(label="Values are", choices=FORMATS, initial="json")
    format_schema = forms.CharField(
        label="Schema",
        required=False,
        max_length=20_000,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text="Such as: user string, price double, at timestamp. Empty for JSON: found from a "
        "sample, and shown with the result. For Avro: the schema's JSON.",
    )
    format_expression = forms.CharField(
        label="Regular expression", required=False, max_length=2_000,
        help_text="Java's, with a named group for each field: (?<status>[0-9]+)",
    )  # fmt: skip
    format_separator = forms.CharField(
        label="CSV separator", required=False, max_length=1, initial=",", strip=False
    )
    format_skip_bytes = forms.IntegerField(
        label="Bytes before each Avro value", required=False, min_value=0, max_value=64, initial=0,
        help_text="5 where a schema registry was used.",
    )  # fmt: skip
    schedule = forms.ChoiceField(label="Schedule", choices=SCHEDULES, required=False)
    cron = forms.CharField(
        label="Cron expression", required=False, max_length=100,
        help_text="Minute, hour, day, month, weekday: 0 6 * * 1-5. At least 5 minutes apart.",
    )  # fmt: skip
    zone = forms.CharField(label="Its time zone", required=False, max_length=64, initial="UTC")

    class Meta:
        model = Report
        fields = (
            "name", "topics", "range", "is_incremental", "timeout_s", "keep_runs", "result_topic",
        )  # fmt: skip
        labels = {
            "topics": "Topics",
            "range": "Range",
            "is_incremental": "Go on where the last run stopped",
            "timeout_s": "May take (seconds)",
            "keep_runs": "Results kept",
            "result_topic": "Write rows to topic",
        }
        help_texts = {
            "topics": "Names, parted by commas.",
            "range": f"From where to where: {GRAMMAR}. Times count from each run.",
            "is_incremental": "The range then only counts for the first run.",
            "result_topic": "Empty: nowhere. The topic has to exist.",
        }
        widgets = {"topics": forms.TextInput(), "range": forms.TextInput()}

    def __init__(self, *args: Any, kind: Kind, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kind = kind
        if self.instance.pk:
            del self.fields["name"]
        given = Format(**self.instance.format)
        for name, value in asdict(given).items():
            field = self.fields[f"format_{name}"]
            if self.instance.format:
                field.initial = value
        for parameter in kind.parameters:
            self.fields[PREFIX + parameter.name] = forms.CharField(
                label=parameter.label,
                required=False,
                initial=self.instance.parameters.get(parameter.name, parameter.default),
                help_text=parameter.help_text,
                max_length=500,
            )
        if kind.input == "samples":
            for name in (
                "topics",
                "is_incremental",
                *(n for n in self.fields if n.startswith("format_")),
            ):
                del self.fields[name]
        else:
            self.fields["topics"].required = True
        if kind.reads_whole_log:
            del self.fields["range"], self.fields["is_incremental"]
        parameters = [PREFIX + parameter.name for parameter in kind.parameters]
        formats = [name for name in self.fields if name.startswith("format_")]
        order = ["name", "topics", *parameters, "range", "is_incremental", *formats, "schedule"]
        self.order_fields([*order, "cron", "zone"])

    def clean_topics(self) -> str:
        names = sorted(
            {name.strip() for name in str(self.cleaned_data["topics"]).split(",")} - {""}
        )
        if not 0 < len(names) <= MAX_TOPICS:
            raise ValidationError(f"Between one and {MAX_TOPICS} topics, please.")
        return ", ".join(names)

    def clean_range(self) -> str:
        text = str(self.cleaned_data["range"]).strip()
        try:
            parse_offset_range(text, SystemClock().wall_ms())
        except ValueError as error:
            raise ValidationError(str(error)) from None
        return text

    def clean_zone(self) -> str:
        zone = str(self.cleaned_data["zone"]).strip() or "UTC"
        try:
            zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            raise ValidationError(f"There is no time zone {zone!r}.") from None
        return zone

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or {}
        for parameter in self.kind.parameters:
            try:
                parameter.parse(str(cleaned.get(PREFIX + parameter.name, "")))
            except ValueError as error:
                self.add_error(PREFIX + parameter.name, str(error))
        if cleaned.get("schedule") == "cron" and not cleaned.get("cron"):
            self.add_error("cron", "Which expression?")
        if "format_kind" in self.fields and not self.errors:
            self._check_format(cleaned)
        if not self.errors:
            self.instance.kind = self.kind.name
            self.instance.parameters = {
                parameter.name: str(cleaned[PREFIX + parameter.name]).strip()
                for parameter in self.kind.parameters
            }
        return cleaned

    def _check_format(self, cleaned: dict[str, Any]) -> None:
        kind = cleaned["format_kind"]
        if kind == "none" and self.kind.needs_fields and self._looks_into_values():
            self.add_error("format_kind", "This report looks into values: how are they written?")
        if kind in ("csv", "avro") and not cleaned["format_schema"].strip():
            self.add_error("format_schema", "The schema is needed.")
        if kind == "regex" and "(?<" not in cleaned["format_expression"]:
            self.add_error("format_expression", "An expression with named groups is needed.")
        if self.errors:
            return  # what an error was added to is gone from the cleaned data
        self.instance.format = asdict(
            Format(
                kind,
                cleaned["format_schema"].strip(),
                cleaned["format_expression"],
                cleaned["format_separator"] or ",",
                cleaned["format_skip_bytes"] or 0,
            )
        )

    def _looks_into_values(self) -> bool:
        values = [
            str(self.cleaned_data.get(PREFIX + parameter.name, ""))
            for parameter in self.kind.parameters
            if parameter.kind == "field"
        ]
        return any(value and not value.startswith("@") for value in values)

    def schedule_fields(self) -> dict[str, Any]:
        """For ``services.reports.set_schedule``."""
        chosen = self.cleaned_data["schedule"]
        if chosen == "cron":
            return {"expression": self.cleaned_data["cron"], "zone": self.cleaned_data["zone"]}
        if not chosen:
            return {}
        every, period = chosen.split(" ")
        return {"every": int(every), "period": period}


def schedule_initial(task: PeriodicTask | None) -> dict[str, Any]:
    """What stands in the form for a schedule that there is."""
    if task is None:
        return {}
    if task.interval is not None:
        return {"schedule": f"{task.interval.every} {task.interval.period}"}
    return {"schedule": "cron", "cron": expression_of(task), "zone": str(task.crontab.timezone)}
