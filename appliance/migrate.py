"""Brings the database's tables up to date: ``python -m appliance.migrate``, a child of the web process.

A process of its own, because making all tables leaves Django with 200 MB that it does not need again.
It ends with the process that started it.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from appliance import child
from appliance.supervisor.process import PARENT_FD_VARIABLE


def run() -> None:
    """Returns when the tables are there. Raises ChildError when they cannot be made."""
    read_fd, write_fd = os.pipe()
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.DEVNULL,
            env={**os.environ, PARENT_FD_VARIABLE: str(read_fd)},
            pass_fds=[read_fd],
            check=False,
        )
    finally:
        os.close(read_fd)
        os.close(write_fd)
    if done.returncode != 0:
        raise child.ChildError("the database could not be brought up to date, see above")


def main() -> int:
    child.end_at_signals_until_served()
    child.end_with_parent()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    import django
    from django.core.management import call_command
    from django.db import DatabaseError

    django.setup()
    try:
        _keep_a_copy()
        call_command("migrate", verbosity=0, interactive=False)
    except DatabaseError as error:
        sys.stderr.write(f"the database cannot be used: {' '.join(str(error).split())}\n")
        return 1
    return 0


def _keep_a_copy() -> None:
    """Of the database before its tables change: one, the last."""
    from django.db import connection

    from appliance import schema

    if connection.vendor != "sqlite" or not schema.has_tables() or not schema.missing():
        return
    path = Path(connection.settings_dict["NAME"])
    kept = path.with_name(f"{path.name}.before-upgrade")
    aside = path.with_name(f".{kept.name}.tmp")
    aside.unlink(missing_ok=True)
    aside.touch(mode=0o600)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(aside)) as target:
        source.backup(target)
    aside.rename(kept)
    sys.stderr.write(f"tables are brought up to date; the database as it was is in {kept}\n")


if __name__ == "__main__":
    sys.exit(main())
