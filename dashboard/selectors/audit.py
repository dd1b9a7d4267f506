"""The audit log as pages, API and CSV read it: searched, paged, told as a difference."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from dashboard import times
from dashboard.models import AuditEntry

PAGE_SIZE = 50
MAX_PAGE = 10_000
CSV_ROWS = 20_000
_CSV_HEAD = (
    "time", "time_utc", "who", "address", "by_way_of", "what", "target", "refused", "before", "after",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class AuditSearch:
    """Everything given has to hold. ``text`` is looked for in name, target, action and address."""

    text: str = ""
    who: str = ""
    action: str = ""
    """All or the first words of one: ``topic`` finds ``topic.create``."""
    target: str = ""
    source: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    only_refused: bool = False


@dataclass(frozen=True, slots=True)
class AuditPage:
    entries: list[AuditEntry]
    number: int
    has_next: bool

    @property
    def previous(self) -> int | None:
        """None is the first page."""
        return self.number - 1 if self.number > 2 else None

    @property
    def next(self) -> int:
        return self.number + 1


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that was, that is, or both."""

    name: str
    before: str | None
    after: str | None

    @property
    def is_changed(self) -> bool:
        return self.before != self.after


def search(wanted: AuditSearch) -> QuerySet[AuditEntry]:
    """Newest first."""
    found = AuditEntry.objects.all()
    for word in wanted.text.split():
        found = found.filter(
            Q(actor_name__icontains=word)
            | Q(target__icontains=word)
            | Q(action__icontains=word)
            | Q(address__icontains=word)
        )
    if wanted.who:
        found = found.filter(actor_name=wanted.who)
    if wanted.action:
        found = found.filter(Q(action=wanted.action) | Q(action__startswith=f"{wanted.action}."))
    if wanted.target:
        found = found.filter(target=wanted.target)
    if wanted.source:
        found = found.filter(source=wanted.source)
    if wanted.since_ms is not None:
        found = found.filter(at__gte=times.to_datetime(wanted.since_ms))
    if wanted.until_ms is not None:
        found = found.filter(at__lte=times.to_datetime(wanted.until_ms))
    if wanted.only_refused:
        found = found.exclude(failure="")
    return found


def page(wanted: AuditSearch, number: int, size: int = PAGE_SIZE) -> AuditPage:
    """Nothing is counted: a year of entries costs no more than one page."""
    number = min(max(1, number), MAX_PAGE)
    start = (number - 1) * size
    rows = list(search(wanted).defer("before", "after")[start : start + size + 1])
    return AuditPage(rows[:size], number, len(rows) > size)


def actions() -> list[str]:
    """Those that occur."""
    names = AuditEntry.objects.order_by("action").values_list("action", flat=True)
    return list(names.distinct())


def difference(entry: AuditEntry) -> list[Difference]:
    """Before and after, value by value; nested ones under dotted names."""
    before = dict(_flat(entry.before))
    after = dict(_flat(entry.after))
    return [
        Difference(name, before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
    ]


def as_csv(wanted: AuditSearch) -> str:
    """The newest CSV_ROWS of what matches; times in the current zone and in UTC."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_CSV_HEAD)
    for entry in search(wanted)[:CSV_ROWS].iterator(chunk_size=2000):
        row = [
            timezone.localtime(entry.at).isoformat(timespec="milliseconds"),
            times.rfc3339(times.to_ms(entry.at)) or "",
            entry.actor_name,
            entry.address,
            entry.source,
            entry.action,
            entry.target,
            entry.failure,
            "" if entry.before is None else json.dumps(entry.before, ensure_ascii=False),
            "" if entry.after is None else json.dumps(entry.after, ensure_ascii=False),
        ]
        writer.writerow([_cell(value) for value in row])
    return out.getvalue()


def _cell(text: str) -> str:
    """A spreadsheet must not run what somebody named a topic or typed as a user name."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else str(name))
    elif value is not None:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield path or "value", text
