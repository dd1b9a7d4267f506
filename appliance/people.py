"""The database of users, for commands: opens it with the worker's light settings.

Nothing here may be imported by a command that is not about users: it brings Django in.
"""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.failure import EXIT_USAGE, CommandError

if TYPE_CHECKING:
    from dashboard.models import User
    from dashboard.services.audit import Actor

SETTINGS = "appliance.worker_settings"
NO_DATABASE_HINT = "`odradek serve` makes it at its first start; --data DIR names the directory."


def open_database(data: Path) -> None:
    """Sets Django up for this process. Raises CommandError when there are no tables of this version."""
    context = click.get_current_context()
    if context.get_parameter_source("data") is click.core.ParameterSource.COMMANDLINE:
        os.environ["ODRADEK_DATA"] = str(data.absolute())
    from appliance.config import ConfigError, current

    try:
        config = current().values
    except ConfigError as error:
        raise CommandError(str(error), code="CONFIG", exit_code=EXIT_USAGE) from None
    from appliance import schema

    path = config.data.absolute() / schema.DATABASE_NAME
    if not config.database_url.get_secret_value() and not path.exists():
        raise CommandError(f"there is no database at {path}", hint=NO_DATABASE_HINT)
    os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS
    import django
    from django.db import DatabaseError

    django.setup()
    try:
        missing, newer = schema.missing(), schema.newer()
    except DatabaseError as error:
        raise CommandError(f"the database cannot be used: {error}") from None
    if missing:
        raise CommandError(
            f"the database is older than this Odradek (it lacks {missing[0]})",
            hint="`odradek serve` brings it up to date.",
        )
    if newer:
        raise CommandError(f"the database was used by a newer Odradek (it has {newer[-1]})")


def actor() -> Actor:
    """Whoever sits at the shell, for the audit log."""
    from dashboard.models import AuditEntry
    from dashboard.services.audit import Actor

    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return Actor(name[:150], AuditEntry.Source.COMMAND)


def find(name: str) -> User:
    from dashboard.models import User

    found = User.objects.filter(username=name).first()
    if found is None:
        raise CommandError(
            f"there is no user {name!r}",
            hint="`odradek user list` shows who there is.",
            code="USER_NOT_FOUND",
        )
    return found


def read_password(path: str | None) -> str | None:
    """From a file, from stdin (``-``), or typed twice on a terminal; None: one shall be made."""
    if path == "-":
        return _checked(sys.stdin.readline().rstrip("\r\n"))
    if path is not None:
        try:
            return _checked(Path(path).read_text().strip())
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{path}: {error}", exit_code=EXIT_USAGE) from None
    if not sys.stdin.isatty():
        return None
    typed = getpass.getpass("Password (empty: make one): ")
    if not typed:
        return None
    if getpass.getpass("Once more: ") != typed:
        raise CommandError("the two passwords differ, nothing was changed", exit_code=EXIT_USAGE)
    return _checked(typed)


def _checked(password: str) -> str:
    from django.contrib.auth.password_validation import validate_password
    from django.core.exceptions import ValidationError

    try:
        validate_password(password)
    except ValidationError as error:
        raise CommandError(" ".join(error.messages), code="WEAK_PASSWORD") from None
    return password
