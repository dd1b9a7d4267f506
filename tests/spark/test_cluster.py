"""Reports on a standalone Spark cluster: one master, two workers, from the package that we prepare."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from spark_tasks.job import Format, Job, PartitionRange
from tests.support import judge, processes
from tests.support.odradek import OdradekBroker
from tests.support.spark import require

pytestmark = pytest.mark.slow


def start(directory: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    home = require()
    environment = {**home.environment(), "SPARK_LOG_DIR": str(directory)}
    with (directory / f"{name}.txt").open("wb") as output:
        return subprocess.Popen(
            [str(home.lib / "pyspark/bin/spark-class"), *arguments],
            cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    port, pages = judge.free_port(), judge.free_port()
    url = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    started = [
        start(tmp_path, "master", f"{package}.master.Master", "--host", "127.0.0.1",
              "--port", str(port), "--webui-port", str(pages))
    ]  # fmt: skip
    try:
        for number in (1, 2):
            work = tmp_path / f"work{number}"
            work.mkdir()
            started.append(
                start(tmp_path, f"worker{number}", f"{package}.worker.Worker", "--cores", "1",
                      "--memory", "1g", "--host", "127.0.0.1", "--webui-port", "0",
                      "--work-dir", str(work), url)
            )  # fmt: skip
        processes.wait_until(
            lambda: (tmp_path / "master.txt").read_text().count("Registering worker") == 2,
            120,
            "two workers at the master",
        )
        yield url
    finally:
        for process in reversed(started):
            processes.end(process, signal.SIGTERM, 60)


def test_a_report_is_computed_by_both_workers(
    shared_odradek: OdradekBroker, master: str, tmp_path: Path
) -> None:
    admin = AdminClient({"bootstrap.servers": shared_odradek.bootstrap})
    for future in admin.create_topics([NewTopic("clustered", 4, 1)]).values():
        future.result()
    producer = Producer({"bootstrap.servers": shared_odradek.bootstrap})
    for number in range(400):
        value = json.dumps({"n": number % 7, "amount": number})
        producer.produce("clustered", value, key=str(number), partition=number % 4)
    assert producer.flush(60) == 0
    home = require()
    directory = tmp_path / "result"
    directory.mkdir()
    job = Job(
        "sums-by-key",
        str(directory),
        {"key": "n", "amount": "amount"},
        shared_odradek.bootstrap,
        ranges=tuple(PartitionRange("clustered", number, 0, 100, 0, 100) for number in range(4)),
        format=Format("json"),
        master=master,
        settings={
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "600m",
            "spark.cores.max": "2",
        },
        jars=tuple(home.jar_paths()),
    )
    with (
        (tmp_path / "driver.txt").open("wb") as log_file,
        subprocess.Popen(
            [sys.executable, "-P", "-m", "spark_tasks", "run"],
            cwd=directory, env=home.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=log_file, start_new_session=True,
        ) as driver,
    ):  # fmt: skip
        assert driver.stdin is not None
        assert driver.stdout is not None
        driver.stdin.write(job.to_line())
        driver.stdin.flush()
        said = [json.loads(line) for line in driver.stdout]
    assert driver.returncode == 0, said[-1]
    assert said[-1]["result"]["read"]["records"] == 400
    rows = json.loads((directory / "rows.json").read_text())["rows"]
    sums = {str(key): sum(n for n in range(400) if n % 7 == key) for key in range(7)}
    assert {row[0]: int(row[2]) for row in rows} == sums
    log = (tmp_path / "master.txt").read_text()
    assert len(set(re.findall(r"Launching executor \S+ on worker (\S+)", log))) == 2
