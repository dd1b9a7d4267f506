"""The container image, built and run: nobody special, a root that cannot be written to, an ordered stop."""

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import container

#: The first of them builds the image.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
MOST_BYTES = 250_000_000


@pytest.fixture(scope="module")
def image() -> Iterator[container.Image]:
    with container.Image("slim") as built:
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
        os.kill(run.pid, signal.SIGTERM)
        assert run.wait(90) == 0
    assert (tmp_path / "data" / "logs" / ".kafka_cleanshutdown").exists()
