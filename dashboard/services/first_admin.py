"""The first admin: made once, when there are no users; a made password waits in a file.

The file ``initial-admin-password`` in the data directory can be read by its owner alone. It goes
when its password has been used for signing in (which forces another one), or was changed.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from django.db import IntegrityError, transaction

from dashboard.models import Role, User
from dashboard.services import audit
from dashboard.services.passwords import make_password

logger = logging.getLogger(__name__)

FILE_NAME = "initial-admin-password"


def make_first_admin(*, name: str, password: str, data_directory: Path) -> bool:
    """Whether one was made. Without a given password one is made, and must be changed."""
    if User.objects.exists():
        return False
    path = data_directory / FILE_NAME
    is_made = not password
    if is_made:
        password = make_password()
        # The file first: an admin whose password nobody knows would be worse than a file too many.
        _write(path, password)
    try:
        with transaction.atomic():
            User.objects.create_user(
                name, password=password, role=Role.ADMIN, must_change_password=is_made
            )
    except IntegrityError:
        if is_made:
            path.unlink(missing_ok=True)
        return False
    audit.record(audit.SYSTEM, "user.add", name, after={"role": Role.ADMIN})
    if is_made:
        logger.info("made the first admin %s; the password is in %s", name, path)
    else:
        logger.info("made the first admin %s with the configured password", name)
    return True


def forget_password_of(user: User, data_directory: Path) -> None:
    """Remove the file if it holds this user's password."""
    path = data_directory / FILE_NAME
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if user.check_password(path.read_text().strip()):
            path.unlink()


def _write(path: Path, password: str) -> None:
    """Whole or not at all, and never readable by others."""
    aside = path.with_name(f".{FILE_NAME}.{os.getpid()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, f"{password}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    aside.rename(path)
