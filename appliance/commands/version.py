"""``odradek version``: imports nothing that it does not have to."""

from __future__ import annotations

import sys

from appliance import VERSION
from appliance.options import command, pass_session
from appliance.output import Column, Report, Table
from appliance.session import Session


@command("version")
@pass_session
def version(session: Session) -> int:
    """Show the version of Odradek and of what it runs on.

    -v adds the Kafka client library, which takes longer.
    """
    row = {"odradek": VERSION, "python": ".".join(map(str, sys.version_info[:3]))}
    columns = [Column("odradek"), Column("python")]
    if session.is_verbose:
        from dashboard.gateway import library_version

        row["client"] = library_version()
        columns.append(Column("client"))
    text = f"odradek {row['odradek']} (python {row['python']})\n"
    if "client" in row:
        text += f"{row['client']}\n"
    return session.emit(Report([Table(columns, [row])], text=text))
