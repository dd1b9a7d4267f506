"""The form that says where a group's offsets are to go."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from django import forms
from django.utils import timezone

from dashboard.offset_range import Anchor, Bound, parse_duration_ms
from dashboard.resetting import Kind, Target, parse_iso_duration_ms
from dashboard.selectors.group_reset import ResetRequest

SCOPES: Final = (
    ("all", "All that the group has committed"),
    ("topic", "One topic"),
    ("partitions", "Some partitions of a topic"),
)
PLACES: Final = (
    ("earliest", "Earliest: the start of each log"),
    ("latest", "Latest: the end of each log"),
    ("offset", "An offset"),
    ("time", "A time"),
    ("duration", "A duration ago"),
    ("shift", "Shift by so many records"),
    ("group", "Where another group is"),
)
MAX_PARTITION: Final = 1_000_000
MAX_OFFSET: Final = 2**63 - 1


class ResetForm(forms.Form):
    scope = forms.ChoiceField(choices=SCOPES, widget=forms.RadioSelect, initial="all")
    topic = forms.CharField(required=False, max_length=249, strip=True)
    partitions = forms.CharField(required=False, max_length=4000, help_text="Such as 0,3-5")
    to = forms.ChoiceField(choices=PLACES, widget=forms.RadioSelect, initial="earliest")
    offset = forms.IntegerField(required=False, min_value=0, max_value=MAX_OFFSET)
    time = forms.DateTimeField(
        required=False,
        input_formats=[
            "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f",
            "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d",
        ],
        widget=forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}),
    )  # fmt: skip
    duration = forms.CharField(required=False, max_length=40, help_text="Such as 90s, 1h30m, P1D")
    shift = forms.IntegerField(
        required=False,
        min_value=-MAX_OFFSET,
        max_value=MAX_OFFSET,
        help_text="Negative: back, so that records are read again",
    )
    source = forms.CharField(required=False, strip=False)

    def clean_partitions(self) -> frozenset[int] | None:
        text = self.cleaned_data["partitions"]
        try:
            return parse_partitions(text) if text else None
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None

    def clean(self) -> dict[str, Any]:
        data = self.cleaned_data
        scope, place = data.get("scope"), data.get("to")
        if scope in ("topic", "partitions") and not data.get("topic"):
            self.add_error("topic", "Which topic?")
        is_given = data.get("partitions") is not None or self.has_error("partitions")
        if scope == "partitions" and not is_given:
            self.add_error("partitions", "Which partitions? Such as 0,3-5")
        field = {"group": "source"}.get(str(place), str(place))
        is_needed = field in ("offset", "time", "duration", "shift", "source")
        if is_needed and data.get(field) in (None, "") and not self.has_error(field):
            self.add_error(field, "This is needed for the place that was chosen.")
        if place == "duration" and data.get("duration"):
            try:
                data["duration_ms"] = _duration_ms(data["duration"])
            except ValueError as error:
                self.add_error("duration", str(error))
        return data

    def request(self, group: str, now_ms: int) -> ResetRequest:
        """Of a valid form."""
        data = self.cleaned_data
        scope = data["scope"]
        return ResetRequest(
            group,
            self._target(now_ms),
            data["topic"] if scope != "all" else None,
            data["partitions"] if scope == "partitions" else None,
            data["source"] if data["to"] == "group" else None,
        )

    def _target(self, now_ms: int) -> Target:
        data = self.cleaned_data
        match data["to"]:
            case "earliest":
                return Target(Kind.PLACE, Bound(Anchor.START))
            case "latest":
                return Target(Kind.PLACE, Bound(Anchor.END))
            case "offset":
                return Target(Kind.PLACE, Bound(Anchor.OFFSET, data["offset"]))
            case "time":
                return Target(Kind.PLACE, Bound(Anchor.TIME, _milliseconds(data["time"])))
            case "duration":
                return Target(Kind.PLACE, Bound(Anchor.TIME, now_ms - data["duration_ms"]))
            case "shift":
                return Target(Kind.SHIFT, count=data["shift"])
            case _:
                return Target(Kind.GIVEN)


def parse_partitions(text: str) -> frozenset[int]:
    """``0,3-5``. Raises ValueError."""
    found: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, separator, last = part.partition("-")
        if not first.isascii() or not first.isdigit() or (separator and not last.isdigit()):
            raise ValueError(f"{part!r} is no partition; write such as 0,3-5")
        low, high = int(first), int(last or first)
        if high < low or high > MAX_PARTITION or high - low > 100_000:
            raise ValueError(f"{part!r} is no range of partitions")
        found.update(range(low, high + 1))
    return frozenset(found)


def _duration_ms(text: str) -> int:
    given = text.strip()
    if given.upper().startswith("P"):
        return parse_iso_duration_ms(given)
    return parse_duration_ms(given.removeprefix("-"))


def _milliseconds(moment: dt.datetime) -> int:
    """In the zone that the person chose, unless the moment has its own."""
    aware = moment if timezone.is_aware(moment) else timezone.make_aware(moment)
    return int(aware.timestamp() * 1000)
