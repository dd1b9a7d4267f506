"""``odradek job ...``: jobs, their schedules and runs, from the shell of the appliance's machine.

Works on the database: a run that is asked for here is done by the worker. Django is imported only by
commands below this one.
"""

from __future__ import annotations

from appliance.options import lazy_group

COMMANDS = {
    "list": ("appliance.commands.job_list:list_jobs", "Schedules: when, last run, next run."),
    "runs": ("appliance.commands.job_list:list_runs", "Runs that did something, the newest first."),
    "show": ("appliance.commands.job_list:show", "One run: its result, its error, its log."),
    "run": ("appliance.commands.job_run:run", "Run a schedule now, out of its turn."),
}
ALIASES = {"ls": "list"}


@lazy_group("job", COMMANDS, ALIASES)
def job() -> None:
    """Jobs that the worker runs: retention, reports, samples, clean-ups."""
