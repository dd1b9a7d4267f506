"""Reports as their pages and commands show them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, Final

from django.core.paginator import Page, Paginator
from django_celery_beat.models import PeriodicTask

from dashboard import times
from dashboard.jobs import REPORT
from dashboard.models import JobRun, Report, User
from dashboard.permissions import Permission, may
from dashboard.schedules.plan import expression_of, following, plan_of
from dashboard.services import reports as service
from dashboard.spark import catalog, results
from spark_tasks.report import Report as Kind

TICKS: Final = 20
PER_PAGE: Final = 30
GOOD: Final = frozenset({JobRun.State.OK})
BADGES: Final = {
    JobRun.State.OK: "good",
    JobRun.State.FAILED: "bad",
    JobRun.State.LOST: "bad",
    JobRun.State.INCOMPLETE: "warn",
}
WITH_RESULT: Final = (JobRun.State.OK, JobRun.State.INCOMPLETE)


@dataclass(frozen=True, slots=True)
class Tick:
    run: JobRun
    badge: str


@dataclass(frozen=True, slots=True)
class ReportRow:
    report: Report
    title: str
    schedule: str
    next_at: dt.datetime | None
    last: JobRun | None
    ticks: list[Tick]
    """Oldest first."""


def may_see(user: Any, report: Report) -> bool:
    """Who may read all of its topics."""
    return may(user, Permission.SEE) and all(
        may(user, Permission.READ_RECORDS, topic) for topic in report.topic_names
    )


def rows(user: User) -> list[ReportRow]:
    return [row_of(report) for report in Report.objects.all() if may_see(user, report)]


def row_of(report: Report) -> ReportRow:
    kind = catalog.find(report.kind)
    task = service.schedule_of(report)
    newest = list(runs_of(report)[:TICKS])
    return ReportRow(
        report,
        kind.title if kind else report.kind,
        schedule_in_words(task),
        next_run(task),
        newest[0] if newest else None,
        [Tick(run, badge(run)) for run in reversed(newest)],
    )


def runs_of(report: Report) -> Any:
    return JobRun.objects.filter(job=REPORT, target=report.name).select_related("requested_by")


def history(report: Report, page: str | None) -> Page[JobRun]:
    return Paginator(runs_of(report), PER_PAGE).get_page(page)


def badge(run: JobRun) -> str:
    return BADGES.get(JobRun.State(run.state), "")


def schedule_in_words(task: PeriodicTask | None) -> str:
    if task is None:
        return "not scheduled"
    off = "" if task.enabled else " (off)"
    if task.interval is not None:
        every, period = task.interval.every, task.interval.period
        return (f"every {period[:-1]}" if every == 1 else f"every {every} {period}") + off
    expression = expression_of(task)
    minute, hour, day, month, weekday = expression.split(" ")
    zone = str(task.crontab.timezone)
    is_daily = (day, month) == ("*", "*") and minute.isdecimal()
    if is_daily and weekday == "*" and hour.isdecimal():
        return f"every day at {int(hour):02}:{int(minute):02} ({zone}){off}"
    if is_daily and weekday == "*" and hour == "*":
        return f"every hour at minute {int(minute)}{off}"
    return f"{expression} ({zone}){off}"


def next_run(task: PeriodicTask | None) -> dt.datetime | None:
    if task is None or not task.enabled:
        return None
    try:
        found = following(plan_of(task), task.last_run_at or task.date_changed, 1)
    except ValueError:
        return None
    return found[0] if found else None


@dataclass(frozen=True, slots=True)
class Cell:
    text: Any
    is_number: bool
    share: int | None = None
    """Of the largest in its column, in thousandths: the length of a bar."""
    at_ms: int | None = None
    """Where it is a moment: shown in the chosen zone, while files hold it in UTC."""


@dataclass(frozen=True, slots=True)
class ResultTable:
    """``before`` and ``change`` are columns of their own, where a previous run can be compared."""

    headers: list[tuple[str, bool]]
    rows: list[list[Cell]]
    compared_with: JobRun | None
    row_count: int
    shown: int


def result_table(report: Report, run: JobRun, kind: Kind | None) -> ResultTable | None:
    """None when its files are gone."""
    document = results.rows_of(report.name, run.pk)
    if document is None or run.result is None:
        return None
    columns, found = document["columns"], document["rows"]
    numeric = [is_numeric(column["type"]) for column in columns]
    is_moment = [column["type"] == "timestamp" for column in columns]
    measure = measure_of(kind, columns)
    previous, before = _previous(report, run, columns, measure)
    headers = [
        (column["name"].replace("_", " "), number)
        for column, number in zip(columns, numeric, strict=True)
    ]
    if previous is not None and measure is not None:
        headers += [
            (f"{columns[measure]['name'].replace('_', ' ')} before", True),
            ("change", True),
        ]
    bars = measure if kind is not None and kind.chart.kind == "bar" else None
    largest = max((_float(row[bars]) for row in found), default=0.0) if bars is not None else 0.0
    made = []
    for row in found:
        cells = [
            Cell(
                value,
                number,
                _share(value, largest) if place == bars else None,
                _at_ms(value) if is_moment[place] else None,
            )
            for place, (value, number) in enumerate(zip(row, numeric, strict=True))
        ]
        if previous is not None and measure is not None:
            was = before.get(_identity(row, columns, measure))
            cells += [Cell(was, True), Cell(_change(was, row[measure]), True)]
        made.append(cells)
    return ResultTable(headers, made, previous, run.result["row_count"], len(found))


def _at_ms(value: Any) -> int | None:
    try:
        return times.to_ms(dt.datetime.fromisoformat(value))
    except (TypeError, ValueError, OverflowError):
        return None


def is_numeric(type_name: str) -> bool:
    return type_name.startswith(("int", "bigint", "double", "float", "decimal", "long", "smallint"))


def measure_of(kind: Kind | None, columns: list[dict[str, str]]) -> int | None:
    """The column that the chart draws first; a report without a chart has none."""
    names = [column["name"] for column in columns]
    for wanted in y_columns(kind, names):
        return names.index(wanted)
    return None


def y_columns(kind: Kind | None, names: list[str]) -> list[str]:
    found: list[str] = []
    for wanted in kind.chart.y if kind is not None else ():
        if wanted.endswith("*"):
            found += [name for name in names if name.startswith(wanted[:-1]) and name[-1].isdigit()]
        elif wanted in names:
            found.append(wanted)
    return found


def _previous(
    report: Report, run: JobRun, columns: list[dict[str, str]], measure: int | None
) -> tuple[JobRun | None, dict[Any, Any]]:
    """The newest run before it with a result of the same columns, and its measure by row."""
    if measure is None:
        return None, {}
    earlier = runs_of(report).filter(state__in=WITH_RESULT, pk__lt=run.pk)[:5]
    for each in earlier:
        document = results.rows_of(report.name, each.pk)
        if document is not None and document["columns"] == columns:
            return each, {
                _identity(row, columns, measure): row[measure] for row in document["rows"]
            }
    return None, {}


def _identity(row: list[Any], columns: list[dict[str, str]], measure: int) -> tuple[Any, ...]:
    """What names a row: everything that is no figure."""
    return tuple(
        value
        for place, (value, column) in enumerate(zip(row, columns, strict=True))
        if place != measure and not is_numeric(column["type"])
    )


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _share(value: Any, largest: float) -> int | None:
    if value is None or largest <= 0:
        return None
    return max(0, round(_float(value) / largest * 1000))


def _change(before: Any, now: Any) -> str:
    if before is None or now is None:
        return "new" if before is None else "–"
    was, difference = _float(before), _float(now) - _float(before)
    if not difference:
        return "="
    of = f" ({difference / was * 100:+.1f} %)" if was else ""
    return f"{difference:+.6g}{of}"


def chart_data(report: Report, run: JobRun, kind: Kind) -> dict[str, Any]:
    """``{times, series}`` for static/dashboard/js/chart.js; at most 12 lines, the largest."""
    document = results.rows_of(report.name, run.pk) or {"columns": [], "rows": []}
    names = [column["name"] for column in document["columns"]]
    ys = y_columns(kind, names)
    if kind.chart.kind != "line" or kind.chart.x not in names or not ys:
        return {"times": [], "series": []}
    x = names.index(kind.chart.x)
    series = names.index(kind.chart.series) if kind.chart.series in names else None
    points: dict[str, dict[float, float | None]] = {}
    for row in document["rows"]:
        at_ms = _at_ms(row[x])
        if at_ms is None:
            continue
        at = at_ms / 1000
        group = str(row[series]) if series is not None else ""
        for y in ys:
            label = " ".join(
                part for part in (group, y if len(ys) > 1 or not group else "") if part
            )
            value = row[names.index(y)]
            points.setdefault(label, {})[at] = None if value is None else _float(value)
    moments = sorted({at for line in points.values() for at in line})
    largest = sorted(points, key=lambda label: -sum(v or 0 for v in points[label].values()))[:12]
    return {
        "times": moments,
        "series": [
            {
                "label": label,
                "unit": "",
                "values": [points[label].get(at) for at in moments],
            }
            for label in sorted(largest)
        ],
    }
