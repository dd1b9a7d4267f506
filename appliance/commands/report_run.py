"""``odradek report run`` and ``schedule``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance import people, reports
from appliance.commands.report_show import RUN_COLUMNS, result_table, run_row
from appliance.failure import EXIT_FAILED, EXIT_OK, EXIT_USAGE, CommandError
from appliance.options import command, data_option, pass_session
from appliance.output import Column, Report, Table, milliseconds
from appliance.session import Session

if TYPE_CHECKING:
    from dashboard.models import JobRun

SCHEDULE_COLUMNS = (Column("report"), Column("schedule"), Column("next_run", "moment"))
POLL_S = 0.5
QUEUED_WORD_S = 15.0


@command("run")
@click.argument("name", metavar="REPORT")
@click.option("--no-wait", is_flag=True, help="Only ask for the run.")
@data_option("Where everything is kept.")
@pass_session
def run(session: Session, name: str, no_wait: bool, data: Path) -> int:
    """Compute a report now. Exit code 1 when the run fails."""
    report = reports.find(data, name)
    import appliance.celery  # noqa: F401 - whom the worker is told by
    from dashboard.services import jobs
    from dashboard.services import reports as service

    try:
        found = service.start(actor=people.actor(), report=report)
    except jobs.AlreadyQueued as error:
        raise CommandError(str(error), code="ALREADY_RUNNING") from None
    if no_wait:
        return session.emit(Report([Table(RUN_COLUMNS, [run_row(found)])]))
    _wait(session, found)
    if found.error:
        text, _, advice = found.error.partition("\n\n")[0].partition("\n")
        session.complain(f"run {found.pk} {found.state}: {text}", advice or None)
    from dashboard.spark import results

    document = results.rows_of(name, found.pk)
    if found.result is None or document is None:
        session.emit(Report([Table(RUN_COLUMNS, [run_row(found)])]))
        return EXIT_FAILED
    session.emit(Report([result_table(document, f"result of run {found.pk}")]))
    return EXIT_OK if found.state == found.State.OK else EXIT_FAILED


def _wait(session: Session, run: JobRun) -> None:
    """Until it is over; says what it does, and when nobody takes it."""
    told, word_at = "", time.monotonic() + QUEUED_WORD_S
    while not run.is_finished:
        time.sleep(POLL_S)
        run.refresh_from_db()
        text = f"{run.state}: {run.progress_text}" if run.progress_text else str(run.state)
        if text != told:
            told = text
            session.note(f"run {run.pk} {text}")
        if run.state == run.State.QUEUED and time.monotonic() > word_at:
            word_at = float("inf")
            session.note("no worker has taken it yet: is `odradek serve` running?")


@command("schedule")
@click.argument("name", metavar="REPORT")
@click.option("--every", metavar="DURATION", help="Such as 15m, 6h or 1d; at least 5m.")
@click.option("--cron", metavar="EXPRESSION", help="Such as '0 6 * * 1-5'.")
@click.option("--zone", default="UTC", show_default=True, help="Of the cron expression.")
@click.option("--off", is_flag=True, help="Not any more.")
@data_option("Where everything is kept.")
@pass_session
def schedule(
    session: Session,
    name: str,
    every: str | None,
    cron: str | None,
    zone: str,
    off: bool,
    data: Path,
) -> int:
    """Say when a report is computed; without an option, show when."""
    report = reports.find(data, name)
    from dashboard.selectors.reports import next_run, schedule_in_words
    from dashboard.services import reports as service
    from dashboard.services.schedules import ScheduleRefused

    if sum((every is not None, cron is not None, off)) > 1:
        raise click.UsageError("only one of --every, --cron and --off, please")
    try:
        if every is not None:
            count, period = _interval(every)
            service.set_schedule(actor=people.actor(), report=report, every=count, period=period)
        elif cron is not None:
            service.set_schedule(actor=people.actor(), report=report, expression=cron, zone=zone)
        elif off:
            service.set_schedule(actor=people.actor(), report=report)
    except ScheduleRefused as error:
        raise CommandError(str(error), code="REFUSED", exit_code=EXIT_USAGE) from None
    task = service.schedule_of(report)
    words = schedule_in_words(task)
    row = {"report": name, "schedule": words, "next_run": milliseconds(next_run(task))}
    return session.emit(Report([Table(SCHEDULE_COLUMNS, [row])], text=f"{name}: {words}\n"))


def _interval(text: str) -> tuple[int, str]:
    """In the largest unit that fits, as a person would say it."""
    from dashboard.offset_range import parse_duration_ms

    try:
        found = parse_duration_ms(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--every") from None
    for length_ms, period in ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes")):
        if found % length_ms == 0:
            return found // length_ms, period
    raise click.BadParameter("whole minutes, please", param_hint="--every")
