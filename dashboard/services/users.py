"""People: who is there, with which role, reading which topics. The last admin stays.

Whoever gets another role, another password or is shut off finds his sessions ended: the epoch in the
user's row is part of every session (``models.User``), so the next request or socket is a stranger's.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, Q

from dashboard import lockout
from dashboard.models import Role, User
from dashboard.services import audit
from dashboard.services.audit import Actor
from dashboard.services.passwords import make_password

SETTINGS = ("role", "readable_topics", "exportable_topics", "is_active")
"""What ``change`` can change, and what the audit log tells of a user."""
_ENDS_SESSIONS = frozenset({"role", "is_active"})


class UserRefused(Exception):
    """A change that would leave nobody in charge, or makes no sense; the message is for people."""


def add(
    *,
    actor: Actor,
    username: str,
    role: str,
    readable_topics: str = "*",
    exportable_topics: str = "*",
) -> tuple[User, str]:
    """A new user, and the password that was made: shown once, to be changed at the first sign-in."""
    with audit.change(actor, "user.add", username) as change:
        user = User(
            username=username,
            role=role,
            readable_topics=normal_patterns(readable_topics),
            exportable_topics=normal_patterns(exportable_topics),
            must_change_password=True,
        )
        password = make_password()
        user.set_password(password)
        try:
            user.full_clean()
        except ValidationError as error:
            raise UserRefused(" ".join(error.messages)) from None
        user.save()
        change.after = _told(user)
    return user, password


def change(*, actor: Actor, user: User, **settings: Any) -> User:
    """Set some of SETTINGS. Raises UserRefused when no active admin would be left."""
    assert set(settings) <= set(SETTINGS), settings
    for name in ("readable_topics", "exportable_topics"):
        if name in settings:
            settings[name] = normal_patterns(settings[name])
    with audit.change(actor, "user.change", user.username) as change, transaction.atomic():
        fresh, others = _locked(user)
        was_in_charge = _is_in_charge(fresh)
        changed = {name: value for name, value in settings.items() if getattr(fresh, name) != value}
        change.before = {name: getattr(fresh, name) for name in changed}
        for name, value in changed.items():
            setattr(fresh, name, value)
        change.after = changed
        if fresh.role not in Role.values:
            raise UserRefused(f"There is no role {fresh.role!r}.")
        if was_in_charge and not _is_in_charge(fresh):
            _keep_an_admin(fresh, others)
        if changed.keys() & _ENDS_SESSIONS:
            fresh.session_epoch += 1
        fresh.save(update_fields=[*changed, "session_epoch"])
    return fresh


def delete(*, actor: Actor, user: User) -> None:
    with audit.change(actor, "user.delete", user.username) as change, transaction.atomic():
        fresh, others = _locked(user)
        change.before = _told(fresh)
        if _is_in_charge(fresh):
            _keep_an_admin(fresh, others)
        fresh.delete()


def reset_password(*, actor: Actor, user: User) -> str:
    """A made password, shown once; it has to be changed at the next sign-in."""
    with audit.change(actor, "user.password_reset", user.username):
        password = make_password()
        user.set_password(password)
        user.must_change_password = True
        user.save(update_fields=["password", "must_change_password"])
        end_sessions(user)
    return password


def set_password(*, actor: Actor, user: User, password: str) -> None:
    """One that its user knows already: typed at the shell of the machine."""
    with audit.change(actor, "user.password_reset", user.username):
        user.set_password(password)
        user.must_change_password = False
        user.save(update_fields=["password", "must_change_password"])
        end_sessions(user)


def unlock(*, actor: Actor, username: str | None, address: str | None) -> int:
    """End a lockout of a name, an address, or a pair of them."""
    target = username if username is not None else str(address)
    with audit.change(actor, "user.unlock", target) as change:
        change.before = {"username": username, "address": address}
        return lockout.release(username=username, address=address)


def end_sessions(user: User) -> None:
    """Everywhere, from the next request on."""
    User.objects.filter(pk=user.pk).update(session_epoch=F("session_epoch") + 1)
    user.refresh_from_db(fields=["session_epoch"])


def normal_patterns(text: str) -> str:
    """Globs separated by one comma and a blank, each once."""
    return ", ".join(dict.fromkeys(text.replace(",", " ").split()))


def _is_in_charge(user: User) -> bool:
    return user.is_active and user.role == Role.ADMIN


def _locked(user: User) -> tuple[User, list[User]]:
    """The user and the other admins, their rows locked in one order: two admins who remove each
    other at once find one of them refused."""
    wanted = Q(pk=user.pk) | Q(role=Role.ADMIN, is_active=True)
    rows = list(User.objects.select_for_update().filter(wanted).order_by("pk"))
    fresh = next((row for row in rows if row.pk == user.pk), None)
    if fresh is None:
        raise UserRefused(f"{user.username} is gone.")
    return fresh, [row for row in rows if row.pk != user.pk]


def _keep_an_admin(leaving: User, others: list[User]) -> None:
    if not others:
        raise UserRefused(
            f"{leaving.username} is the last admin. Make somebody else an admin first."
        )


def _told(user: User) -> dict[str, Any]:
    return {name: getattr(user, name) for name in SETTINGS}
