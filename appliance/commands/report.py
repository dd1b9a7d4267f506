"""``odradek report ...``: reports and their runs, from the shell of the machine they are kept on.

Works on the database and the files of results; what computes is the worker of `odradek serve`.
"""

from __future__ import annotations

from appliance.options import lazy_group

COMMANDS = {
    "list": ("appliance.commands.report_show:list_reports", "Reports, schedules, last runs."),
    "run": ("appliance.commands.report_run:run", "Compute a report now, and wait for it."),
    "show": ("appliance.commands.report_show:show", "Runs of a report and its last rows."),
    "export": ("appliance.commands.report_show:export", "Write a result as CSV or Parquet."),
    "schedule": ("appliance.commands.report_run:schedule", "When a report is computed."),
}
ALIASES = {"ls": "list", "describe": "show", "start": "run"}


@lazy_group("report", COMMANDS, ALIASES)
def report() -> None:
    """Reports, which Spark computes."""
