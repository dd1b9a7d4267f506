"""What is looked at: rows of jobs, the scheduler's lease, the supervisor's file, disks."""

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path

import pytest
from django.test import override_settings

from dashboard.alerting import sources
from dashboard.alerting.sources import Lookout, from_ms, read_restarts
from dashboard.models import JobMark, JobRun, Lease
from dashboard.snapshots import BrokerState, ClusterSnapshot
from tests.dashboard.alerting.conftest import START_MS

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def data_directory(tmp_path: Path) -> object:
    with override_settings(DATA_DIR=tmp_path):
        yield tmp_path


def run(job: str, target: str, state: str, minutes_ago: int, error: str = "") -> None:
    at = from_ms(START_MS) - dt.timedelta(minutes=minutes_ago)
    JobRun.objects.create(
        job=job, target=target, state=state, error=error, queued_at=at, finished_at=at
    )


def test_failures_in_a_row_end_at_a_success() -> None:
    run("retention", "", "failed", 30, "old")
    run("retention", "", "ok", 20)
    run("retention", "", "failed", 10, "no room\ndetails")
    run("report", "orders", "lost", 9)
    run("report", "orders", "failed", 5, "boom")
    run("report", "orders", "cancelled", 4)
    run("report", "clicks", "failed", 9)
    run("report", "clicks", "ok", 5)
    run("ancient", "", "failed", 60 * 24 * 8)

    jobs = Lookout().look(None, START_MS).failing_jobs

    assert jobs is not None
    assert {(job.name, job.failure_count, job.error) for job in jobs} == {
        ("retention", 1, "no room"),
        ("report/orders", 2, "boom"),
    }


def test_a_row_stands_for_the_failures_before_it_and_a_mark_for_successes_without_rows() -> None:
    run("retention", "", "failed", 30, "no room")
    JobRun.objects.update(repeat_count=4, repeats_since=from_ms(START_MS - 3_600_000))
    run("sampling", "", "failed", 30)
    well = from_ms(START_MS - 60_000)
    JobMark.objects.create(job="sampling", state="ok", finished_at=well, ok_at=well)

    (job,) = Lookout().look(None, START_MS).failing_jobs or ()

    assert (job.name, job.failure_count, job.since_ms) == ("retention", 5, START_MS - 3_600_000)


def test_the_scheduler_is_there_until_its_lease_ends() -> None:
    assert Lookout().look(None, START_MS).scheduler_sign_ms is None
    Lease.objects.create(name="scheduler", holder="w", until=from_ms(START_MS - 5000))
    assert Lookout().look(None, START_MS).scheduler_sign_ms == START_MS - 5000


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"children": 1}', '{"children": {"web": {}}}']
)
def test_a_file_that_says_something_else_tells_nothing(data_directory: Path, text: str) -> None:
    path = data_directory / "children.json"
    assert read_restarts(path) is None
    path.write_text(text)
    assert read_restarts(path) is None


def test_restarts_are_read(data_directory: Path) -> None:
    path = data_directory / "children.json"
    path.write_text(
        json.dumps({"children": {"web": {"restarts_ms": [1, 2]}, "broker": {"restarts_ms": []}}})
    )

    assert read_restarts(path) == {"web": (1, 2), "broker": ()}


def test_disks_of_brokers_count_where_they_are_told(data_directory: Path) -> None:
    broker = BrokerState(1, "h", 1, None, True, 0, 0, disk_total_bytes=1234, disk_free_bytes=34)
    silent = replace(broker, broker_id=2, stale_since_ms=1)
    untold = replace(broker, broker_id=3, disk_total_bytes=None)
    seen = ClusterSnapshot(START_MS, "c", 1, {1: broker, 2: silent, 3: untold}, {})

    disks = Lookout().look(seen, START_MS).disks

    assert disks is not None
    assert [(disk.name, disk.is_known) for disk in disks] == [
        (sources.DATA_DIRECTORY, True),
        ("broker-1", True),
        ("broker-2", False),
    ]
    assert disks[0].total_bytes > disks[0].free_bytes > 0


def test_the_disk_that_we_see_ourselves_is_not_told_twice() -> None:
    own = Lookout().look(None, START_MS).disks
    assert own is not None
    broker = BrokerState(
        1, "h", 1, None, True, 0, 0, disk_total_bytes=own[0].total_bytes, disk_free_bytes=1
    )
    seen = ClusterSnapshot(START_MS, "c", 1, {1: broker}, {})

    disks = Lookout().look(seen, START_MS).disks

    assert disks is not None
    assert len(disks) == 1
