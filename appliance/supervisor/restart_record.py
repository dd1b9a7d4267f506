"""When which program had to be started again: ``children.json``, for the dashboard's alerts.

``{"children": {"web": {"restarts_ms": [1700000000000]}}}``, wall-clock milliseconds, begun anew by
each ``serve``. Replaced as a whole, so that a reader sees one state or the next. A disk without room
must not stop the supervisor: then the file is old.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from broker.clock import Clock

FILE_NAME = "children.json"
MAX_RESTARTS = 100
"""Kept of each program, the newest."""


class RestartRecord:
    def __init__(self, data_directory: Path, names: Sequence[str], clock: Clock) -> None:
        self._path = data_directory / FILE_NAME
        self._clock = clock
        self._restarts_ms: dict[str, list[int]] = {name: [] for name in names}
        self._write()

    def note(self, name: str) -> None:
        """The program ended and is to be started again."""
        self._restarts_ms[name].append(self._clock.wall_ms())
        del self._restarts_ms[name][:-MAX_RESTARTS]
        self._write()

    def _write(self) -> None:
        children = {name: {"restarts_ms": found} for name, found in self._restarts_ms.items()}
        aside = self._path.with_suffix(".tmp")
        with contextlib.suppress(OSError):
            aside.write_text(json.dumps({"children": children}))
            os.replace(aside, self._path)
