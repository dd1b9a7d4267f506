"""What commands about reports share. Brings Django in: imported only by those."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from appliance import people
from appliance.failure import CommandError

if TYPE_CHECKING:
    from dashboard.models import JobRun, Report


def find(data: Path, name: str) -> Report:
    people.open_database(data)
    from dashboard.models import Report

    found = Report.objects.filter(name=name).first()
    if found is None:
        raise CommandError(
            f"there is no report {name!r}",
            hint="`odradek report list` shows which there are.",
            code="REPORT_NOT_FOUND",
        )
    return found


def find_run(report: Report, run_id: int | None) -> JobRun:
    """A run with a result: the one that is named, else the newest."""
    from dashboard.selectors.reports import WITH_RESULT, runs_of

    runs = runs_of(report).filter(state__in=WITH_RESULT)
    found: JobRun | None = (runs.filter(pk=run_id) if run_id is not None else runs).first()
    if found is None:
        which = f"run {run_id} of {report.name}" if run_id is not None else report.name
        raise CommandError(f"{which} has no result", code="NO_RESULT")
    return found
