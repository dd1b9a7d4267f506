"""``odradek version``: imports nothing that it does not have to."""

from __future__ import annotations

import sys
from typing import Any

from appliance import VERSION, build_facts
from appliance.options import command, pass_session
from appliance.output import Column, Report, Table
from appliance.session import Session


@command("version")
@pass_session
def version(session: Session) -> int:
    """Show the version of Odradek, how it was built, and what it runs on.

    -v adds the Kafka client library, which takes longer.
    """
    row: dict[str, Any] = {
        "odradek": VERSION,
        "python": ".".join(map(str, sys.version_info[:3])),
        "is_compiled": build_facts.is_compiled(),
        "commit": build_facts.commit(),
    }
    columns = [Column(name) for name in row]
    if session.is_verbose:
        from dashboard.gateway import library_version

        row["client"] = library_version()
        columns.append(Column("client"))
    words = [f"python {row['python']}", "compiled" if row["is_compiled"] else "interpreted"]
    if row["commit"] is not None:
        words.append(f"commit {row['commit']}")
    text = f"odradek {VERSION} ({', '.join(words)})\n"
    if "client" in row:
        text += f"{row['client']}\n"
    return session.emit(Report([Table(columns, [row])], text=text))
