"""``odradek job run``."""

from __future__ import annotations

import time
from pathlib import Path

import click

from appliance import people
from appliance.commands.job_list import RUN_COLUMNS, run_row
from appliance.failure import CommandError
from appliance.options import command, data_option, pass_session
from appliance.output import Report, Table
from appliance.session import Session

POLL_S = 0.5


@command("run")
@click.argument("schedule")
@click.option("--wait/--no-wait", default=True, help="Until it is over.", show_default=True)
@data_option("Where everything is kept.")
@pass_session
def run(session: Session, /, schedule: str, wait: bool, data: Path) -> int:
    """Run SCHEDULE now (a name that `odradek job list` shows); exit code 1 when it does not end well."""
    people.open_database(data)
    import appliance.celery  # noqa: F401 - the bell is rung by this application
    from dashboard.models import JobRun
    from dashboard.services import jobs, schedules

    task = schedules.ours().filter(name=schedule).first()
    if task is None:
        raise CommandError(
            f"there is no schedule {schedule!r}", hint="`odradek job list` shows them."
        )
    try:
        made = schedules.run_now(actor=people.actor(), task=task)
    except jobs.AlreadyQueued as error:
        raise CommandError(str(error)) from None
    while wait and not made.is_finished:
        time.sleep(POLL_S)
        made.refresh_from_db()
    code = session.emit(Report([Table(RUN_COLUMNS, [run_row(made)])]))
    is_good = not wait or made.state == JobRun.State.OK
    return code or (0 if is_good else 1)
