"""Which imports have been finished: a file in the data directory, replaced as a whole.

It is written before a topic is opened for everybody: interrupted in between, the next import only opens it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

NAME: Final = "imported.json"


class Ledger:
    def __init__(self, data: Path) -> None:
        self._path = data / NAME
        try:
            self._finished: dict[str, str] = json.loads(self._path.read_text())
        except FileNotFoundError:
            self._finished = {}

    def has(self, topic: str, source: str, here: str | None) -> bool:
        """Whether the topic with the id ``here`` is a finished copy of ``source``."""
        return self._finished.get(topic) == _entry(source, here)

    def note(self, topic: str, source: str, here: str | None) -> None:
        self._finished[topic] = _entry(source, here)
        aside = self._path.with_suffix(".new")
        with aside.open("w") as file:
            json.dump(self._finished, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self._path)


def _entry(source: str, here: str | None) -> str:
    return f"{source} as {here}"
