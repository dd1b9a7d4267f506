"""Reports as they are set up and shown, without Spark: forms, schedules, who sees what, comparisons."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from dashboard.forms.reports import ReportForm
from dashboard.jobs import report as job
from dashboard.models import JobRun, Report, User
from dashboard.selectors import reports as selector
from dashboard.services import audit, reports, schedules
from dashboard.spark import results
from spark_tasks import registry

pytestmark = pytest.mark.django_db
FORM = {
    "name": "daily", "topics": "orders, clicks,orders", "range": "@-1d", "timeout_s": "60",
    "keep_runs": "3", "format_kind": "json", "parameter_window": "1h", "parameter_groups": "5",
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_directory(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path


def form(kind: str = "events-over-time", **changes: str) -> ReportForm:
    return ReportForm({**FORM, **changes}, kind=registry.shipped()[kind])


def saved(name: str = "daily", **fields: Any) -> Report:
    given = {"kind": "sums-by-key", "topics": "orders", **fields}
    return reports.save(actor=audit.SYSTEM, report=Report(name=name, **given))


def test_a_form_makes_a_report_of_its_kind() -> None:
    filled = form(parameter_group="kind", format_schema="kind string")
    assert filled.is_valid(), filled.errors
    report = reports.save(actor=audit.SYSTEM, report=filled.instance)
    assert (report.kind, report.topics) == ("events-over-time", "clicks, orders")
    assert report.parameters == {"window": "1h", "group": "kind", "groups": "5", "time_field": ""}
    assert report.format["schema"] == "kind string"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"parameter_window": "soon"}, "parameter_window"),
        ({"parameter_groups": "51"}, "parameter_groups"),
        ({"range": "@yesterday"}, "range"),
        ({"topics": " , "}, "topics"),
        ({"name": "Daily report"}, "name"),
        ({"format_kind": "csv"}, "format_schema"),
        ({"format_kind": "regex", "format_expression": "a+"}, "format_expression"),
        ({"schedule": "cron"}, "cron"),
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"timeout_s": "1"}, "timeout_s"),
    ],
)
def test_a_wrong_field_is_said_where_it_is(changes: dict[str, str], field: str) -> None:
    filled = form(**changes)
    assert not filled.is_valid()
    assert field in filled.errors


def test_moments_of_a_result_are_cells_of_their_own_and_what_is_none_is_text() -> None:
    report = saved(kind="events-over-time")
    columns = [
        {"name": "window_start", "type": "timestamp"},
        {"name": "group", "type": "string"},
        {"name": "events", "type": "bigint"},
    ]
    rows = [["2026-01-15T11:30:00.250+00:00", "2026-01-15", 3], [None, "b", 4], ["soon", "c", 5]]
    run = JobRun.objects.create(
        job="report", target=report.name, trigger="person", state="ok", queued_at=timezone.now(),
        result={"row_count": 3},
    )  # fmt: skip
    results.complete(results.begin(report.name, run.pk))
    document = json.dumps({"columns": columns, "rows": rows})
    (results.directory_of(report.name, run.pk) / "rows.json").write_text(document)
    kind = registry.shipped()["events-over-time"]

    table = selector.result_table(report, run, kind)
    assert table is not None
    assert [[cell.at_ms for cell in row] for row in table.rows] == [
        [1768476600250, None, None],
        [None, None, None],
        [None, None, None],
    ]
    chart = selector.chart_data(report, run, kind)
    assert (chart["times"], chart["series"][0]["values"]) == ([1768476600.25], [3.0])


def test_a_report_that_looks_into_values_wants_to_know_how_they_are_written() -> None:
    filled = ReportForm(
        {**FORM, "format_kind": "none", "parameter_field": "page", "parameter_n": "5"},
        kind=registry.shipped()["top-values"],
    )
    assert "format_kind" in filled.errors
    by_key = ReportForm(
        {**FORM, "format_kind": "none", "parameter_field": "@key", "parameter_n": "5"},
        kind=registry.shipped()["top-values"],
    )
    assert by_key.is_valid(), by_key.errors


def test_a_schedule_is_told_in_words_and_goes_with_its_report() -> None:
    report = saved()
    reports.set_schedule(actor=audit.SYSTEM, report=report, every=15, period="minutes")
    row = selector.row_of(report)
    assert row.schedule == "every 15 minutes"
    assert row.next_at is not None
    reports.set_schedule(
        actor=audit.SYSTEM, report=report, expression="30 6 * * *", zone="Europe/Berlin"
    )
    assert selector.row_of(report).schedule == "every day at 06:30 (Europe/Berlin)"
    assert schedules.ours().count() == 1
    reports.delete(actor=audit.SYSTEM, report=report)
    assert schedules.ours().count() == 0


@pytest.mark.parametrize(
    "times", [{"every": 4, "period": "minutes"}, {"expression": "*/2 * * * *"}]
)
def test_five_minutes_lie_between_two_runs(times: dict[str, Any]) -> None:
    with pytest.raises(schedules.ScheduleRefused, match="every 5 minutes"):
        reports.set_schedule(actor=audit.SYSTEM, report=saved(), **times)


def test_a_report_is_seen_by_whom_all_its_topics_may_be_read() -> None:
    report = saved(topics="orders, secrets")
    User.objects.create_user("all", password="x", role="viewer")
    some = User.objects.create_user("some", password="x", role="viewer", readable_topics="orders")
    assert not selector.may_see(some, report)
    assert selector.rows(some) == []
    some.readable_topics = "orders secret*"
    assert selector.may_see(some, report)


def finished(report: Report, rows: list[list[Any]]) -> JobRun:
    now = timezone.now()
    run = JobRun.objects.create(
        job="report", target=report.name, trigger="person", state="ok", queued_at=now,
        started_at=now, finished_at=now, result={"row_count": len(rows)},
    )  # fmt: skip
    making = results.begin(report.name, run.pk)
    columns = [{"name": "key", "type": "string"}, {"name": "sum", "type": "decimal(38,6)"}]
    (making / "rows.json").write_text(json.dumps({"columns": columns, "rows": rows}))
    results.complete(making)
    return run


def test_a_result_is_compared_with_the_one_before_by_what_names_its_rows() -> None:
    report = saved()
    first = finished(report, [["a", "10"], ["b", "4"]])
    second = finished(report, [["b", "4"], ["a", "15"], ["c", "1"]])
    kind = registry.shipped()[report.kind]
    table = selector.result_table(report, second, kind)
    assert table is not None
    assert table.compared_with == first
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["b", "4", "4", "="], ["a", "15", "10", "+5 (+50.0 %)"], ["c", "1", None, "new"],
    ]  # fmt: skip
    assert [row[1].share for row in table.rows] == [267, 1000, 67]


def test_lines_of_a_chart_are_the_largest_groups(settings: Any) -> None:
    report = saved(kind="events-over-time")
    run = finished(report, [])
    columns = [
        {"name": "window_start", "type": "timestamp"},
        {"name": "group", "type": "string"},
        {"name": "events", "type": "bigint"},
    ]
    rows = [
        [f"2026-01-01T00:0{minute}:00.000+00:00", f"g{group:02}", group + minute]
        for minute in range(2)
        for group in range(15)
    ]
    (results.directory_of(report.name, run.pk) / "rows.json").write_text(
        json.dumps({"columns": columns, "rows": rows})
    )
    data = selector.chart_data(report, run, registry.shipped()["events-over-time"])
    assert data["times"] == [1767225600.0, 1767225660.0]
    assert [each["label"] for each in data["series"]] == [f"g{group:02}" for group in range(3, 15)]
    assert data["series"][0]["values"] == [3.0, 4.0]


class Context:
    """A run's context that keeps nothing."""

    run_id = 1
    target = "daily"
    parameters: dict[str, Any] = {}

    def progress(self, done: int, total: int | None = None, text: str = "") -> None:
        pass

    def remember(self, **parameters: Any) -> None:
        pass

    def log(self, text: str) -> None:
        pass


