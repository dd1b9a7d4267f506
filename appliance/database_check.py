"""What ``odradek doctor`` asks the database, an SQLite file or PostgreSQL: can it be used, and who watches schedules?

Without Django, whose settings may be what is wrong. Reads only.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from appliance import schema
from appliance.checks import DIAL_TIMEOUT_S, Check, Verdict

NAME: Final = "database"
SCHEDULER_LEASE: Final = "scheduler"
#: A larger file is not read as a whole: a doctor should not take minutes.
MOST_CHECKED_BYTES: Final = 256 * 1024 * 1024
_OF_A_BACKUP: Final = (
    "Stop `odradek serve`, then: `odradek backup restore BACKUPS --data NEW` has an earlier one. Without a backup"
    " `mv {path} {path}.damaged` begins anew, without users, schedules and alerts; records are not in it."
)


class Unreachable(Exception):
    """Said to a person."""


def check(data_directory: Path, url: str) -> Check:
    if url:
        return _check_server(url)
    path = data_directory / schema.DATABASE_NAME
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return Check(NAME, Verdict.INFO, f"{path} is made at the first start")
    except OSError as error:
        return _not_usable(path, error.strerror or str(error))
    if not os.access(path, os.R_OK | os.W_OK):
        return _not_usable(path, "not ours to read and write")
    try:
        with closing(_open(path)) as connection:
            if size <= MOST_CHECKED_BYTES:
                (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if found != "ok":
                    return _damaged(path, found)
            else:
                connection.execute("SELECT name FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        return _not_usable(path, str(error))
    except sqlite3.DatabaseError as error:
        return _damaged(path, str(error))
    newer = schema.newer_in_file(path)
    if newer:
        return Check(
            NAME,
            Verdict.FAIL,
            f"{path} was written by a newer Odradek",
            "Run that version or a later one; data is never taken back to an older one.",
        )
    return Check(NAME, Verdict.OK, str(path))


def scheduler(data_directory: Path, url: str) -> str | None:
    """Who holds the lease of the schedules now. Raises Unreachable."""
    now = datetime.now(UTC).replace(tzinfo=None)
    words = "SELECT holder FROM dashboard_lease WHERE name = {0} AND until > {0}"
    try:
        if url:
            with _connected(url) as server:
                row = server.execute(words.format("%s"), (SCHEDULER_LEASE, now)).fetchone()
        else:
            with closing(_open(data_directory / schema.DATABASE_NAME)) as file:
                text = now.strftime("%Y-%m-%d %H:%M:%S")
                row = file.execute(words.format("?"), (SCHEDULER_LEASE, text)).fetchone()
    except sqlite3.Error as error:
        raise Unreachable(str(error)) from None
    return str(row[0]) if row is not None else None


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2)


def _connected(url: str) -> Any:
    """Raises Unreachable. PostgreSQL's own errors of a question count as that, too."""
    try:
        import psycopg
    except ImportError:
        raise Unreachable("the package psycopg is not installed") from None
    try:
        # Times are compared as Django writes them.
        return _Asked(
            psycopg.connect(url, connect_timeout=int(DIAL_TIMEOUT_S), options="-c TimeZone=UTC"),
            psycopg.Error,
        )
    except (psycopg.Error, ValueError) as error:
        raise Unreachable(" ".join(str(error).split())) from None


class _Asked:
    """A connection whose errors are Unreachable."""

    def __init__(self, connection: Any, kind: type[Exception]) -> None:
        self._connection = connection
        self._kind = kind

    def __enter__(self) -> _Asked:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def execute(self, words: str, values: tuple[object, ...] = ()) -> Any:
        try:
            return self._connection.execute(words, values)
        except self._kind as error:
            raise Unreachable(" ".join(str(error).split())) from None


def _check_server(url: str) -> Check:
    try:
        with _connected(url) as server:
            (version,) = server.execute("SHOW server_version").fetchone()
    except Unreachable as error:
        return Check(
            NAME,
            Verdict.FAIL,
            f"PostgreSQL cannot be used: {error}",
            "DATABASE_URL (database_url) names it. On its machine: `systemctl start postgresql`; from here"
            ' `psql "$DATABASE_URL"` tries the way there.'
            + (" `pip install 'odradek[cluster]'` has psycopg." if "psycopg" in str(error) else ""),
        )
    return Check(NAME, Verdict.OK, f"PostgreSQL {version}")


def _not_usable(path: Path, reason: str) -> Check:
    return Check(
        NAME,
        Verdict.FAIL,
        f"{path} cannot be used: {reason}",
        f"As root: `chown {os.geteuid()} {path}*`, if it is this user who runs `odradek serve`.",
    )


def _damaged(path: Path, reason: str) -> Check:
    return Check(NAME, Verdict.FAIL, f"{path} is damaged: {reason}", _OF_A_BACKUP.format(path=path))
