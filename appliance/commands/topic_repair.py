"""``odradek topic repair``: what to do with a partition that the broker refused to open.

After a crash a log may be damaged in a place where no crash explains it. The broker changes nothing
then and serves all other partitions; a human chooses here, on the broker's machine.
"""

from __future__ import annotations

from pathlib import Path

import click

from appliance import control
from appliance.failure import EXIT_OK, EXIT_UNHEALTHY
from appliance.options import TOPIC, command, data_option, pass_session
from appliance.output import Column, Report, Table
from appliance.session import Session

OFFLINE = (
    Column("topic"),
    Column("partition", "count"),
    Column("offset", "count"),
    Column("reason", is_wide=True),
)
REPAIRED = (
    Column("topic"),
    Column("partition", "count"),
    Column("start_offset", "count"),
    Column("end_offset", "count"),
    Column("lost_bytes", "count"),
)


@command("repair")
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.option("-p", "--partition", type=click.IntRange(min=0), metavar="N", help="Only this one.")
@click.option("--cut", "how", flag_value="cut", help="Keep what lies before the damage.")
@click.option(
    "--set-aside",
    "how",
    flag_value="set-aside",
    help="Put the directory by, under a -stray name, and begin an empty log.",
)
@data_option("The broker's data directory.")
@pass_session
def repair(session: Session, name: str, partition: int | None, how: str | None, data: Path) -> int:
    """Show a topic's partitions that are offline because of damage, or bring them back.

    Without --cut or --set-aside nothing is changed, and the exit code is 10 if any is offline. Copy
    the partition's directory first if the records behind the damage may be wanted.
    """
    found = [
        each
        for each in control.ask(data.absolute(), "offline")["partitions"]
        if each["topic"] == name and partition in (None, each["partition"])
    ]
    if not found:
        session.note(f"no partition of {name} is offline because of damage")
        return session.emit(Report([Table(OFFLINE)]))
    if how is None:
        rows = [{column.key: each[column.key] for column in OFFLINE} for each in found]
        session.emit(Report([Table(OFFLINE, rows)]))
        for each in found:
            session.note(f"{name}-{each['partition']}: {each['reason']}")
        session.note("--cut keeps what lies before it, --set-aside begins anew")
        return EXIT_UNHEALTHY
    listed = ", ".join(f"{name}-{each['partition']}" for each in found)
    does = "cut off the damaged ends of" if how == "cut" else "begin anew, empty,"
    session.confirm(f"{does} {listed}", name)
    rows = []
    for each in found:
        done = control.ask(
            data.absolute(), "repair", topic=name, partition=each["partition"], how=how
        )
        rows.append(
            {
                "topic": name,
                "partition": each["partition"],
                "start_offset": done["start_offset"],
                "end_offset": done["end_offset"],
                "lost_bytes": done.get("lost_bytes"),
            }
        )
    session.emit(Report([Table(REPAIRED, rows)]))
    return EXIT_OK
