"""``odradek user add|passwd|role|rm``: changes, each written to the audit log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from appliance import people
from appliance.failure import CommandError, ItemError
from appliance.options import command, data_option, pass_session
from appliance.output import Column, Report, Table
from appliance.session import Session

ROLES = ("viewer", "operator", "admin")
_STATUS = (Column("user"), Column("status", "status"))
_PASSWORD_FILE = click.option(
    "--password-file",
    metavar="FILE",
    help="Take the password from there; - is standard input. Else it is asked for on a terminal.",
)


@command("add")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="viewer", show_default=True)
@click.option("--readable", metavar="GLOBS", default="*", help="Topics whose records it may read.")
@click.option("--exportable", metavar="GLOBS", default="*", help="Topics that it may export.")
@_PASSWORD_FILE
@data_option("Where everything is kept.")
@pass_session
def add(
    session: Session,
    /,
    name: str,
    role: str,
    readable: str,
    exportable: str,
    password_file: str | None,
    data: Path,
) -> int:
    """Make a user. Without a password one is made, printed once, and changed at the first sign-in."""
    people.open_database(data)
    password = people.read_password(password_file)
    from dashboard.services import users

    try:
        user, made = users.add(
            actor=people.actor(),
            username=name,
            role=role,
            readable_topics=readable,
            exportable_topics=exportable,
        )
    except users.UserRefused as error:
        raise CommandError(str(error), code="USER_REFUSED") from None
    if password is not None:
        users.set_password(actor=people.actor(), user=user, password=password)
    return _told(session, name, made if password is None else None)


@command("passwd")
@click.argument("name")
@_PASSWORD_FILE
@data_option("Where everything is kept.")
@pass_session
def passwd(session: Session, /, name: str, password_file: str | None, data: Path) -> int:
    """Give a user another password, and end its sessions. Without one, one is made and printed."""
    people.open_database(data)
    user = people.find(name)
    password = people.read_password(password_file)
    from dashboard.services import users
    from dashboard.services.first_admin import forget_password_of

    forget_password_of(user, _data_directory())
    made = None
    if password is None:
        made = users.reset_password(actor=people.actor(), user=user)
    else:
        users.set_password(actor=people.actor(), user=user, password=password)
    return _told(session, name, made)


@command("role")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.argument("role", type=click.Choice(ROLES), metavar="viewer|operator|admin")
@data_option("Where everything is kept.")
@pass_session
def role(session: Session, /, names: tuple[str, ...], role: str, data: Path) -> int:
    """Give users another role; their sessions end."""
    people.open_database(data)
    from dashboard.services import users

    return _each(
        session, names, lambda user: users.change(actor=people.actor(), user=user, role=role)
    )


@command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@data_option("Where everything is kept.")
@pass_session
def remove(session: Session, /, names: tuple[str, ...], data: Path) -> int:
    """Remove users; what they did stays in the audit log. The last admin stays."""
    people.open_database(data)
    session.confirm_several("remove", "user", names)
    from dashboard.services import users
    from dashboard.services.first_admin import forget_password_of

    def delete(user: Any) -> None:
        users.delete(actor=people.actor(), user=user)
        forget_password_of(user, _data_directory())

    return _each(session, names, delete)


def _each(session: Session, names: tuple[str, ...], change: Any) -> int:
    from dashboard.services import users

    rows: list[dict[str, Any]] = []
    errors: list[ItemError] = []
    for name in names:
        try:
            change(people.find(name))
        except CommandError as error:
            errors.append(
                ItemError(error.item.code, error.item.message, {"user": name}, error.item.hint)
            )
        except users.UserRefused as error:
            errors.append(ItemError("USER_REFUSED", str(error), {"user": name}))
        else:
            rows.append({"user": name, "status": "OK"})
            continue
        rows.append({"user": name, "status": errors[-1].code})
    return session.emit(Report([Table(_STATUS, rows)], errors))


def _told(session: Session, name: str, made: str | None) -> int:
    row = {"user": name, "status": "OK"}
    columns: tuple[Column, ...] = _STATUS
    if made is not None:
        row["password"] = made
        columns = (*_STATUS, Column("password"))
        if sys.stdout.isatty():
            session.note("The password is shown once; it has to be changed at the first sign-in.")
    return session.emit(Report([Table(columns, [row])]))


def _data_directory() -> Path:
    from django.conf import settings

    return Path(settings.DATA_DIR)
