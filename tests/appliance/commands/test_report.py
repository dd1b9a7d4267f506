"""``odradek report`` on a database and on files of results; what computes is tested in ``tests/spark``."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from tests.appliance.conftest import run_odradek
from tests.support.web import DATABASE, WebProcess, filled

MAKE = """
import json
from datetime import timedelta
from django.utils import timezone
from dashboard.models import JobRun, Report
from dashboard.services import audit, reports
from dashboard.spark import results
report = reports.save(actor=audit.SYSTEM, report=Report(
    name="top", kind="top-values", topics="pages", range="start", parameters={"field": "page"},
    format={"kind": "json"},
))
Report.objects.create(name="empty", kind="top-values", topics="pages", range="start")
now = timezone.now()
for count in (3, 5):
    run = JobRun.objects.create(
        job="report", target="top", trigger="schedule", state="ok", queued_at=now,
        started_at=now, finished_at=now + timedelta(seconds=2),
        result={"row_count": 1, "read": {"records": count, "not_parsed": 0}},
    )
    directory = results.directory_of("top", run.pk)
    directory.mkdir(parents=True)
    columns = [{"name": "value", "type": "string"}, {"name": "records", "type": "bigint"}]
    (directory / "rows.json").write_text(json.dumps({"columns": columns, "rows": [["/", count]]}))
    (directory / "result.csv").write_text(f"value,records\\n/,{count}\\n")
JobRun.objects.create(job="report", target="top", trigger="person", state="failed",
    queued_at=now, started_at=now, finished_at=now, error="Java is gone\\n\\nlong story")
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made, _ = filled()
    found = tmp_path / "data"
    found.mkdir()
    for name in (DATABASE, "secret_key"):
        shutil.copy2(made / name, found / name)
    with closing(WebProcess(tmp_path, "127.0.0.1:1", data=found)) as web:
        web.run_python(MAKE)
    return found


def test_runs_and_rows_are_shown_the_newest_first(data: Path) -> None:
    shown = run_odradek(data, "report", "show", "top").ok()
    assert "failed" in shown.out
    assert shown.out.index("result of run 2") > shown.out.index("runs")
    rows = run_odradek(data, "report", "show", "top", "--format", "json").ok().data
    assert rows == [{"value": "/", "records": 5}]
    first = run_odradek(data, "report", "show", "top", "--run", "1", "--format", "json").ok()
    assert first.data == [{"value": "/", "records": 3}]
    assert run_odradek(data, "report", "show", "empty", "--format", "json").ok().data == []
    csv = run_odradek(data, "report", "export", "top", "--run", "1").ok()
    assert csv.lines == ["value,records", "/,3"]


def test_a_schedule_is_set_told_in_words_and_taken_away(data: Path) -> None:
    def schedule(*options: str) -> str:
        return run_odradek(data, "report", "schedule", "top", *options).ok().out

    assert schedule("--every", "6h").strip() == "top: every 6 hours"
    told = schedule("--cron", "30 2 * * *", "--zone", "Europe/Berlin")
    assert told.strip() == "top: every day at 02:30 (Europe/Berlin)"
    listed = {
        row["report"]: row
        for row in run_odradek(data, "report", "list", "--format", "json").ok().data
    }
    assert listed["top"]["schedule"].startswith("every day at 02:30")
    assert listed["top"]["next_run_ms"] is not None
    assert listed["top"]["last_state"] == "failed"
    assert listed["empty"]["last_state"] is None
    (row,) = run_odradek(data, "report", "schedule", "top", "--format", "json").ok().data
    assert row["schedule"] == "every day at 02:30 (Europe/Berlin)"
    assert row["next_run_ms"] == listed["top"]["next_run_ms"]
    off = schedule("--off")
    assert schedule() == off


def test_what_cannot_be_is_refused_with_what_to_do(data: Path) -> None:
    for arguments, code, words in (
        (("show", "nothing"), 1, "`odradek report list` shows"),
        (("show", "top", "--run", "3"), 1, "run 3 of top has no result"),
        (("export", "empty"), 1, "empty has no result"),
        (("schedule", "top", "--every", "90s"), 2, "whole minutes"),
        (("schedule", "top", "--every", "1m"), 2, "5 minutes"),
        (("schedule", "top", "--every", "1h", "--off"), 2, "only one of"),
    ):
        done = run_odradek(data, "report", *arguments)
        assert (done.code, words in done.err) == (code, True), (arguments, done)
