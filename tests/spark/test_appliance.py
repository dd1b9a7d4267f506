"""A report from its form to its result, through pages, worker, Spark and command line; and what is
left when any of the processes is killed."""

import contextlib
import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from spark_tasks.parenthood import members
from tests.support import processes
from tests.support.odradek import REPOSITORY, OdradekBroker
from tests.support.spark import read_topic, require
from tests.support.web import WebProcess, post

SPARK_S = 240.0
"""A safety net: Spark starts in ten seconds on an idle machine."""


class Appliance:
    """Broker, web process and worker in one data directory, as `odradek serve` runs them."""

    def __init__(self, directory: Path) -> None:
        self.broker = OdradekBroker(directory)
        self.directory = directory
        self.worker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.broker.start()
        self.web = WebProcess(
            self.directory,
            self.broker.bootstrap,
            {"spark_home": str(require().directory)},
            data=self.broker.data,
        ).start()
        self.start_worker()
        self.client = self.web.client()
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        if self.worker is not None:
            processes.end(self.worker, signal.SIGTERM, 60)
        self.web.close()
        self.broker.close()

    def start_worker(self) -> None:
        with (self.directory / "worker.txt").open("ab") as output:
            self.worker = subprocess.Popen(
                [sys.executable, "-m", "appliance.worker"],
                cwd=REPOSITORY, env=self.web.environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output,
            )  # fmt: skip

    def odradek(self, *arguments: str, ok: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "appliance", *arguments, "--data", str(self.broker.data)],
            cwd=REPOSITORY, env=self.web.environment, capture_output=True, text=True,
            timeout=SPARK_S, check=False,
        )  # fmt: skip
        assert not ok or done.returncode == 0, done.stderr
        return done

    def topic(self, name: str, values: list[bytes | None]) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        for future in admin.create_topics([NewTopic(name, 2, 1)]).values():
            future.result()
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for number, value in enumerate(values):
            producer.produce(name, key=f"k{number % 5}", value=value, partition=number % 2)
        assert producer.flush(60) == 0

    def trim(self, topic: str, offset: str) -> None:
        command = [sys.executable, "-m", "appliance", "topic", "trim", topic, "-o", offset]
        done = subprocess.run(
            [*command, "-p", "0", "--yes", "-b", self.broker.bootstrap],
            cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def run_state(self, report: str) -> dict[str, Any]:
        code = (
            "import json, sys\nfrom dashboard.models import JobRun\n"
            "run = JobRun.objects.filter(job='report', target=sys.argv[1]).first()\n"
            "print(json.dumps(run and {'id': run.pk, 'state': run.state, 'error': run.error,"
            " 'result': run.result, 'parameters': run.parameters, 'text': run.progress_text}))"
        )
        found: dict[str, Any] = json.loads(self.web.run_python(code, report))
        return found

    def wait(self, report: str, *states: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def is_so() -> bool:
            found.update(self.run_state(report))
            return found["state"] in states

        processes.wait_until(is_so, SPARK_S, f"{report} {states}", every=0.3)
        return found


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    require()
    with Appliance(tmp_path_factory.mktemp("reports")) as found:
        yield found


VALUES: list[bytes | None] = [
    *(json.dumps({"page": f"/p{number % 3}", "price": number}).encode() for number in range(200)),
    b"broken",
    None,
]
FORM = {
    "parameter_field": "page", "parameter_n": "5", "range": "start", "timeout_s": "600",
    "keep_runs": "5", "format_kind": "json", "format_schema": "page string, price double",
}  # fmt: skip


def make(appliance: Appliance, name: str, topic: str, **more: str) -> None:
    answer = post(
        appliance.client,
        "reports/new/?kind=top-values",
        {**FORM, "name": name, "topics": topic, **more},
    )
    assert answer.status_code == 200
    assert f"Report {name} saved." in answer.text, answer.text


def test_a_report_goes_from_its_form_to_its_figures(appliance: Appliance) -> None:
    appliance.topic("pages", VALUES)
    appliance.topic("page-figures", [])
    make(appliance, "top-pages", "pages", schedule="1 hours", result_topic="page-figures")
    listed = json.loads(appliance.odradek("report", "list", "--format", "json").stdout)["data"]
    assert {row["report"]: row["schedule"] for row in listed}["top-pages"] == "every hour"
    shown = appliance.odradek("report", "run", "top-pages", "--format", "json")
    expected = Counter(json.loads(value)["page"] for value in VALUES[:200] if value)
    rows = json.loads(shown.stdout)["data"]
    assert {row["value"]: row["records"] for row in rows} == expected

    first = appliance.run_state("top-pages")
    assert first["state"] == "ok"
    assert first["result"]["read"]["not_parsed"] == first["result"]["read"]["tombstones"] == 1
    ranges = [["pages", 0, 0, 101, 0, 101], ["pages", 1, 0, 101, 0, 101]]
    assert first["parameters"]["ranges"] == ranges
    assert not list((appliance.broker.data / "reports/top-pages").glob("*.tmp"))

    # What an independent consumer finds in the result topic are the rows, and whose they are.
    written = read_topic(appliance.broker.bootstrap, "page-figures", 2)
    assert [json.loads(record.value or b"") for record in written] == rows
    run_id = str(first["id"]).encode()
    assert {record.headers for record in written} == {(("report", b"top-pages"), ("run", run_id))}

    page = appliance.client.get("reports/top-pages/").text
    assert "1 of 202 records could not be parsed" in page
    assert "/p0" in page
    downloaded = appliance.client.get(f"reports/top-pages/runs/{first['id']}/result.csv").text
    kept = list(csv.DictReader(io.StringIO(downloaded)))
    assert {row["value"]: int(row["records"]) for row in kept} == expected
    parquet = appliance.client.get(f"reports/top-pages/runs/{first['id']}/result.parquet").content
    assert parquet[:4] == parquet[-4:] == b"PAR1"

    # Repeated with the same offsets it has the same figures, whatever was written since.
    producer = Producer({"bootstrap.servers": appliance.broker.bootstrap})
    producer.produce("pages", value=b'{"page": "/late", "price": 1}', partition=0)
    assert producer.flush(60) == 0
    post(appliance.client, "reports/top-pages/run/", {"repeats": first["id"]})
    again = appliance.wait("top-pages", "ok", "failed")
    assert again["id"] != first["id"]
    assert again["parameters"]["ranges"] == ranges
    csv_again = appliance.client.get(f"reports/top-pages/runs/{again['id']}/result.csv").text
    assert csv_again == downloaded
    compared = appliance.client.get("reports/top-pages/").text
    assert f'compared with <a href="/reports/top-pages/runs/{first["id"]}/"' in compared
    exported = appliance.odradek("report", "export", "top-pages").stdout
    assert exported == downloaded


def test_a_result_topic_that_is_not_there_is_said_before_spark_is_started(
    appliance: Appliance,
) -> None:
    appliance.topic("visits", VALUES)
    make(appliance, "to-nowhere", "visits", result_topic="no-such-topic")
    failed = appliance.odradek("report", "run", "to-nowhere", ok=False)
    assert failed.returncode == 1
    run = appliance.run_state("to-nowhere")
    assert run["state"] == "failed"
    assert run["error"].startswith("the rows cannot be written to the topic no-such-topic: ")
    assert "ranges" not in run["parameters"]


def spark_processes(appliance: Appliance) -> dict[str, int]:
    """{"driver": pid, "java": pid} of the report that runs now."""
    assert appliance.worker is not None
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            try:
                line = Path(entry.path, "cmdline").read_bytes().split(b"\0")
                parent = int(Path(entry.path, "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == appliance.worker.pid and line[1:4] == [b"-P", b"-m", b"spark_tasks"]:
                found["driver"] = int(entry.name)
    for pid in members(found.get("driver", -1)):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                found["java"] = pid
    return found


def begin(appliance: Appliance, report: str) -> dict[str, int]:
    """Ask for a run, and return when its Java works."""
    post(appliance.client, f"reports/{report}/run/", {})
    found: dict[str, int] = {}

    def has_java() -> bool:
        found.clear()
        found.update(spark_processes(appliance))
        return "java" in found

    processes.wait_until(has_java, SPARK_S, "Spark's Java", every=0.1)
    return found


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


GONE_S = 5.0


def all_gone(pids: dict[str, int]) -> None:
    processes.wait_until(
        lambda: all(map(is_gone, pids.values())) and not members(pids["driver"]), GONE_S, str(pids)
    )


@pytest.mark.slow
def test_whatever_is_killed_no_java_is_left_and_the_row_says_what(appliance: Appliance) -> None:
    appliance.topic("killed", VALUES)
    make(appliance, "killed", "killed")
    pids = begin(appliance, "killed")
    os.kill(pids["driver"], signal.SIGKILL)
    all_gone(pids)
    assert "driver process was killed" in appliance.wait("killed", "failed")["error"]

    pids = begin(appliance, "killed")
    os.kill(pids["java"], signal.SIGKILL)
    assert "Java process was killed" in appliance.wait("killed", "failed")["error"]
    all_gone(pids)

    pids = begin(appliance, "killed")
    run_id = appliance.run_state("killed")["id"]
    post(appliance.client, f"reports/killed/runs/{run_id}/cancel/", {})
    assert appliance.wait("killed", "cancelled")["id"] == run_id
    all_gone(pids)

    pids = begin(appliance, "killed")
    assert appliance.worker is not None
    appliance.worker.kill()
    appliance.worker.wait()
    all_gone(pids)
    appliance.start_worker()
    assert "worker ended" in appliance.wait("killed", "lost")["error"]

    appliance.odradek("report", "run", "killed")
    assert appliance.run_state("killed")["state"] == "ok"
    left = {path.name for path in (appliance.broker.data / "reports/killed").iterdir()}
    assert [name for name in left if not re.fullmatch(r"run=\d+", name)] == []


@pytest.mark.slow
def test_an_incremental_report_goes_on_where_it_stopped(appliance: Appliance) -> None:
    appliance.topic("steps", VALUES[:10])
    make(appliance, "steps", "steps", is_incremental="on")
    appliance.odradek("report", "run", "steps")
    producer = Producer({"bootstrap.servers": appliance.broker.bootstrap})
    for number in range(3):
        producer.produce("steps", value=b'{"page": "/new"}', partition=number % 2)
    assert producer.flush(60) == 0
    second = json.loads(appliance.odradek("report", "run", "steps", "--format", "json").stdout)
    assert [(row["value"], row["records"]) for row in second["data"]] == [("/new", 3)]
    found = appliance.run_state("steps")["parameters"]["ranges"]
    assert found == [["steps", 0, 5, 7, 0, 7], ["steps", 1, 5, 6, 0, 6]]


@pytest.mark.slow
def test_a_range_that_retention_has_cut_ends_incomplete_with_its_gaps(appliance: Appliance) -> None:
    appliance.topic("cut", VALUES[:20])
    make(appliance, "cut", "cut")
    appliance.odradek("report", "run", "cut")
    first = appliance.run_state("cut")
    appliance.trim("cut", "4")
    post(appliance.client, "reports/cut/run/", {"repeats": first["id"]})
    found = appliance.wait("cut", "incomplete", "ok", "failed")
    assert found["state"] == "incomplete"
    assert found["result"]["gaps"] == [["cut", 0, 0, 4]]
    assert found["result"]["read"]["records"] == 16
    assert "cut-0 [0, 4)" in appliance.client.get("reports/cut/").text


def test_the_page_says_what_spark_lacks(appliance: Appliance, tmp_path: Path) -> None:
    code = (
        "import pathlib, os\nos.environ['PATH'] = os.environ['JAVA_HOME'] = ''\n"
        "from dashboard.spark.home import SparkHome\n"
        "print(SparkHome(pathlib.Path('/nowhere')).missing())"
    )
    assert "apt install openjdk-17-jre-headless" in appliance.web.run_python(code)


@pytest.mark.slow
def test_the_demo_has_figures_that_a_consumer_of_its_own_agrees_with(appliance: Appliance) -> None:
    # The broker is on another port than Kafka's, and is found by the data directory.
    said = appliance.odradek("demo", "--for", "8s", "--rate", "100", "--seed", "7").stderr
    assert "both reports are computed now and every 5 minutes" in said
    found = appliance.wait("demo-events", "ok", "failed")
    assert found["state"] == "ok", found["error"]
    counted: Counter[str] = Counter()
    for topic, partition, start, end, *_ in found["parameters"]["ranges"]:
        consumer = Consumer({"bootstrap.servers": appliance.broker.bootstrap, "group.id": "judge"})
        consumer.assign([TopicPartition(topic, partition, start)])
        at = start
        while at < end:
            record = consumer.poll(30)
            assert record is not None
            if record.offset() < end:
                counted[json.loads(record.value())["kind"]] += 1
            at = record.offset() + 1
        consumer.close()
    address = f"reports/demo-events/runs/{found['id']}/result.csv"
    rows = list(csv.DictReader(io.StringIO(appliance.client.get(address).text)))
    by_kind: Counter[str] = Counter()
    for row in rows:
        by_kind[row["group"]] += int(row["events"])
    assert by_kind == counted
    assert sum(counted.values()) > 0
    turnover = appliance.wait("demo-turnover", "ok", "failed")
    assert turnover["state"] == "ok", turnover["error"]
    words = json.loads(appliance.odradek("report", "list", "--format", "json").stdout)["data"]
    assert {row["schedule"] for row in words if row["report"].startswith("demo-")} == {
        "every 5 minutes"
    }
