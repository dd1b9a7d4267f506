"""A whole ``odradek serve`` that is killed while Spark computes a report for it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_tasks.parenthood import members
from tests.appliance.test_serve_web import PASSWORD, REPOSITORY, Appliance, environment, is_gone
from tests.support import processes
from tests.support.spark import require

SPARK_S = 240.0
GONE_S = 5.0
REPORT = "top"
MAKE = """
from dashboard.models import Report
from dashboard.services import audit, reports
reports.save(actor=audit.SYSTEM, report=Report(
    name="top", kind="top-values", topics="pages", range="start",
    parameters={"field": "page", "n": "5"},
    format={"kind": "json", "schema": "page string"},
))
"""
START = """
import appliance.celery
from dashboard.models import Report
from dashboard.services import audit, reports
print(reports.start(actor=audit.SYSTEM, report=Report.objects.get(name="top")).pk)
"""
ROWS = """
import json
from dashboard import run_logs
from dashboard.models import JobRun
print(json.dumps([
    {"id": run.pk, "state": run.state, "error": run.error, "result": run.result,
     "log": run_logs.read(run.pk) or "", "text": run.progress_text}
    for run in JobRun.objects.filter(job="report").order_by("pk")
]))
"""


class Site:
    def __init__(self, directory: Path) -> None:
        self.settings = {
            "ODRADEK_ADMIN_PASSWORD": PASSWORD,
            "ODRADEK_SPARK_HOME": str(require().directory),
        }
        self.one = Appliance(directory / "data", settings=self.settings)

    def python(self, code: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", f"import django; django.setup()\n{code}"],
            cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False,
            env={
                **environment(), **self.settings, "DJANGO_SETTINGS_MODULE": "appliance.settings",
                "ODRADEK_DATA": str(self.one.data),
                "ODRADEK_CLUSTER": "{}:{}".format(*self.one.kafka),
            },
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.python(ROWS))
        return found

    def begin(self) -> dict[str, int]:
        """Ask for a run, and return the processes of the report when its Java works."""
        self.python(START)
        found: dict[str, int] = {}

        def has_java() -> bool:
            found.clear()
            found.update(spark_processes(self.one.children()["worker"]))
            return "java" in found

        processes.wait_until(has_java, SPARK_S, "Spark's Java", every=0.1)
        return found

    def wait(self, number: int, *states: str) -> dict[str, Any]:
        """The ``number``th run of all, once it is in one of the states."""
        found: dict[str, Any] = {}

        def is_so() -> bool:
            found.update(self.rows()[number])
            return found["state"] in states

        processes.wait_until(is_so, SPARK_S, f"run {number} {states}", every=0.5)
        return found


def spark_processes(worker: int) -> dict[str, int]:
    """{"driver": pid, "java": pid} of the report that this worker runs."""
    found = {}
    children = Path(f"/proc/{worker}/task").glob("*/children")
    for pid in (int(word) for path in children for word in path.read_text().split()):
        if b"spark_tasks" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            found["driver"] = pid
    for pid in members(found.get("driver", -1)):
        if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
            found["java"] = pid
    return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    try:
        found.one.start()
        producer = Producer({"bootstrap.servers": "{}:{}".format(*found.one.kafka)})
        for number in range(100):
            producer.produce("pages", b'{"page": "/p%d"}' % (number % 3))
        assert producer.flush(60) == 0
        found.python(MAKE)
        yield found
    finally:
        found.one.close()


def assert_all_gone(report: dict[str, int], children: dict[str, int]) -> None:
    processes.wait_until(
        lambda: all(map(is_gone, report.values())) and not members(report["driver"]),
        GONE_S,
        f"the end of {report}",
    )
    # A second or two; a broker that has much to write may take longer, and has to.
    processes.wait_until(lambda: all(map(is_gone, children.values())), 30, f"the end of {children}")


@pytest.mark.slow
def test_a_killed_supervisor_leaves_no_process_and_the_report_begins_again(site: Site) -> None:
    report, children = site.begin(), site.one.children()
    assert children.keys() == {"broker", "worker", "web"}
    site.one.stop(signal.SIGKILL)
    assert_all_gone(report, children)

    # The worker had the time to put it back: nothing is lost, and its log tells what happened.
    (left,) = site.rows()
    assert left["state"] == "queued"
    assert "worker was stopped" in left["text"]
    site.one.start()
    again = site.wait(0, "ok", "failed", "lost", "incomplete")
    assert (again["state"], again["error"]) == ("ok", "")
    assert len(re.findall("its worker was stopped before it was done", again["log"])) == 1
    assert again["result"]["read"]["records"] == 100


@pytest.mark.slow
def test_supervisor_and_worker_killed_at_once_leave_a_run_that_is_lost(site: Site) -> None:
    """As the kernel does it when memory runs out, or somebody who kills whatever is Odradek's."""
    report, children = site.begin(), site.one.children()
    assert site.one.process is not None
    os.kill(site.one.process.pid, signal.SIGSTOP)  # it shall not start another worker
    os.kill(children["worker"], signal.SIGKILL)
    site.one.stop(signal.SIGKILL)
    assert_all_gone(report, children)

    site.one.start()
    lost = site.wait(0, "ok", "failed", "lost", "incomplete")
    assert lost["state"] == "lost"
    assert "worker ended" in lost["error"]
    site.python(START)
    clean = site.wait(1, "ok", "failed", "lost", "incomplete")
    assert (clean["state"], clean["error"]) == ("ok", "")
    reports = site.one.data / "reports" / REPORT
    assert [path.name for path in reports.iterdir()] == [f"run={clean['id']}"]