def test_a_run_says_what_is_missing_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(job.ReportFailed, match="no report 'daily' any more"):
        job.run(Context())
    saved()
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(job.ReportFailed, match=r"not installed.*apt install openjdk-17"):
        job.run(Context())


class Telling:
    """Spark's process, by what it says."""

    def __init__(self, *said: dict[str, Any]) -> None:
        self.said = iter(said)

    def read(self, _: float) -> dict[str, Any]:
        return next(self.said)

    def has_java(self) -> bool:
        return True


def test_stages_and_tasks_are_told_while_it_runs() -> None:
    told: list[tuple[int, int | None, str]] = []

    class Listening(Context):
        def progress(self, done: int, total: int | None = None, text: str = "") -> None:
            told.append((done, total, text))

    process: Any = Telling(
        {"state": "starting"},
        {"state": "computing"},
        {"progress": {"stages": 2, "tasks_done": 3, "tasks": 8}},
        {"result": {"row_count": 1}},
    )
    assert job._follow(Listening(), process, 60, "here") == {"row_count": 1}
    assert told == [
        (0, None, "Spark starts"),
        (0, None, "Spark starts"),
        (0, None, "Spark computes"),
        (3, 8, "stage 2: 3 of 8 tasks"),
    ]


def test_the_page_shows_how_far_a_run_is(client: Client) -> None:
    client.force_login(User.objects.create_user("ada", role="admin"))
    report = saved()
    JobRun.objects.create(
        job="report", target=report.name, trigger="person", state="running", done=3, total=8,
        progress_text="stage 2: 3 of 8 tasks", queued_at=timezone.now(), started_at=timezone.now(),
    )  # fmt: skip
    page = client.get(f"/reports/{report.name}/").content.decode()
    assert "stage 2: 3 of 8 tasks" in page
    assert '<progress max="8" value="3">' in page


def test_a_report_that_runs_is_not_deleted() -> None:
    report = saved()
    reports.start(actor=audit.SYSTEM, report=report)
    with pytest.raises(reports.ReportRefused, match="cancel the run first"):
        reports.delete(actor=audit.SYSTEM, report=report)
