"""Exports as their page lists them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dashboard import export_files
from dashboard.models import JobRun, User
from dashboard.scan.requests import Wanted
from dashboard.services import exports

BADGES = {
    JobRun.State.OK: "good",
    JobRun.State.FAILED: "bad",
    JobRun.State.LOST: "bad",
    JobRun.State.RUNNING: "",
}


@dataclass(frozen=True, slots=True)
class ExportRow:
    run: JobRun
    topic: str
    format: str
    wanted: str
    """The conditions, in words; empty: everything."""
    badge: str
    has_file: bool
    per_mille: int
    error: str
    result: dict[str, Any]


def export_rows(user: User) -> list[ExportRow]:
    return [_row(run) for run in exports.visible_to(user)]


def held_bytes() -> tuple[int, int]:
    """(what exports and downloads take, what they may take)."""
    return export_files.total_bytes(), export_files.MAX_TOTAL_BYTES


def _row(run: JobRun) -> ExportRow:
    request = run.parameters["request"]
    done, total = run.done, run.total or 0
    return ExportRow(
        run,
        exports.topic_of(run),
        request["format"],
        _words(Wanted(**request["wanted"])),
        BADGES.get(JobRun.State(run.state), ""),
        run.state == JobRun.State.OK and exports.file_of(run).exists(),
        min(1000, done * 1000 // total) if total else 0,
        run.error.partition("\n")[0],
        run.result or {},
    )


def _words(wanted: Wanted) -> str:
    parts = [
        f"{where} contains {text}"
        for where, text in (
            ("key", wanted.in_key),
            ("value", wanted.in_value),
            ("a header", wanted.in_header),
        )
        if text
    ]
    return ", ".join([*parts, wanted.expression] if wanted.expression else parts)
