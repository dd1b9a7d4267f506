"""The session that this data directory had last: its id and password, in a file.

With it the next process ends the session of one that was killed, and the ephemeral nodes go with it.
The password is as good as the session, so the file is for its owner only. A file that is lost or
damaged costs the wait until the session expires, no more; so it is not synced.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple


class SavedSession(NamedTuple):
    session_id: int
    password: bytes


class SessionFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> SavedSession | None:
        try:
            value = json.loads(self._path.read_bytes())
            return SavedSession(int(value["id"]), bytes.fromhex(value["password"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, session_id: int, password: bytes) -> None:
        """Aside and renamed: a crash leaves the old one or the new one."""
        data = json.dumps({"id": session_id, "password": password.hex()}).encode()
        aside = self._path.with_name(f"{self._path.name}.new")
        with contextlib.suppress(OSError):
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)
            aside.rename(self._path)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
