"""``odradek report list``, ``show`` and ``export``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from appliance import people, reports
from appliance.failure import EXIT_OK, CommandError
from appliance.options import command, data_option, pass_session
from appliance.output import Column, Report, Table, milliseconds, render_table
from appliance.session import Session

if TYPE_CHECKING:
    from dashboard.models import JobRun

LIST_COLUMNS = (
    Column("report"),
    Column("kind"),
    Column("topics"),
    Column("schedule"),
    Column("next_run", "moment"),
    Column("last_state"),
    Column("last_run", "moment"),
    Column("last_rows", "count", is_wide=True),
)
RUN_COLUMNS = (
    Column("run", "count"),
    Column("state"),
    Column("trigger"),
    Column("started", "moment"),
    Column("took_ms", "count"),
    Column("records", "count"),
    Column("not_parsed", "count"),
    Column("rows", "count"),
    Column("error", is_wide=True),
)
SHOWN_RUNS = 10


@command("list")
@data_option("Where everything is kept.")
@pass_session
def list_reports(session: Session, data: Path) -> int:
    """List reports: what, of which topics, when, and how the last run went."""
    people.open_database(data)
    from dashboard.models import Report as Row
    from dashboard.selectors.reports import row_of

    rows = []
    for row in map(row_of, Row.objects.all()):
        last = row.last
        rows.append(
            {
                "report": row.report.name,
                "kind": row.report.kind,
                "topics": row.report.topics,
                "schedule": row.schedule,
                "next_run": milliseconds(row.next_at),
                "last_state": last.state if last else None,
                "last_run": milliseconds(last.started_at) if last else None,
                "last_rows": (last.result or {}).get("row_count") if last else None,
            }
        )
    return session.emit(Report([Table(LIST_COLUMNS, rows)]))


def run_row(run: JobRun) -> dict[str, Any]:
    result = run.result or {}
    read = result.get("read") or {}
    return {
        "run": run.pk,
        "state": run.state,
        "trigger": run.trigger,
        "started": milliseconds(run.started_at),
        "took_ms": None if run.took_ms is None else int(run.took_ms),
        "records": read.get("records"),
        "not_parsed": read.get("not_parsed"),
        "rows": result.get("row_count"),
        "error": run.error.partition("\n")[0] or None,
    }


@command("show")
@click.argument("name", metavar="REPORT")
@click.option("--run", "run_id", type=int, help="The rows of this run; else of the newest.")
@data_option("Where everything is kept.")
@pass_session
def show(session: Session, name: str, run_id: int | None, data: Path) -> int:
    """The last runs of a report, and the rows of one. Documents hold the rows alone."""
    report = reports.find(data, name)
    from dashboard.selectors.reports import runs_of
    from dashboard.spark import results

    runs = [run_row(run) for run in runs_of(report)[:SHOWN_RUNS]]
    history = Table(RUN_COLUMNS, runs, title="runs")
    try:
        chosen = reports.find_run(report, run_id)
    except CommandError:
        if run_id is not None:
            raise
        return session.emit(Report([history], data=[]))
    document = results.rows_of(report.name, chosen.pk)
    if document is None:
        raise CommandError(f"the files of run {chosen.pk} are gone", code="NO_RESULT")
    table = result_table(document, f"result of run {chosen.pk}")
    text = "\n".join(render_table(each, wide=session.format == "wide") for each in (history, table))
    return session.emit(Report([table], text=text))


def result_table(document: dict[str, Any], title: str) -> Table:
    from dashboard.selectors.reports import is_numeric

    columns = [
        Column(each["name"], "count" if is_numeric(each["type"]) else "text")
        for each in document["columns"]
    ]
    names = [column.key for column in columns]
    return Table(
        columns, [dict(zip(names, row, strict=True)) for row in document["rows"]], title=title
    )


@command("export")
@click.argument("name", metavar="REPORT")
@click.option("--run", "run_id", type=int, help="Of this run; else of the newest.")
@click.option(
    "--as", "form", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="A file; else standard output."
)
@data_option("Where everything is kept.")
@pass_session
def export(
    session: Session, name: str, run_id: int | None, form: str, output: Path | None, data: Path
) -> int:
    """Write the whole result of a run."""
    report = reports.find(data, name)
    from dashboard.spark import results

    chosen = reports.find_run(report, run_id)
    path = results.directory_of(report.name, chosen.pk) / f"result.{form}"
    try:
        with path.open("rb") as source:
            if output is None:
                shutil.copyfileobj(source, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            else:
                with output.open("wb") as target:
                    shutil.copyfileobj(source, target)
                session.note(f"run {chosen.pk} of {name} is in {output}")
    except FileNotFoundError as error:
        raise CommandError(f"{error.filename} is not there", code="NO_RESULT") from None
    return EXIT_OK
