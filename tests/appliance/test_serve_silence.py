"""What happens when nobody asks for retention, or nothing can be written: the broker sees to it.

A whole `odradek serve`. Its parts are stopped, killed and starved of room; data still leaves, people
and Prometheus are told, and the rows come when they can be written.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dashboard.broker_api import BrokerApi
from dashboard.gateway import Gateway
from tests.appliance.test_serve_web import PASSWORD, REPOSITORY, Appliance, environment
from tests.conformance.test_disk_full import use_up
from tests.support import judge, processes

TOKEN = {"Authorization": "Bearer figures"}
SETTINGS = {"ODRADEK_METRICS_TOKEN": "figures", "ODRADEK_ADMIN_PASSWORD": PASSWORD}
ROWS = """
import json
from dashboard.models import JobRun
rows = JobRun.objects.filter(job="retention", state="ok")
print(json.dumps([[run.trigger, run.parameters, run.result] for run in rows]))
"""


def python(data: Path, code: str) -> str:
    """With this appliance's Django."""
    done = subprocess.run(
        [sys.executable, "-c", f"import django; django.setup()\n{code}"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True,
        env={**environment(), "ODRADEK_DATA": str(data), "DJANGO_SETTINGS_MODULE": "appliance.settings"},
    )  # fmt: skip
    return done.stdout


def rows(data: Path) -> list[list[Any]]:
    """(trigger, parameters, result) of runs of retention, the newest first."""
    found: list[list[Any]] = json.loads(python(data, ROWS))
    return found


def switch_retention(data: Path, *, is_on: bool) -> None:
    code = (
        "from dashboard.services import audit, schedules\n"
        'task = schedules.ours().get(name="Retention of all topics")\n'
        f"schedules.switch(actor=audit.SYSTEM, task=task, is_on={is_on})"
    )
    python(data, code)


def make_topic(one: Appliance, name: str, megabytes: int) -> None:
    """Holds much more than its policy lets it keep."""
    gateway = Gateway("{}:{}".format(*one.kafka))
    gateway.create_topics(
        [name], partitions=1, replication_factor=1,
        configs={"segment.bytes": "1048576", "retention.bytes": "1048576", "file.delete.delay.ms": "0"},
    )  # fmt: skip
    fill(one, name, megabytes)


def fill(one: Appliance, name: str, megabytes: int) -> None:
    writer = Gateway("{}:{}".format(*one.kafka)).writer(name, **{"compression.type": "none"})
    for number in range(megabytes * 10):
        writer.send(0, os.urandom(100_000), b"%d" % number, [], 0)
    writer.flush(60)


def start_offset(data: Path, topic: str) -> int:
    told = BrokerApi(data).partitions(topic)
    assert told is not None
    return int(told[0]["log_start_offset"])


def retention_of(data: Path) -> dict[str, Any]:
    node = BrokerApi(data).node()
    assert node is not None
    assert node.retention is not None
    return node.retention


def metric(one: Appliance, name: str) -> float | None:
    text = httpx.get(f"{one.url}/metrics", headers=TOKEN, timeout=30).text
    found = [line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(found[0]) if found else None


@contextlib.contextmanager
def signed_in(one: Appliance) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=one.url, timeout=60, follow_redirects=True) as client:
        page = client.get("/login/").text
        token = page.partition('name="csrfmiddlewaretoken" value="')[2].partition('"')[0]
        form = {"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": token}
        assert client.post("/login/", data=form).status_code == 200
        yield client


@pytest.fixture
def appliance(tmp_path: Path) -> Iterator[Appliance]:
    one = Appliance(tmp_path / "data", settings=SETTINGS)
    try:
        yield one.start()
        assert one.stop() == 0, one.log()
    finally:
        one.close()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_stopped_worker_is_stepped_in_for_and_told_of_and_beat_comes_back_after_a_kill(
    appliance: Appliance,
) -> None:
    make_topic(appliance, "silent", 4)
    processes.wait_until(
        lambda: start_offset(appliance.data, "silent") > 0, 120, "retention by the schedule"
    )
    assert retention_of(appliance.data)["last_run_by"] == "request"
    assert {row[0] for row in rows(appliance.data)} == {"schedule"}

    worker = appliance.children()["worker"]
    os.kill(worker, signal.SIGSTOP)
    fill(appliance, "silent", 4)
    before = start_offset(appliance.data, "silent")
    processes.wait_until(
        lambda: start_offset(appliance.data, "silent") > before, 300, "retention by the broker",
        every=1,
    )  # fmt: skip
    assert retention_of(appliance.data)["is_scheduler_silent"]
    with signed_in(appliance) as client:
        processes.wait_until(
            lambda: "The scheduler is silent" in client.get("/").text, 120, "the overview", every=2
        )
        assert "The scheduler is silent" in client.get("/retention/").text
        assert "The scheduler is silent" in client.get("/jobs/").text
    assert metric(appliance, "odradek_scheduler_silent") == 1
    assert metric(appliance, "odradek_scheduler_up") == 0

    os.kill(worker, signal.SIGCONT)
    processes.wait_until(
        lambda: "broker" in {row[0] for row in rows(appliance.data)},
        180,
        "its row",
        every=2,
    )
    row = [row for row in rows(appliance.data) if row[0] == "broker"][-1]
    assert row[1] == {"by": "timer"}
    assert row[2]["topics"]["silent"]["reasons"]["size"]["segments"] >= 3
    processes.wait_until(
        lambda: not retention_of(appliance.data)["is_scheduler_silent"], 120, "the scheduler"
    )

    os.kill(appliance.children()["worker"], signal.SIGKILL)
    asked_ms = retention_of(appliance.data)["last_request_ms"]
    processes.wait_until(
        lambda: retention_of(appliance.data)["last_request_ms"] > asked_ms, 180, "beat, once more"
    )
    assert metric(appliance, "odradek_scheduler_up") == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 MiB."""
    if os.getuid() != 0:
        judge.missing("only root can mount a small file system")
    where = tmp_path / "disk"
    where.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300m", "tmpfs", str(where)], capture_output=True
    )
    if done.returncode:
        judge.missing(f"a tmpfs cannot be mounted here: {done.stderr.decode().strip()}")
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_on_a_full_disk_retention_goes_on_and_its_row_comes_when_it_can(
    small_disk: Path, tmp_path: Path
) -> None:
    """A foreign file takes every byte: SQLite and the messages get ENOSPC."""
    data = small_disk / "data"
    one = Appliance(data, "--property", f"odradek.disk.floor.bytes={20 << 20}", settings=SETTINGS)
    try:
        one.start()
        with signed_in(one) as client:
            switch_retention(data, is_on=False)
            deleted = retention_of(data)["deleted_segments"]
            make_topic(one, "full", 30)
            use_up(small_disk / "foreign")
            processes.wait_until(
                lambda: retention_of(data)["deleted_segments"] > deleted, 60, "retention", every=0.2
            )
            processes.wait_until(  # the run's end is told after what it took
                lambda: retention_of(data)["last_run_by"] == "floor", 60, "the run's end", every=0.2
            )

            def tells(path: str, words: str) -> bool:
                """What retention has made room for is taken as well, until it has nothing more to give."""
                use_up(small_disk / f"foreign{time.monotonic_ns()}")
                return words in client.get(path).text

            processes.wait_until(
                lambda: tells("/storage/", "hardly any room left"), 60, "the page", every=1
            )
            processes.wait_until(
                lambda: tells("/", "less than its floor"), 120, "the overview", every=1
            )
            assert metric(one, "odradek_writing_paused") == 1
            assert client.get("/jobs/").status_code == 200
            assert "broker" not in {row[0] for row in rows(data)}

            for each in small_disk.glob("foreign*"):
                each.unlink()
            switch_retention(data, is_on=True)
            processes.wait_until(
                lambda: "broker" in {row[0] for row in rows(data)}, 180, "its row", every=2
            )
        (row, *_) = [row for row in rows(data) if row[0] == "broker"]
        assert row[1] == {"by": "floor"}
        assert row[2]["topics"]["full"]["segments"] > 0
        processes.wait_until(
            lambda: metric(one, "odradek_writing_paused") == 0, 60, "writing again", every=1
        )
        assert one.stop() == 0, one.log()
    finally:
        one.close()
