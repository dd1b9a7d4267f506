"""Brings the database's tables up to date: ``python -m appliance.migrate``, a child of the web process.

A process of its own, because making all tables leaves Django with 200 MB that it does not need again.
It ends with the process that started it.
"""

from __future__ import annotations

import os
import subprocess
import sys

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
        call_command("migrate", verbosity=0, interactive=False)
    except DatabaseError as error:
        sys.stderr.write(f"the database cannot be used: {' '.join(str(error).split())}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
