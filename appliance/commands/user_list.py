"""``odradek user list``."""

from __future__ import annotations

from pathlib import Path

from appliance import people
from appliance.options import command, data_option, pass_session
from appliance.output import Column, Report, Table, milliseconds
from appliance.session import Session

COLUMNS = (
    Column("user"),
    Column("role"),
    Column("mechanisms"),
    Column("last_login", "moment"),
    Column("state"),
    Column("readable_topics", is_wide=True),
    Column("exportable_topics", is_wide=True),
)


@command("list")
@data_option("Where everything is kept.")
@pass_session
def list_users(session: Session, /, data: Path) -> int:
    """List users: their role, how they sign in, when they last did."""
    people.open_database(data)
    from dashboard.models import User

    rows = [
        {
            "user": user.username,
            "role": user.role,
            "mechanisms": "password" if user.has_usable_password() else None,
            "last_login": milliseconds(user.last_login),
            "state": _state(user),
            "readable_topics": user.readable_topics,
            "exportable_topics": user.exportable_topics,
        }
        for user in User.objects.order_by("username")
    ]
    return session.emit(Report([Table(COLUMNS, rows)]))


def _state(user: object) -> str:
    if not getattr(user, "is_active", True):
        return "shut off"
    return "must change password" if getattr(user, "must_change_password", False) else "ok"
