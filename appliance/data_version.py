"""Which version wrote a data directory: older ones are brought up to date, newer ones refused.

A step leads from one layout to the next. Before it is taken, the files that it changes are copied to
``before-layout-N`` in the data directory, where they stay until somebody removes them; interrupted, it is
taken anew, from the copies. The database's tables are Django's to migrate (``migrate.py``, which
keeps a copy likewise).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from appliance import VERSION, schema
from appliance.failure import CommandError
from broker.model.data_layout import LAYOUT, LAYOUT_NAME, newer_than_known, read_layout

Note = Callable[[str], None]


class Step(NamedTuple):
    """``files``: names in the data directory, files or directories, that ``change`` may touch."""

    files: tuple[str, ...]
    change: Callable[[Path], None]


STEPS: Final[Mapping[int, Step]] = {}
"""By the layout that they lead away from. One that is not here is too old."""


def refuse_newer(data_directory: Path) -> None:
    """For every command that opens the directory."""
    version = newer_than_known(data_directory)
    if version is not None:
        raise _newer(data_directory, f"Odradek {version}")


def bring_up_to_date(data_directory: Path, note: Note, steps: Mapping[int, Step] = STEPS) -> None:
    """Under the directory's lock. Raises CommandError when another version wrote it and that cannot be
    mended, OSError as the file system does; notes down that this version is the last that wrote it."""
    refuse_newer(data_directory)
    try:
        found = read_layout(data_directory)
    except ValueError:
        raise CommandError(
            f"{data_directory / LAYOUT_NAME} cannot be understood",
            hint="It says which version wrote this directory; remove it if that was this one.",
            code="DATA_VERSION",
        ) from None
    layout, version = (LAYOUT, "") if found is None else found
    if any(number not in steps for number in range(layout, LAYOUT)):
        raise CommandError(
            f"{data_directory} was written by Odradek {version}, which is too old for {VERSION}",
            hint="Start a version between the two once: it brings the directory up to date.",
            code="DATA_VERSION",
        )
    if schema.newer_in_file(data_directory / schema.DATABASE_NAME):
        raise _newer(data_directory, f"Odradek {version}" if version else "a newer Odradek")
    for number in range(layout, LAYOUT):
        _take(data_directory, number, steps[number], note)
        _write(data_directory, number + 1)
    if version != VERSION:
        _write(data_directory, LAYOUT)


def _take(data_directory: Path, number: int, step: Step, note: Note) -> None:
    kept = data_directory / f"before-layout-{number + 1}"
    if kept.exists():
        for name in step.files:
            _remove(data_directory / name)
            _copy(kept / name, data_directory / name)
    else:
        aside = kept.with_name(f"{kept.name}.tmp")
        _remove(aside)
        aside.mkdir(mode=0o700)
        for name in step.files:
            _copy(data_directory / name, aside / name)
        os.sync()
        aside.rename(kept)
    step.change(data_directory)
    os.sync()
    note(f"brought {data_directory} from layout {number} to {number + 1}; what it was is in {kept}")


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _write(data_directory: Path, layout: int) -> None:
    path = data_directory / LAYOUT_NAME
    aside = path.with_name(f".{LAYOUT_NAME}.{os.getpid()}")
    aside.write_text(json.dumps({"layout": layout, "version": VERSION}) + "\n")
    aside.rename(path)


def _newer(data_directory: Path, by: str) -> CommandError:
    return CommandError(
        f"{data_directory} was written by {by}, which is newer than this {VERSION}",
        hint="Run that version or a later one; data is never taken back to an older one.",
        code="DATA_VERSION",
    )
