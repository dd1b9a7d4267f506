"""``odradek serve`` with the real broker as its child."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.appliance.conftest import Odradek
from tests.support import judge, processes, wire

REPOSITORY = Path(__file__).resolve().parents[3]


class Serving:
    """An ``odradek serve`` on a free port."""

    def __init__(
        self, data: Path, *arguments: str, listen: bool = True, port: int | None = None
    ) -> None:
        self.data = data
        self.port = port or judge.free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.errors = data.with_suffix(".err")
        place = ["--listen", self.bootstrap] if listen else []
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
                text=True,
            )

    def banner(self) -> list[str]:
        """Blocks until it is printed, or the process has ended without one."""
        assert self.process.stdout is not None
        return [self.process.stdout.readline().rstrip("\n") for _ in range(4)]

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


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    started: list[Serving] = []

    def start(*arguments: str, **options: bool) -> Serving:
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
    assert banner[1:3] == [f"  Kafka  {serving.bootstrap}", f"  Data   {serving.data}"]
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
    done = odradek("serve", "--data", serving.data, "--listen", f"127.0.0.1:{judge.free_port()}")
    assert done.code == 1
    assert f"process {serving.process.pid}, Kafka on {serving.bootstrap}" in done.err


def test_a_taken_port_costs_one_line_and_leaves_nothing(odradek: Odradek, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        data = tmp_path / "new"
        done = odradek("serve", "--data", data, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert done.code == 1
    assert "is in use by another program" in done.err
    assert not data.exists()


def test_a_directory_that_cannot_be_written_costs_one_line(
    odradek: Odradek, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    listen = f"127.0.0.1:{judge.free_port()}"
    done = odradek("serve", "--data", tmp_path / "file" / "data", "--listen", listen)
    assert done.code == 1
    assert "cannot write to the data directory" in done.err


def test_a_broker_that_cannot_start_ends_serve(serve: Serve) -> None:
    serving = serve("--property", "log.retention.hours=many")
    assert serving.process.wait(60) == 1
    assert "broker ended before it was ready" in serving.log()
    assert "log.retention.hours" in serving.log()


def test_a_killed_broker_is_started_again(serve: Serve, odradek: Odradek) -> None:
    serving = serve()
    serving.banner()
    first = serving.broker_pid()
    os.kill(first, signal.SIGKILL)
    assert serving.banner()[0].endswith("is ready.")
    assert serving.broker_pid() != first
    odradek("-b", serving.bootstrap, "status").ok()
    assert serving.stop() == 0
    assert "broker ended with SIGKILL" in serving.log()


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
    assert serving.banner()[1] == f"  Kafka  {serving.bootstrap}"
    assert wire.answers(("127.0.0.1", serving.port))


def test_what_does_not_exist_yet_is_refused(odradek: Odradek) -> None:
    for names in ("web", "broker,beat"):
        done = odradek("serve", "--only", names)
        assert done.code == 2
        assert "does not exist yet" in done.err
    with contextlib.suppress(FileNotFoundError):
        assert not Path("data").is_dir() or not (Path("data") / "serve.lock").exists()
