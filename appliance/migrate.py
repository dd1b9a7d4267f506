"""Brings the database's tables up to date: ``python -m appliance.migrate``, a child of the web process.

A process of its own, because making all tables leaves Django with 200 MB that it does not need again.
It ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import json
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
        _make_private()
        _keep_a_copy()
        call_command("migrate", verbosity=0, interactive=False)
        _forget_upgrade()
    except DatabaseError as error:
        sys.stderr.write(f"the database cannot be used: {' '.join(str(error).split())}\n")
        return 1
    return 0


def _make_private() -> None:
    """It will hold password hashes and sessions, and may lie where others can read. Who looked at it before made the
    file, and a journal with its mode. One that has tables already keeps the mode that it has."""
    from django.db import connection

    from appliance import schema

    if connection.vendor != "sqlite" or schema.has_tables():
        return
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.chmod(f"{connection.settings_dict['NAME']}{suffix}", 0o600)


def _keep_a_copy() -> None:
    """Of the database before its tables change: one, the last."""
    from django.db import connection

    from appliance import schema

    if connection.vendor != "sqlite":
        return
    missing = schema.missing() if schema.has_tables() else []
    path = Path(connection.settings_dict["NAME"])
    kept, under_way = kept_copy(path), _mark_of(path)
    if not missing:
        under_way.unlink(missing_ok=True)
        return
    if kept.exists() and not _marked(under_way).isdisjoint(missing):
        sys.stderr.write(
            f"an upgrade of the tables is gone on with; what was before it is in {kept}\n"
        )
        return
    aside = path.with_name(f".{kept.name}.tmp")
    aside.unlink(missing_ok=True)
    aside.touch(mode=0o600)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(aside)) as target:
        source.backup(target)
    aside.rename(kept)
    # From here on the database may be of two versions, and no copy of it is worth the one that was made.
    aside.write_text(json.dumps(missing))
    aside.rename(under_way)
    sys.stderr.write(f"tables are brought up to date; the database as it was is in {kept}\n")


def kept_copy(path: Path) -> Path:
    """What the database was before its tables changed last."""
    return path.with_name(f"{path.name}.before-upgrade")


def _mark_of(path: Path) -> Path:
    """There while an upgrade is under way: the migrations that it makes."""
    return path.with_name(f"{path.name}.upgrading")


def _marked(path: Path) -> set[str]:
    try:
        return set(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return set()


def _forget_upgrade() -> None:
    from django.db import connection

    if connection.vendor == "sqlite":
        _mark_of(Path(connection.settings_dict["NAME"])).unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
