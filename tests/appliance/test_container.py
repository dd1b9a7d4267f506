"""The container image, built and run: nobody special, a root that cannot be written to, an ordered stop."""

import json
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import container, processes, spark

#: The first of them builds the image.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
MOST_BYTES = 250_000_000
MOST_BYTES_WITH_SPARK = 1_300_000_000
REPORT_S = 400.0


@pytest.fixture(scope="module")
def image() -> Iterator[container.Image]:
    with container.Image("slim") as built:
        yield built


@pytest.fixture(scope="module")
def full() -> Iterator[container.Image]:
    """With Java and Spark: what CI has prepared is not downloaded again."""
    with container.Image("full", spark.require().directory.resolve()) as built:
        yield built


def test_it_is_small_and_has_no_tools_for_building(image: container.Image) -> None:
    assert image.size() <= MOST_BYTES
    assert not (image.root / "usr" / "bin" / "cc").exists()
    packages = image.root / "opt" / "odradek" / "lib" / "python3.11" / "site-packages"
    assert not {"pip", "mypy", "setuptools", "tests"} & {path.name for path in packages.iterdir()}


def test_it_runs_as_nobody_special(image: container.Image) -> None:
    assert image.config["User"] == "odradek"
    assert image.config["StopSignal"] == "SIGTERM"
    assert list(image.config["Volumes"]) == ["/data"]
    assert (image.root / "data").stat().st_uid == 1000
    privileged = [
        path
        for path in image.root.rglob("*")
        if stat.S_ISREG(path.lstat().st_mode)
        and path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    ]
    assert privileged == []


def test_it_lets_nobody_in_from_outside_until_that_is_meant(
    image: container.Image, tmp_path: Path
) -> None:
    with container.Running(image, tmp_path / "data", {}) as run:
        assert run.wait(60) == 2
        assert "nobody has to sign in there" in run.said
        assert "ODRADEK_OPEN=yes" in run.said


def test_it_serves_from_a_root_that_cannot_be_written_to_and_stops_in_order(
    image: container.Image, tmp_path: Path
) -> None:
    outside = {"ODRADEK_OPEN": "yes", "ODRADEK_ADVERTISED": "127.0.0.2:9092"}
    check = image.config["Healthcheck"]["Test"]
    assert check[0] == "CMD"
    with container.Running(image, tmp_path / "data", outside) as run:
        run.await_ready()
        done = run.execute("odradek", "version")
        assert "compiled" in done.stdout, done.stderr
        assert "commit tests" in done.stdout
        assert run.execute(*check[1:]).stdout == "all answer\n"
        assert run.execute("odradek", "topic", "create", "orders", "-p", "2").returncode == 0
        made = run.execute("odradek", "produce", "orders", "-K", ":", text="alice:book\nmia:lamp\n")
        assert made.returncode == 0, made.stderr
        # What is published tells the address that was named, the inner listener the one that was dialled.
        for bootstrap, told in (("127.0.0.1:9092", "127.0.0.2"), ("127.0.0.1:19092", "127.0.0.1")):
            info = run.execute("odradek", "-b", bootstrap, "--format", "json", "cluster", "info")
            assert f'"{told}' in info.stdout, info.stdout + info.stderr
            read = run.execute(
                *("odradek", "-b", bootstrap, "consume", "orders", "-o", "start", "-e"),
                *("-f", "%k %v\\n"),
            )
            assert sorted(read.stdout.splitlines()) == ["alice book", "mia lamp"], read.stderr
        assert run.stop() == 0
    assert (tmp_path / "data" / "logs" / ".kafka_cleanshutdown").exists()


def test_with_java_and_spark_it_is_as_large_as_was_promised(full: container.Image) -> None:
    assert full.size() <= MOST_BYTES_WITH_SPARK
    assert full.config["User"] == "odradek"
    assert list(full.config["Volumes"]) == ["/data"]
    assert full.config["Healthcheck"]["Test"][0] == "CMD"


def test_reports_are_computed_without_a_network(full: container.Image, tmp_path: Path) -> None:
    """Only loopback is there: Spark, its connector and Java are the image's own."""
    with container.Running(full, tmp_path / "data", {"ODRADEK_OPEN": "yes"}) as run:
        run.await_ready()
        done = run.execute("odradek", "demo", "--for", "5s", "--rate", "50", "--seed", "1")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "left out" not in done.stdout + done.stderr
        values = run.execute(
            "odradek", "consume", "shop-events", "-o", "start", "-e", "-f", "%v\\n"
        )
        events = [json.loads(line) for line in values.stdout.splitlines()]
        assert events, values.stderr
        reports = (
            ("demo-turnover", "retailer", "key", "records"),
            ("demo-events", "kind", "group", "events"),
        )
        for name, field, label, count in reports:
            # The demo had it computed at once: that run may be going on, or have seen fewer events.
            wait_for_runs(run)
            shown = run.execute(
                *("odradek", "report", "run", name, "--format", "json"), seconds=REPORT_S
            )
            assert shown.returncode == 0, shown.stdout + shown.stderr
            rows = json.loads(shown.stdout[shown.stdout.index("{") :])["data"]
            counted: Counter[str] = Counter()
            for row in rows:
                counted[row[label]] += row[count]
            assert counted == Counter(event[field] for event in events)
        assert run.stop() == 0


def wait_for_runs(run: container.Running) -> None:
    """Until no report is computed or waits for it."""

    def is_quiet() -> bool:
        listed = run.execute("odradek", "report", "list", "--format", "json")
        assert listed.returncode == 0, listed.stderr
        rows = json.loads(listed.stdout)["data"]
        assert rows
        return not any(row["last_state"] in ("queued", "running") for row in rows)

    processes.wait_until(is_quiet, REPORT_S, "the demo's own reports", every=1)
