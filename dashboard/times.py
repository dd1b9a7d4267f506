"""Times as people type and read them: one zone for tables, pickers, addresses and the API.

Inside everything is wall-clock milliseconds since 1970. A browser's ``datetime-local`` field knows no
zone, so what it sends is read in the person's chosen one (``dashboard.middleware`` makes it current),
and its label names that zone (``dashboard/parts/time_picker.html``).
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from typing import Any

from django import forms
from django.utils import timezone

MAX_MS = 253_402_300_799_999
"""The last millisecond of the year 9999: what a picker and RFC 3339 can tell."""
_PICKER = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?", re.ASCII)
_MILLISECONDS = re.compile(r"\d{1,15}", re.ASCII)


def parse_time(text: str, zone: dt.tzinfo | None = None) -> int | None:
    """Milliseconds of what a picker, a person or a program wrote; None for an empty text.

    ``2026-03-29T02:30`` is in ``zone`` (else the current one); RFC 3339 with an offset and plain
    milliseconds mean what they say. An hour that a change of clocks leaves out is taken as if they had
    not been changed; of one that comes twice the first is meant. Raises ValueError with words for people.
    """
    text = text.strip()
    if not text:
        return None
    if _MILLISECONDS.fullmatch(text):
        milliseconds = int(text)
    else:
        try:
            at = dt.datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"{text[:60]!r} is no time: write 2026-03-29T14:30") from None
        if at.tzinfo is None:
            if not _PICKER.fullmatch(text):
                raise ValueError(f"{text[:60]!r} is no time: write 2026-03-29T14:30")
            at = at.replace(tzinfo=zone or timezone.get_current_timezone())
        try:
            milliseconds = to_ms(at)
        except OverflowError:
            raise ValueError(f"{text[:60]!r} is before 1970") from None
    if not 0 <= milliseconds <= MAX_MS:
        raise ValueError(f"{text[:60]!r} is not between 1970 and 9999")
    return milliseconds


def to_ms(at: dt.datetime) -> int:
    """Exact, without floats."""
    since = at.astimezone(dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since // dt.timedelta(milliseconds=1)


def to_datetime(milliseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=milliseconds)


def picker_value(milliseconds: int | None, zone: dt.tzinfo | None = None) -> str:
    """What a ``datetime-local`` field shows: the current zone, to the millisecond when there are any."""
    if milliseconds is None or not 0 <= milliseconds <= MAX_MS:
        return ""
    local = to_datetime(milliseconds).astimezone(zone or timezone.get_current_timezone())
    timespec = "milliseconds" if milliseconds % 1000 else "seconds"
    return local.replace(tzinfo=None).isoformat(timespec=timespec)


def rfc3339(milliseconds: int | None) -> str | None:
    """In UTC, for programs; None where there is no such time."""
    if milliseconds is None or not 0 <= milliseconds <= MAX_MS:
        return None
    text = to_datetime(milliseconds).replace(tzinfo=None).isoformat(timespec="milliseconds")
    return f"{text}Z"


def is_zone(name: str) -> bool:
    """Whether a person may choose it: ``browser``, or a name of the IANA database."""
    return name in ("browser", "UTC") or name in zoneinfo.available_timezones()


class TimeInput(forms.DateTimeInput):
    """A picker to the second that shows milliseconds as a time in the current zone."""

    input_type = "datetime-local"

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__({"step": "1", **(attrs or {})})

    def format_value(self, value: Any) -> str | None:
        return picker_value(value) if isinstance(value, int) else value


class TimeField(forms.Field):
    """Cleans to milliseconds or None."""

    widget = TimeInput

    def to_python(self, value: Any) -> int | None:
        try:
            return parse_time(str(value or ""))
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None
