"""What a page of records was asked for, in its address: checked, and turned into a scan."""

from __future__ import annotations

from typing import Any, Final, cast

from django import forms

from broker.clock import SystemClock
from dashboard import clusters, cursor
from dashboard.scan.requests import (
    MAX_BYTES,
    MAX_RECORDS,
    MAX_SECONDS,
    Bounds,
    Cluster,
    Range,
    ScanRequest,
    Start,
    View,
    Wanted,
    Way,
)
from dashboard.times import TimeField, parse_time

STARTS: Final = (
    ("newest", "Newest first"),
    ("oldest", "From the beginning"),
    ("offset", "From an offset"),
    ("time", "From a time"),
    ("last", "Last N of each partition"),
)
VIEWS: Final = (("auto", "Automatic"), ("text", "Text"), ("json", "JSON"), ("hex", "Hex"))
ROWS: Final = ((20, "20"), (50, "50"), (100, "100"), (200, "200"))
DEFAULT_ROWS: Final = 50
MEBIBYTE: Final = 1024 * 1024
MAX_OFFSET: Final = 2**63 - 1
DEFAULTS: Final = Bounds()
MAX_PARTITION_WORDS: Final = 20_000
NOW_MS: Final = 60_000


class MessageForm(forms.Form):
    """Everything is optional: an address without parameters shows the newest records."""

    start = forms.ChoiceField(choices=STARTS, required=False)
    at = forms.CharField(required=False, max_length=40)
    """Offset, time or count, by ``start``."""
    since = TimeField(required=False)
    until = TimeField(required=False)
    partition = forms.CharField(required=False, max_length=MAX_PARTITION_WORDS)
    rows = forms.TypedChoiceField(choices=ROWS, coerce=int, required=False)
    view = forms.ChoiceField(choices=VIEWS, required=False)
    key = forms.CharField(required=False, max_length=1_000, strip=False)
    value = forms.CharField(required=False, max_length=1_000, strip=False)
    header = forms.CharField(required=False, max_length=1_000, strip=False)
    filter = forms.CharField(required=False, max_length=2_000, strip=False)
    records = forms.IntegerField(required=False, min_value=1, max_value=MAX_RECORDS)
    mib = forms.IntegerField(required=False, min_value=1, max_value=MAX_BYTES // MEBIBYTE)
    seconds = forms.IntegerField(required=False, min_value=1, max_value=MAX_SECONDS)
    cursor = forms.CharField(required=False, max_length=20_000)
    way = forms.ChoiceField(choices=(("backward", "Older"), ("forward", "Newer")), required=False)

    def clean_partition(self) -> tuple[int, ...]:
        numbers: set[int] = set()
        for word in self.cleaned_data["partition"].replace(",", " ").split():
            first, dash, last = word.partition("-")
            if not (first.isdecimal() and (last.isdecimal() if dash else not last)):
                raise forms.ValidationError(f"{word[:40]} is no partition; write 0, 3-5")
            span = range(int(first), int(last or first) + 1)
            if len(span) > 10_000:
                raise forms.ValidationError("at most 10,000 partitions at once")
            numbers.update(span)
        return tuple(sorted(numbers))

    def clean_cursor(self) -> dict[int, int] | None:
        try:
            text = self.cleaned_data["cursor"]
            return cursor.decode(text) if text else None
        except cursor.CursorError as error:
            raise forms.ValidationError(str(error)) from None

    def clean(self) -> dict[str, Any]:
        found = self.cleaned_data
        start, at = found.get("start") or "newest", (found.get("at") or "").strip()
        found["start_value"] = 0
        try:
            if start == "time":
                found["start_value"] = _milliseconds(at)
            elif start in ("offset", "last"):
                found["start_value"] = _count(at)
        except ValueError as error:
            self.add_error("at", str(error))
        since_ms, until_ms = found.get("since"), found.get("until")
        if since_ms is not None and until_ms is not None and since_ms >= until_ms:
            self.add_error("until", "the range of times ends before it begins")
        return found

    @property
    def chosen_start(self) -> str:
        return str(self.cleaned_data.get("start") or "newest")

    @property
    def is_newest_first(self) -> bool:
        return self.chosen_start == "newest"

    def wanted(self) -> Wanted:
        found = self.cleaned_data
        return Wanted(found["filter"], found["key"], found["value"], found["header"])

    def bounds(self) -> Bounds:
        found = self.cleaned_data
        return Bounds(
            found["records"] or DEFAULTS.records,
            (found["mib"] or DEFAULTS.size_bytes // MEBIBYTE) * MEBIBYTE,
            found["seconds"] or DEFAULTS.seconds,
        )

    def range(self, topic: str) -> Range:
        """With a cursor its way counts; without, the start's own."""
        found = self.cleaned_data
        way = "backward" if self.is_newest_first else "forward"
        if found["cursor"] is not None:
            way = found["way"] or way
        return Range(
            topic,
            found["partition"],
            cast(Start, self.chosen_start),
            found["start_value"],
            found["cursor"],
            cast(Way, way),
            found["since"],
            found["until"],
            is_open(found["until"]),
        )

    def scan(self, topic: str) -> ScanRequest:
        found = self.cleaned_data
        return ScanRequest(
            cluster(),
            self.range(topic),
            self.wanted(),
            self.bounds(),
            found["rows"] or DEFAULT_ROWS,
            cast(View, found["view"] or "auto"),
        )


def cluster() -> Cluster:
    """The cluster of this dashboard, as a child needs it."""
    return Cluster(clusters.bootstrap(), clusters.properties())


def is_open(until_ms: int | None) -> bool:
    """Whether a range of times that ends then goes on as we look: it does to the minute."""
    return until_ms is not None and until_ms >= SystemClock().wall_ms() - NOW_MS


def _milliseconds(text: str) -> int:
    found = parse_time(text)
    if found is None:
        raise ValueError("choose a time")
    return found


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("a whole number is needed here")
    return min(int(text), MAX_OFFSET)
