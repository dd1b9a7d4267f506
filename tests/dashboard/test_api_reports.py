"""Reports by the API, without Spark: asked for, followed, their results read and fetched."""

import asyncio
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from dashboard.models import AuditEntry, JobRun, Report, User
from dashboard.services import api_tokens, audit, reports
from dashboard.spark import results
from tests.dashboard.conftest import Ask

pytestmark = pytest.mark.django_db
AT = dt.datetime(2026, 1, 15, 11, 30, tzinfo=dt.UTC)
COLUMNS = [{"name": "window", "type": "timestamp"}, {"name": "total", "type": "bigint"}]
ROWS = [["2026-01-15T11:00:00.000+00:00", 2**53 + 1], [None, 1]]
CSV = "window,total\n2026-01-15T11:00:00.000+00:00,9007199254740993\n,1\n"
RANGES = [["orders", 0, 5, 2**53 + 6, 0, 2**53 + 6]]


@pytest.fixture(autouse=True)
def own_directory(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


@pytest.fixture
def report() -> Report:
    made = Report(name="daily", kind="sums-by-key", topics="orders", parameters={"field": "price"})
    return reports.save(actor=audit.SYSTEM, report=made)


def finished(report: Report, state: str = "ok") -> JobRun:
    """A run with a result, as the job leaves it."""
    run = JobRun.objects.create(
        job="report", target=report.name, trigger="schedule", state=state, queued_at=AT,
        started_at=AT, finished_at=AT + dt.timedelta(seconds=9), parameters={"ranges": RANGES},
        result={
            "columns": COLUMNS, "row_count": 2, "is_cut": False, "shown_rows": 2,
            "csv_bytes": len(CSV), "parquet_bytes": 4, "gaps": [], "compacted": ["orders"],
            "read": {"records": 7, "not_parsed": 1, "tombstones": 2, "first_not_parsed": None},
        },
    )  # fmt: skip
    directory = results.begin(report.name, run.pk)
    (directory / "rows.json").write_text(json.dumps({"columns": COLUMNS, "rows": ROWS}))
    (directory / "result.csv").write_text(CSV)
    (directory / "result.parquet").write_bytes(b"PAR1")
    results.complete(directory)
    return run


def test_a_report_is_told_with_its_schedule_and_last_run(ask: Ask, report: Report) -> None:
    reports.set_schedule(actor=audit.SYSTEM, report=report, every=1, period="hours")
    run = finished(report)

    (told,) = ask("viewer", "GET", "reports")[1]["reports"]

    assert ask("viewer", "GET", "reports/daily") == (200, told)
    same = ("name", "kind", "topics", "parameters", "schedule")
    assert [told[name] for name in same] == [
        "daily",
        "sums-by-key",
        ["orders"],
        {"field": "price"},
        "every hour",
    ]
    assert told["next_run_ms"] > 0
    assert (told["last_run"]["id"], told["last_run"]["state"]) == (run.pk, "ok")


def test_a_run_tells_its_offsets_and_what_was_read(ask: Ask, report: Report) -> None:
    run = finished(report, "incomplete")

    status, told = ask("viewer", "GET", f"reports/daily/runs/{run.pk}")

    assert status == 200
    end = 2**53 + 6
    assert told["ranges"] == [{"topic": "orders", "partition": 0, "start": 5, "end": end}]
    figures = ("records", "not_parsed", "tombstones", "row_count", "may_change_when_repeated")
    assert [told[name] for name in figures] == [7, 1, 2, 2, True]
    assert told["finished_ms"] - told["started_ms"] == 9000
    listed = ask("viewer", "GET", "reports/daily/runs")[1]["runs"]
    assert [(each["id"], each["state"]) for each in listed] == [(run.pk, "incomplete")]


def test_rows_are_told_and_files_fetched_by_their_address(ask: Ask, report: Report) -> None:
    run = finished(report)

    status, told = ask("viewer", "GET", f"reports/daily/runs/{run.pk}/result")

    assert status == 200
    assert (told["columns"], told["rows"], told["row_count"]) == (COLUMNS, ROWS, 2)
    by_name = {each["name"]: each for each in told["files"]}
    assert by_name["result.csv"]["size_bytes"] == len(CSV)
    headers = {"Authorization": f"Bearer {_token('viewer')}"}
    whole = Client().get(by_name["result.csv"]["path"], headers=headers)
    assert (whole.status_code, _sent(whole)) == (200, CSV.encode())
    part = Client().get(
        by_name["result.parquet"]["path"], headers={**headers, "Range": "bytes=1-2"}
    )
    assert (part.status_code, _sent(part)) == (206, b"AR")
    entry = AuditEntry.objects.get(action="report.download")
    assert (entry.actor_name, entry.source, entry.target) == ("viewer", "api", f"daily#{run.pk}")


def _sent(answer: Any) -> bytes:
    async def all_of_it() -> bytes:
        return b"".join([piece async for piece in answer])

    return asyncio.run(all_of_it())


def _token(role: str) -> str:
    owner = User.objects.get(username=role)
    return api_tokens.make(actor=audit.SYSTEM, owner=owner, name="f", role=role, expires_at=None)[1]


def test_a_run_is_asked_for_repeated_and_cancelled(ask: Ask, report: Report) -> None:
    before = finished(report)
    assert ask("viewer", "POST", "reports/daily/runs", {})[0] == 403

    status, told = ask("operator", "POST", "reports/daily/runs", {"repeats": before.pk})

    assert (status, told["state"], told["trigger"]) == (201, "queued", "api")
    assert told["requested_by"] == "operator"
    assert told["ranges"][0]["end"] == RANGES[0][3]
    again = ask("operator", "POST", "reports/daily/runs", {})
    assert (again[0], again[1]["error"]["code"]) == (409, "conflict")
    busy = ask("operator", "DELETE", "reports/daily")
    assert (busy[0], busy[1]["error"]["message"]) == (
        409,
        "It runs just now: cancel the run first.",
    )
    unfinished = ask("viewer", "GET", f"reports/daily/runs/{told['id']}/result")
    assert (unfinished[0], unfinished[1]["error"]["message"]) == (
        404,
        "This run has no result: it is queued.",
    )
    assert ask("operator", "POST", f"reports/daily/runs/{told['id']}/cancel")[0] == 200
    assert JobRun.objects.get(pk=told["id"]).state == "cancelled"
    assert ask("operator", "DELETE", "reports/daily")[0] == 200
    assert not Report.objects.exists()


def test_where_an_incremental_report_stopped_is_forgotten(ask: Ask, report: Report) -> None:
    Report.objects.update(position={"orders": {"0": 7}})
    assert ask("viewer", "POST", "reports/daily/forget")[0] == 403
    assert ask("operator", "POST", "reports/daily/forget")[0] == 200
    report.refresh_from_db()
    assert report.position == {}


def test_who_may_not_read_a_topic_finds_no_report_of_it(ask: Ask, report: Report) -> None:
    run = finished(report)
    User.objects.filter(username="operator").update(readable_topics="clicks")

    assert ask("operator", "GET", "reports")[1] == {"reports": []}
    for method, path in (
        ("GET", "daily"),
        ("DELETE", "daily"),
        ("POST", "daily/forget"),
        ("POST", "daily/runs"),
        ("GET", "daily/runs"),
        ("GET", f"daily/runs/{run.pk}"),
        ("GET", f"daily/runs/{run.pk}/result"),
        ("GET", f"daily/runs/{run.pk}/files/result.csv"),
        ("POST", f"daily/runs/{run.pk}/cancel"),
    ):
        body = {} if method == "POST" else None
        assert ask("operator", method, f"reports/{path}", body)[0] == 404, path


def test_who_may_not_export_a_topic_reads_rows_and_fetches_no_file(
    ask: Ask, report: Report
) -> None:
    run = finished(report)
    User.objects.filter(username="viewer").update(exportable_topics="clicks")

    assert ask("viewer", "GET", f"reports/daily/runs/{run.pk}/result")[0] == 200
    assert ask("viewer", "GET", f"reports/daily/runs/{run.pk}/files/result.csv")[0] == 403


def test_a_result_whose_files_are_gone_is_not_found(ask: Ask, report: Report) -> None:
    run = finished(report)
    results.prune("daily", 0, set())

    for path in ("result", "files/result.csv"):
        status, told = ask("viewer", "GET", f"reports/daily/runs/{run.pk}/{path}")
        assert (status, told["error"]["message"]) == (404, "The files of this result are gone.")
    assert ask("viewer", "GET", f"reports/daily/runs/{run.pk}/files/rows.json")[0] == 422


def test_runs_of_other_reports_are_not_runs_of_this_one(ask: Ask, report: Report) -> None:
    other = reports.save(
        actor=audit.SYSTEM, report=Report(name="other", kind="sums-by-key", topics="orders")
    )
    run = finished(other)
    assert ask("viewer", "GET", f"reports/daily/runs/{run.pk}")[0] == 404
    assert ask("operator", "POST", "reports/daily/runs", {"repeats": run.pk})[0] == 404


def test_a_report_is_set_up_changed_and_scheduled(ask: Ask) -> None:
    wanted = {
        "kind": "sums-by-key",
        "name": "sums",
        "topics": ["orders", "returns"],
        "parameters": {"amount": "price"},
        "format": {"kind": "csv", "schema_text": "price double", "separator": ";"},
        "schedule": "15 minutes",
    }
    status, made = ask("operator", "POST", "reports", wanted)

    assert status == 201
    assert (made["topics"], made["format"]["kind"]) == (["orders", "returns"], "csv")
    assert (made["format"]["schema"], made["format"]["separator"]) == ("price double", ";")
    assert (made["parameters"]["amount"], made["schedule"]) == ("price", "every 15 minutes")
    status, changed = ask("operator", "PATCH", "reports/sums", {"keep_runs": 3})
    assert status == 200
    assert {name for name in made if made[name] != changed[name]} <= {
        "keep_runs", "next_run_ms", "next_run_time",
    }  # fmt: skip
    assert changed["keep_runs"] == 3
    cron = {"schedule": "cron", "cron": "0 6 * * 1-5", "zone": "Europe/Berlin"}
    assert "0 6 * * 1-5" in ask("operator", "PATCH", "reports/sums", cron)[1]["schedule"]
    assert ask("operator", "PATCH", "reports/sums", {"schedule": ""})[1]["next_run_ms"] is None
    entries = AuditEntry.objects.filter(target="sums").order_by("pk")
    assert [(one.action, one.source) for one in entries] == [
        (f"report.{verb}", "api") for verb in ("create", "change", "change", "change")
    ]
    kinds = ask("viewer", "GET", "report-kinds")[1]["kinds"]
    (sums,) = (one for one in kinds if one["name"] == "sums-by-key")
    assert "amount" in [one["name"] for one in sums["parameters"]]


def test_a_report_that_makes_no_sense_is_refused_where_it_does_not(ask: Ask) -> None:
    right = {"kind": "sums-by-key", "name": "sums", "topics": ["orders"],
             "parameters": {"amount": "price"}}  # fmt: skip
    for change, where in (
        ({"kind": "no-such"}, "kind"),
        ({"topics": []}, "topics"),
        ({"range": "from here to there"}, "range"),
        ({"parameters": {"no-such": "1"}}, "parameters.no-such"),
        ({"parameters": {"amount": ""}}, "parameters.amount"),
        ({"format": {"kind": "avro"}}, "format.schema_text"),
        ({"schedule": "cron"}, "cron"),
        ({"zone": "Nowhere/Land"}, "zone"),
    ):
        status, refused = ask("operator", "POST", "reports", {**right, **change})
        assert (status, refused["error"]["details"][0]["where"]) == (422, f"body.{where}"), change
    assert ask("viewer", "POST", "reports", right)[0] == 403
    assert not Report.objects.exists()
    assert ask("operator", "POST", "reports", right)[0] == 201
    assert ask("operator", "POST", "reports", right)[0] in (409, 422)
    assert ask("operator", "PATCH", "reports/no-such", {"keep_runs": 3})[0] == 404
