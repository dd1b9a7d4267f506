"""The files of reports' results: ``data/reports/NAME/run=ID``, a directory a run.

A run writes into ``run=ID.tmp``, which gets its name when everything is in it. Of each report the
newest ``keep_runs`` are kept; what a run that died has left goes with the next one.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from django.conf import settings

from dashboard.spark.home import SparkHome, home_of

TMP: Final = ".tmp"
FILES: Final = {"result.csv": "text/csv", "result.parquet": "application/vnd.apache.parquet"}
"""What people download, and its content type."""
MAX_TOTAL_BYTES: Final = 10 * 1024**3
_NAME: Final = re.compile(r"run=(\d+)(\.tmp)?")


def home() -> SparkHome:
    return home_of(Path(settings.DATA_DIR), settings.ODRADEK_SPARK_HOME)


def root() -> Path:
    return Path(settings.DATA_DIR) / "reports"


def user_reports() -> Path:
    """Where people put report files of their own."""
    return Path(settings.DATA_DIR) / "user-reports"


def directory_of(report: str, run_id: int) -> Path:
    return root() / report / f"run={run_id}"


def begin(report: str, run_id: int) -> Path:
    """An empty directory for a run to write into."""
    path = directory_of(report, run_id)
    making = path.with_name(path.name + TMP)
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(mode=0o700, parents=True)
    return making


def complete(making: Path) -> Path:
    path = making.with_name(making.name.removesuffix(TMP))
    shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(making / "scratch", ignore_errors=True)
    making.rename(path)
    return path


def give_up(making: Path) -> None:
    shutil.rmtree(making, ignore_errors=True)


def prune(report: str, keep: int, unfinished: Collection[int]) -> int:
    """Delete what dead runs have left, and the oldest results beyond ``keep``; how many."""
    count, kept = 0, 0
    for run_id, path in sorted(_runs_of(root() / report), reverse=True):
        if path.name.endswith(TMP):
            is_kept = run_id in unfinished
        else:
            kept += 1
            is_kept = kept <= keep
        if not is_kept:
            shutil.rmtree(path, ignore_errors=True)
            count += 1
    return count


def sweep(reports: Collection[str]) -> int:
    """Delete results of reports that are gone, then the oldest beyond the bound; how many."""
    count, total = 0, 0
    held: list[tuple[int, Path, int]] = []
    for directory in root().iterdir() if root().is_dir() else ():
        if directory.name not in reports:
            shutil.rmtree(directory, ignore_errors=True)
            count += 1
            continue
        for run_id, path in _runs_of(directory):
            size = size_of(path)
            total += size
            held.append((run_id, path, size))
    for _, path, size in sorted(held, key=lambda each: each[0]):
        if total <= MAX_TOTAL_BYTES:
            break
        shutil.rmtree(path, ignore_errors=True)
        count, total = count + 1, total - size
    return count


def size_of(path: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for each in path.rglob("*"):
            if each.is_file():
                total += each.stat().st_size
    return total


def rows_of(report: str, run_id: int) -> dict[str, Any] | None:
    """``{"columns", "rows"}`` as pages show them; None when the files are gone."""
    try:
        text = (directory_of(report, run_id) / "rows.json").read_text()
        found: dict[str, Any] = json.loads(text)
    except (OSError, ValueError):
        return None
    return found


def _runs_of(directory: Path) -> list[tuple[int, Path]]:
    if not directory.is_dir():
        return []
    found = []
    for path in directory.iterdir():
        named = _NAME.fullmatch(path.name)
        if named is not None:
            found.append((int(named[1]), path))
    return found
