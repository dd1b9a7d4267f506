"""``odradek job list|runs|show``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from appliance import people
from appliance.failure import CommandError
from appliance.options import command, data_option, pass_session
from appliance.output import Column, Report, Table, milliseconds
from appliance.session import Session

if TYPE_CHECKING:
    from dashboard.models import JobRun

_SCHEDULES = (
    Column("schedule"),
    Column("job"),
    Column("when"),
    Column("on"),
    Column("last_done", "moment"),
    Column("state", "status"),
    Column("next", "moment"),
)
RUN_COLUMNS = (
    Column("run", "count"),
    Column("job"),
    Column("target"),
    Column("state", "status"),
    Column("trigger"),
    Column("begun", "moment"),
    Column("took_ms", "count"),
    Column("outcome"),
)
MAX_RUNS = 1000


@command("list")
@data_option("Where everything is kept.")
@pass_session
def list_jobs(session: Session, /, data: Path) -> int:
    """List schedules: what runs when, when it was last done and how that ended, when it is next."""
    people.open_database(data)
    from dashboard.selectors import jobs

    rows = [
        {
            "schedule": row.task.name,
            "job": row.kind.name,
            "when": f"{row.words} ({row.zone})" if row.zone else row.words,
            "on": row.task.enabled,
            "last_done": milliseconds(row.mark.finished_at if row.mark else None),
            "state": row.mark.state if row.mark else None,
            "next": milliseconds(row.next_times[0] if row.next_times else None),
        }
        for row in jobs.schedule_rows()
    ]
    return session.emit(Report([Table(_SCHEDULES, rows)]))


@command("runs")
@click.option("-n", "--limit", type=click.IntRange(1, MAX_RUNS), default=20, show_default=True)
@click.option("--job", "name", help="Only of this job.")
@data_option("Where everything is kept.")
@pass_session
def list_runs(session: Session, /, limit: int, name: str | None, data: Path) -> int:
    """List runs, the newest first. Scheduled ones that found nothing to do leave none."""
    people.open_database(data)
    from dashboard.selectors import jobs

    runs = jobs.visible_runs()
    if name is not None:
        runs = runs.filter(job=name)
    return session.emit(Report([Table(RUN_COLUMNS, [run_row(run) for run in runs[:limit]])]))


@command("show")
@click.argument("run_id", type=int, metavar="RUN")
@data_option("Where everything is kept.")
@pass_session
def show(session: Session, /, run_id: int, data: Path) -> int:
    """Show a run's row; its log goes to standard error."""
    people.open_database(data)
    from dashboard import run_logs
    from dashboard.selectors import jobs

    run = jobs.visible_runs().filter(pk=run_id).first()
    if run is None:
        raise CommandError(f"there is no run {run_id}", hint="`odradek job runs` lists them.")
    row = {**run_row(run), "parameters": run.parameters, "result": run.result, "error": run.error}
    code = session.emit(
        Report(
            [Table((*RUN_COLUMNS, Column("parameters"), Column("result"), Column("error")), [row])]
        )
    )
    sys.stderr.write(run_logs.read(run.pk) or "")
    return code


def run_row(run: JobRun) -> dict[str, Any]:
    from dashboard.templatetags.show import run_outcome

    return {
        "run": run.pk,
        "job": run.job,
        "target": run.target or None,
        "state": run.state,
        "trigger": run.trigger,
        "begun": milliseconds(run.started_at),
        "took_ms": None if run.took_ms is None else int(run.took_ms),
        "outcome": run.error_line or run_outcome(run),
    }
