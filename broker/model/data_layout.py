"""The format of a data directory as a whole: its number, and the file that tells it.

Raised by a version that changes what lies where, or what it means. Older directories are brought up to
date by the appliance (``appliance/data_version.py``), newer ones are refused by everybody.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

LAYOUT_NAME: Final = "odradek.json"
LAYOUT: Final = 1
#: While it lies in a data directory, a backup is being restored there, and nobody may serve.
RESTORING_NAME: Final = "restoring.json"


class DataLayout(NamedTuple):
    layout: int
    #: Of the Odradek that wrote it last.
    version: str


def read_layout(data_directory: Path) -> DataLayout | None:
    """None: nobody has written it yet. Raises ValueError when it cannot be understood."""
    try:
        found = json.loads((data_directory / LAYOUT_NAME).read_text())
        return DataLayout(int(found["layout"]), str(found["version"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (KeyError, TypeError) as error:
        raise ValueError(str(error)) from error


def newer_than_known(data_directory: Path) -> str | None:
    """The version that wrote a directory which this one does not understand."""
    try:
        found = read_layout(data_directory)
    except (OSError, ValueError):
        return None  # another check's to tell
    return found.version if found is not None and found.layout > LAYOUT else None
