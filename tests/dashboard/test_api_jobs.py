"""Schedules and runs of jobs by the API: made, changed, run out of turn; whose runs one sees."""

from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from dashboard import run_logs
from dashboard.models import AuditEntry, JobRun, User
from dashboard.services import schedules
from tests.dashboard.conftest import Ask

pytestmark = pytest.mark.django_db
NEW = {"job": "retention", "name": "Nightly", "cron": "30 2 * * *", "zone": "Europe/Berlin"}


@pytest.fixture(autouse=True)
def own_directory(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


def test_the_life_of_a_schedule(ask: Ask) -> None:
    status, made = ask("operator", "POST", "schedules", {**NEW, "topics": ["orders", "clicks"]})
    assert status == 201, made
    assert (made["cron"], made["zone"], made["every"]) == ("30 2 * * *", "Europe/Berlin", None)
    assert made["parameters"] == {"topics": ["orders", "clicks"]}
    assert (made["words"], len(made["next_times"])) == ("At 02:30", 5)
    path = f"schedules/{made['id']}"
    assert ask("viewer", "GET", path) == (200, made)

    status, changed = ask("operator", "PATCH", path, {"every": 6, "period": "hours"})
    assert status == 200, changed
    assert (changed["every"], changed["period"], changed["cron"]) == (6, "hours", None)
    assert changed["parameters"] == made["parameters"]
    assert changed["is_on"]

    status, off = ask("operator", "PATCH", path, {"is_on": False, "topics": []})
    assert (off["is_on"], off["next_times"], off["parameters"]) == (False, [], {})

    status, run = ask("operator", "POST", f"{path}/runs")
    assert (status, run["job"], run["trigger"], run["state"]) == (201, "retention", "api", "queued")
    assert ask("operator", "POST", f"{path}/runs")[0] == 409
    assert ask("viewer", "GET", path)[1]["last_run"]["id"] == run["id"]

    assert ask("operator", "DELETE", path)[0] == 200
    assert ask("viewer", "GET", path)[0] == 404
    assert ask("viewer", "GET", f"jobs/{run['id']}")[0] == 200
    sources = AuditEntry.objects.exclude(action="token.make").values_list("action", "source")
    assert set(sources) == {
        (action, "api")
        for action in ("schedule.create", "schedule.change", "schedule.delete", "job.run")
    }


def test_what_comes_with_odradek_is_listed_and_stays(ask: Ask) -> None:
    schedules.make_missing()
    told = ask("viewer", "GET", "schedules")[1]
    assert told["scheduler"] is None
    assert [each["name"] for each in told["schedules"]] == sorted(schedules.SCHEDULES)
    first = told["schedules"][0]
    assert ask("operator", "DELETE", f"schedules/{first['id']}")[0] == 409
    status, changed = ask("operator", "PATCH", f"schedules/{first['id']}", {"is_on": False})
    assert (status, changed["is_on"]) == (200, False)


@pytest.mark.parametrize(
    ("change", "status", "where"),
    [
        ({"cron": "every night"}, 409, None),
        ({"zone": "Mars/Olympus"}, 422, "body.zone"),
        ({"cron": None}, 422, "body.every"),
        ({"every": 5}, 422, "body.cron"),
        ({"cron": None, "every": 5, "period": "seconds"}, 409, None),
        ({"job": "sampling", "topics": ["orders"]}, 422, "body.topics"),
        ({"job": "report"}, 409, None),
        ({"job": "export"}, 422, "body.new.job"),
        ({"topics": ["no name"]}, 422, "body.new.topics.0"),
    ],
)
def test_what_makes_no_sense_is_said_where_it_is(
    ask: Ask, change: dict[str, Any], status: int, where: str | None
) -> None:
    told = ask("operator", "POST", "schedules", {**NEW, **change})
    assert told[0] == status, told
    assert where is None or [each["where"] for each in told[1]["error"]["details"]] == [where]
    assert not PeriodicTask.objects.exists()


def test_a_viewer_changes_no_schedule(ask: Ask) -> None:
    made = ask("operator", "POST", "schedules", NEW)[1]
    path = f"schedules/{made['id']}"
    assert ask("viewer", "POST", "schedules", {**NEW, "name": "Another"})[0] == 403
    assert ask("viewer", "PATCH", path, {"is_on": False})[0] == 403
    assert ask("viewer", "POST", f"{path}/runs")[0] == 403
    assert ask("viewer", "DELETE", path)[0] == 403


def test_a_row_that_somebody_has_spoilt_is_told_as_such(ask: Ask) -> None:
    made = ask("operator", "POST", "schedules", NEW)[1]
    PeriodicTask.objects.update(kwargs="{}")
    path = f"schedules/{made['id']}"
    assert "does not say which job" in ask("viewer", "GET", path)[1]["trouble"]
    assert ask("operator", "POST", f"{path}/runs")[0] == 422
    assert ask("operator", "PATCH", path, {"is_on": False})[0] == 422


def run_of(owner: str | None, job: str, state: str = "queued") -> JobRun:
    user = User.objects.get(username=owner) if owner else None
    return JobRun.objects.create(
        job=job, target=f"{job} of {owner}", trigger="person", requested_by=user, state=state,
        queued_at=timezone.now(), result={"rows": 3} if state == "ok" else None,
    )  # fmt: skip


def test_exports_of_others_are_not_there_but_for_an_admin(ask: Ask) -> None:
    mine, other = run_of("viewer", "export"), run_of("operator", "export")
    common = run_of(None, "retention", "incomplete")
    listed = {
        role: {run["id"] for run in ask(role, "GET", "jobs")[1]["runs"]}
        for role in ("viewer", "operator", "admin")
    }
    assert listed == {
        "viewer": {mine.pk, common.pk},
        "operator": {other.pk, common.pk},
        "admin": {mine.pk, other.pk, common.pk},
    }
    assert ask("viewer", "GET", f"jobs/{other.pk}")[0] == 404
    assert ask("viewer", "GET", f"jobs/{other.pk}/log")[0] == 404
    assert ask("viewer", "POST", f"jobs/{other.pk}/cancel")[0] == 404
    assert [run["id"] for run in ask("viewer", "GET", "jobs?state=incomplete")[1]["runs"]] == [
        common.pk
    ]


def test_ones_own_run_is_cancelled_and_others_by_whom_may_run_jobs(ask: Ask) -> None:
    mine, other = run_of("viewer", "export"), run_of("admin", "retention")
    assert ask("viewer", "POST", f"jobs/{mine.pk}/cancel")[0] == 200
    assert ask("viewer", "POST", f"jobs/{other.pk}/cancel")[0] == 403
    assert ask("operator", "POST", f"jobs/{other.pk}/cancel")[0] == 200
    states = {run.pk: run.state for run in JobRun.objects.all()}
    assert states == {mine.pk: "cancelled", other.pk: "cancelled"}


def test_result_and_log_of_a_run(ask: Ask) -> None:
    run = run_of("operator", "retention", "ok")
    assert ask("viewer", "GET", f"jobs/{run.pk}")[1]["result"] == {"rows": 3}
    assert ask("viewer", "GET", f"jobs/{run.pk}/log")[0] == 404
    run_logs.directory().mkdir()
    run_logs.path_of(run.pk).write_text("2026-01-15T11:30:00Z three went\n")
    assert ask("viewer", "GET", f"jobs/{run.pk}/log") == (
        200,
        {"log": "2026-01-15T11:30:00Z three went\n"},
    )


EXPORT = {
    "request": {
        "range": {"topic": "t", "partitions": [], "cursor": None},
        "wanted": {"expression": "", "in_key": "", "in_value": "", "in_header": ""},
        "bounds": {"records": 1, "size_bytes": 1, "seconds": 1},
        "path": "", "format": "csv", "max_file_bytes": 0, "kind": "export",
    }
}  # fmt: skip


def test_an_export_is_listed_fetched_cancelled_and_deleted_by_its_owner(ask: Ask) -> None:
    mine = run_of("viewer", "export")
    JobRun.objects.filter(pk=mine.pk).update(parameters=EXPORT)

    (listed,) = ask("viewer", "GET", "exports")[1]["exports"]
    assert (listed["topic"], listed["format"], listed["has_file"]) == ("t", "csv", False)
    assert ask("operator", "GET", "exports")[1] == {"exports": []}
    assert ask("operator", "POST", f"exports/{mine.pk}/cancel")[0] == 404
    status, refusal = ask("viewer", "GET", f"exports/{mine.pk}/file")
    assert (status, refusal["error"]["message"]) == (
        404, "This export has no file: it is queued.",
    )  # fmt: skip
    assert ask("viewer", "POST", f"exports/{mine.pk}/cancel")[0] == 200
    assert ask("viewer", "GET", f"exports/{mine.pk}")[1]["state"] == "cancelled"
    assert ask("viewer", "DELETE", f"exports/{mine.pk}/file")[0] == 200


@pytest.mark.parametrize("parameters", [{}, {"request": {}}, {"request": {"format": "csv"}},
                                        {"request": {**EXPORT["request"], "range": {}}}])  # fmt: skip
def test_an_export_whose_row_does_not_say_of_what_is_not_there(
    ask: Ask, client: Client, parameters: dict[str, Any]
) -> None:
    run = run_of("admin", "export", "ok")
    JobRun.objects.filter(pk=run.pk).update(parameters=parameters)
    client.force_login(User.objects.get(username="admin"))

    assert ask("admin", "GET", "exports")[1] == {"exports": []}
    for method, path in (("GET", ""), ("GET", "/file"), ("DELETE", "/file"), ("POST", "/cancel")):
        assert ask("admin", method, f"exports/{run.pk}{path}")[0] == 404
    assert client.get("/exports/").status_code == 200
    assert client.get(f"/exports/{run.pk}/file/").status_code == 404
    assert client.post(f"/exports/{run.pk}/cancel/").status_code == 404
    assert client.post(f"/exports/{run.pk}/delete/").status_code == 404


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"format": "xml"}, "body.wanted.format"),
        ({"start": "offset"}, "body.offset"),
        ({"start": "time"}, "body.time"),
        ({"since": "yesterday"}, "body.since"),
        ({"since": "2000", "until": "1000"}, "body.until"),
        ({"partitions": [-1]}, "body.wanted.partitions.0"),
        ({"filter": "value =="}, "body.filter"),
    ],
)
def test_an_export_of_nothing_that_makes_sense_is_refused_with_the_place(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any], where: str
) -> None:
    monkeypatch.setattr("dashboard.api.exports.topic_state", lambda name: None)

    status, refusal = ask("viewer", "POST", "topics/t/exports", body)

    assert (status, [one["where"] for one in refusal["error"]["details"]]) == (422, [where])
    assert not JobRun.objects.exists()
