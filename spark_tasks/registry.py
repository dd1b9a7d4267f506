"""Finds reports: those in ``spark_tasks.reports``, and files that the user put into a directory.

User files run with the rights of the service, so they are taken only when nobody else can have
written them: a plain file and a directory of the service's user, not writable by group or others.
They are imported in a report's own process alone; others ask ``python -m spark_tasks describe``.
"""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import re
import stat
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from spark_tasks import reports
from spark_tasks.report import Report

MAX_USER_FILES: Final = 100
USER_PREFIX: Final = "user/"
"""Before the names of user reports, so that none can stand in for a shipped one."""
_FILE_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,60}\.py")


@dataclass(frozen=True, slots=True)
class Refused:
    """A user file that was not taken, and why."""

    file: str
    reason: str


@cache
def shipped() -> dict[str, Report]:
    """By name, in the order of their titles."""
    found: list[Report] = []
    for module in pkgutil.iter_modules(reports.__path__):
        report = import_module(f"{reports.__name__}.{module.name}").REPORT
        assert isinstance(report, Report), module.name
        found.append(report)
    return {report.name: report for report in sorted(found, key=lambda each: each.title)}


def user_files(directory: Path) -> tuple[list[Path], list[Refused]]:
    """Those that may be loaded, and those that may not. Reads no file."""
    taken: list[Path] = []
    refused: list[Refused] = []
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".py"))
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [Refused(str(directory), error.strerror or str(error))]
    problem = why_refused(directory, is_directory=True)
    for number, name in enumerate(names):
        reason = problem and f"its directory {problem}"
        if reason is None and number >= MAX_USER_FILES:
            reason = f"only {MAX_USER_FILES} files are looked at"
        if reason is None and not _FILE_NAME.fullmatch(name):
            reason = "a file's name has small letters, digits and _, and begins with a letter"
        if reason is None:
            reason = why_refused(directory / name)
        if reason is None:
            taken.append(directory / name)
        else:
            refused.append(Refused(name, reason))
    return taken, refused


def why_refused(path: Path, *, is_directory: bool = False) -> str | None:
    """None when only this process's user can have written it."""
    try:
        found = path.lstat()
    except OSError as error:
        return f"cannot be looked at: {error.strerror}"
    if not (stat.S_ISDIR if is_directory else stat.S_ISREG)(found.st_mode):
        return "is not a directory" if is_directory else "is not a plain file"
    if found.st_uid != os.geteuid():
        return "does not belong to the user that Odradek runs as"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be written by others (chmod go-w)"
    return None


def load_user(directory: Path) -> tuple[dict[str, Report], list[Refused]]:
    """Imports user files: in a report's process only."""
    files, refused = user_files(directory)
    found: dict[str, Report] = {}
    for path in files:
        try:
            report = _load(path)
        except Exception as error:  # noqa: BLE001 - somebody else's code: its fault is told
            refused.append(Refused(path.name, f"{type(error).__name__}: {error}"[:500]))
        else:
            found[report.name] = report
    return found, refused


def _load(path: Path) -> Report:
    from dataclasses import replace

    specification = importlib.util.spec_from_file_location(f"user_report_{path.stem}", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    report = getattr(module, "REPORT", None)
    if not isinstance(report, Report):
        raise TypeError("it has no REPORT of the type spark_tasks.report.Report")
    return replace(report, name=USER_PREFIX + path.stem)
