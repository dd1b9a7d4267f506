"""The job that writes an export: a child reads, filters and writes, this side follows it.

Its file gets its name only when it is whole; a run that is cancelled or fails leaves none.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from broker.clock import SystemClock
from dashboard import export_files, room
from dashboard.forms.messages import cluster
from dashboard.jobs import JobContext
from dashboard.models import JobRun
from dashboard.scan.requests import MAX_BYTES, MAX_RECORDS, Bounds, ExportRequest, from_dict
from dashboard.scan_child import ChildGone, ScanChild

SECONDS: Final = 3600
BOUNDS: Final = Bounds(MAX_RECORDS, MAX_BYTES, SECONDS)
GRACE_S: Final = 15
READ_S: Final = 0.5
ENDINGS: Final = {
    "end": "",
    "records": f"it ends after {MAX_RECORDS} records",
    "bytes": f"it ends after {MAX_BYTES} bytes read",
    "seconds": f"it ends after {SECONDS} seconds",
    "file": "it ends where the file has its largest size",
}


class ExportFailed(Exception):
    """Said on the Exports page."""


def path_of(run_id: int, format_: str) -> Path:
    return export_files.directory() / f"export-{run_id}.{format_}"


def run(context: JobContext) -> dict[str, Any]:
    """``parameters``: ``request``, an ExportRequest as JSON; cluster, path and size come from here."""
    asked = dict(context.parameters["request"])
    path = path_of(context.run_id, asked["format"])
    partial = path.with_name(path.name + export_files.PARTIAL)
    _forget_dead_runs()
    room.check()
    allowed = export_files.sweep(export_files.MAX_FILE_BYTES)
    if allowed == 0:
        raise ExportFailed("other exports hold all the space that exports may take")
    here = {"cluster": asdict(cluster()), "path": str(partial), "max_file_bytes": allowed}
    request = from_dict({**asked, **here})
    assert isinstance(request, ExportRequest)
    child = ScanChild()
    try:
        result = _follow(child, request, context)
        partial.rename(path)
    finally:
        child.kill()
        partial.unlink(missing_ok=True)
    figures = result["progress"]
    return {
        "file_bytes": result["file_bytes"],
        "records": figures["matched"],
        "scanned": figures["scanned"],
        "errors": figures["errors"],
        "first_error": figures["first_error"],
        "ending": ENDINGS[result["reason"]],
    }


def _forget_dead_runs() -> None:
    """What a worker that was killed had begun: it would hold room for an hour."""
    for path in export_files.directory().glob(f"export-*{export_files.PARTIAL}"):
        number = path.name.removeprefix("export-").partition(".")[0]
        running = JobRun.objects.filter(state=JobRun.State.RUNNING)
        if number.isdecimal() and not running.filter(pk=int(number)).exists():
            path.unlink(missing_ok=True)


def _follow(child: ScanChild, request: ExportRequest, context: JobContext) -> dict[str, Any]:
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + (request.bounds.seconds + GRACE_S) * 1000
    figures: dict[str, Any] = {"passed": 0, "total": None, "matched": 0, "scanned": 0}
    try:
        child.ask(request)
        while True:
            answer = child.read(READ_S)
            # Asked often, so that a cancelled run ends soon; the context writes at its own pace.
            text = f"{figures['matched']} records of {figures['scanned']} looked at"
            context.progress(figures["passed"], figures["total"], text)
            room.check()
            if answer is None:
                if clock.monotonic_ms() > end_ms:
                    raise ExportFailed("it did not end in time")
                continue
            if "failed" in answer:
                raise ExportFailed(str(answer["failed"]["text"]))
            figures = answer.get("progress", figures)
            if "done" in answer:
                done: dict[str, Any] = answer["done"]
                return done
    except ChildGone as gone:
        raise ExportFailed(str(gone)) from None
