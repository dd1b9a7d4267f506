"""``odradek serve`` with the real broker as its child; test_serve_web.py has the whole."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.config import ApplianceConfig
from dashboard.alerting.sources import read_restarts
from dashboard.probe import split_address
from tests.appliance.conftest import Odradek
from tests.support import judge, processes, wire

REPOSITORY = Path(__file__).resolve().parents[3]


class Serving:
    """An ``odradek serve`` on a free port."""

    def __init__(
        self,
        data: Path,
        *arguments: str,
        listen: bool = True,
        port: int | None = None,
        metrics: str | None = "",
    ) -> None:
        self.data = data
        self.port = port or judge.free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.errors = data.with_suffix(".err")
        place = ["--listen", self.bootstrap] if listen else []
        if not any(argument.startswith("--only") for argument in arguments):
            place += ["--only", "broker"]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "appliance", "serve", "--data", str(data), *place),
                    *(argument.format(port=self.port) for argument in arguments),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=REPOSITORY,
                # Not the one port of all: others may be starting beside it.
                env=_environment(metrics),
                text=True,
            )

    def banner(self) -> list[str]:
        """Blocks until all is told to be ready, or the process has ended before."""
        assert self.process.stdout is not None
        read = self.process.stdout.readline
        line = read()
        while line and not line.endswith("is ready.\n"):
            line = read()  # the dashboard may have been there first
        return [line.rstrip("\n"), *(read().rstrip("\n") for _ in range(3))]

    def broker_pid(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        (pid,) = map(int, children.split())
        return pid

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        return processes.end(self.process, number, 60)

    def close(self) -> None:
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def log(self) -> str:
        return self.errors.read_text()


def _environment(metrics: str | None) -> dict[str, str]:
    """None for ``metrics``: nobody chose where the broker tells its figures."""
    environment = {k: v for k, v in os.environ.items() if k != "ODRADEK_BROKER_METRICS"}
    return environment if metrics is None else {**environment, "ODRADEK_BROKER_METRICS": metrics}


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    started: list[Serving] = []

    def start(*arguments: str, **options: Any) -> Serving:
        one = Serving(tmp_path / "data", *arguments, **options)
        started.append(one)
        return one

    yield start
    for one in started:
        one.close()


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


Serve = Callable[..., Serving]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_banner_tells_the_address_and_a_signal_stops_all(
    number: signal.Signals, serve: Serve, odradek: Odradek
) -> None:
    serving = serve("--only", "broker")
    banner = serving.banner()
    assert banner[1:3] == [
        f"  Kafka      {serving.bootstrap}",
        f"  Data       {serving.data}",
    ]
    odradek("-b", serving.bootstrap, "status").ok()
    broker = serving.broker_pid()
    assert serving.stop(number) == 0
    assert is_gone(broker)
    assert "broker | " in serving.log()
    assert list(serving.data.glob("**/.kafka_cleanshutdown"))


def test_records_survive_a_restart(serve: Serve, odradek: Odradek) -> None:
    first = serve()
    first.banner()
    odradek("-b", first.bootstrap, "topic", "create", "orders").ok()
    odradek("-b", first.bootstrap, "produce", "orders", stdin=b"one\ntwo\n").ok()
    first.stop()
    second = serve()
    second.banner()
    read = odradek("-b", second.bootstrap, "consume", "orders", "-e", "-q", "-f", r"%v\n").ok()
    assert read.lines == ["one", "two"]


def test_a_second_serve_says_who_holds_the_directory(serve: Serve, odradek: Odradek) -> None:
    serving = serve()
    serving.banner()
    listen = f"127.0.0.1:{judge.free_port()}"
    done = odradek("serve", "--only", "broker", "--data", serving.data, "--listen", listen)
    assert done.code == 1
    assert f"process {serving.process.pid}, Kafka on {serving.bootstrap}" in done.err


def test_a_taken_port_costs_one_line_and_leaves_nothing(odradek: Odradek, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        data = tmp_path / "new"
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        done = odradek("serve", "--only", "broker", "--data", data, "--listen", listen)
    assert done.code == 1
    assert "is in use by another program" in done.err
    assert not data.exists()


@pytest.fixture
def taken_metrics_port() -> Iterator[str]:
    """The default, and somebody who listens there: we, or whoever was quicker and stays."""
    host, port = split_address(ApplianceConfig.model_fields["broker_metrics"].default)
    with socket.socket() as other:
        try:
            other.bind((host, port))
            other.listen()
        except OSError as error:
            pytest.skip(f"somebody has {host}:{port} who may let it go: {error}")
        yield f"{host}:{port}"


def test_a_default_port_for_figures_that_is_taken_is_done_without(
    serve: Serve, odradek: Odradek, taken_metrics_port: str
) -> None:
    serving = serve(metrics=None)
    serving.banner()
    odradek("-b", serving.bootstrap, "status").ok()
    (line,) = [line for line in serving.log().splitlines() if taken_metrics_port in line]
    assert "figures for Prometheus are off" in line
    first = serving.broker_pid()
    os.kill(first, signal.SIGKILL)
    assert serving.banner()[0].endswith("is ready.")  # each start looks anew
    assert serving.stop() == 0


def test_a_chosen_port_for_figures_that_is_taken_costs_one_line(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        serving = serve(metrics=taken)
        assert serving.process.wait(60) == 1
    assert "is in use by another program" in serving.log()
    assert not serving.data.exists()


def test_a_directory_that_cannot_be_written_costs_one_line(
    odradek: Odradek, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    listen = f"127.0.0.1:{judge.free_port()}"
    data = tmp_path / "file" / "data"
    done = odradek("serve", "--only", "broker", "--data", data, "--listen", listen)
    assert done.code == 1
    assert "cannot write to the data directory" in done.err


def test_a_broker_that_cannot_start_ends_serve(serve: Serve) -> None:
    serving = serve("--property", "log.retention.hours=many")
    assert serving.process.wait(60) == 1
    assert "broker ended before it was ready" in serving.log()
    assert "log.retention.hours" in serving.log()


def test_a_killed_broker_is_started_again(serve: Serve, odradek: Odradek, tmp_path: Path) -> None:
    serving = serve()
    serving.banner()
    first = serving.broker_pid()
    os.kill(first, signal.SIGKILL)
    assert serving.banner()[0].endswith("is ready.")
    assert serving.broker_pid() != first
    odradek("-b", serving.bootstrap, "status").ok()
    assert serving.stop() == 0
    assert "broker ended with SIGKILL" in serving.log()
    restarts = read_restarts(tmp_path / "data" / "children.json")
    assert restarts is not None
    assert len(restarts["broker"]) == 1


def test_the_broker_stops_cleanly_when_serve_is_killed_and_the_next_serve_waits_for_it(
    serve: Serve, odradek: Odradek
) -> None:
    first = serve()
    first.banner()
    broker = first.broker_pid()
    first.stop(signal.SIGKILL)
    second = Serving(first.data, port=first.port)
    try:
        assert second.banner()[0].endswith("is ready.")
        assert is_gone(broker)
        odradek("-b", second.bootstrap, "status").ok()
    finally:
        second.close()


def test_listeners_may_stand_in_a_file(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=4\n")
    serving = serve(
        "--config", str(path), "--property", "listeners=PLAINTEXT://127.0.0.1:{port}", listen=False
    )
    assert serving.banner()[1] == f"  Kafka      {serving.bootstrap}"
    assert wire.answers(("127.0.0.1", serving.port))


@pytest.mark.parametrize(
    ("names", "reason"), [("broker,scheduler", "none of"), ("beat", "a part of the worker")]
)
def test_programs_that_there_are_not_are_refused(names: str, reason: str, odradek: Odradek) -> None:
    done = odradek("serve", "--only", names)
    assert done.code == 2
    assert reason in done.err


@pytest.mark.parametrize("name", ["web", "worker"])
def test_half_a_node_needs_a_database_and_a_queue_for_several(
    name: str, odradek: Odradek, tmp_path: Path
) -> None:
    done = odradek("serve", "--only", name, "--data", tmp_path / "data")
    assert done.code == 2
    assert "more than one node with web or worker needs DATABASE_URL and a Celery URL" in done.err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("place", ["--listen", "--property"])
def test_listeners_for_everybody_are_refused_where_that_was_not_meant(
    place: str, odradek: Odradek, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODRADEK_OPEN", "no")
    value = "0.0.0.0:1" if place == "--listen" else "listeners=A://127.0.0.1:1,B://:2"
    done = odradek("serve", "--only", "broker", "--data", tmp_path / "data", place, value)
    assert done.code == 2
    assert "nobody has to sign in there" in done.err
    assert not (tmp_path / "data").exists()
