"""The broker as a process: signals, its parent's pipe, few descriptors, a second one beside it."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import judge, processes, requests, wire
from tests.support.odradek import REPOSITORY
from tests.support.wire import ConnectionClosed, Wire

Start = Callable[..., "Process"]


class Process:
    def __init__(self, data: Path, **options: Any) -> None:
        self.data = data
        self.address = ("127.0.0.1", judge.free_port())
        self.errors = data.parent / f"{data.name}.err"
        command = [sys.executable, "-m", "broker", "--data", str(data)]
        command += ["--listen", f"127.0.0.1:{self.address[1]}"]
        with self.errors.open("wb") as errors:
            self.popen = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=errors, **options
            )

    def ready(self) -> Process:
        """The line that it prints once clients are served."""
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline().decode()
        assert line == f"ready 127.0.0.1:{self.address[1]}\n", self.errors.read_text()
        assert wire.answers(self.address)
        return self

    def end(self) -> int:
        return self.popen.wait(60)

    @property
    def is_clean(self) -> bool:
        return (self.data / "logs" / ".kafka_cleanshutdown").exists()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def run(name: str = "data", **options: Any) -> Process:
        started.append(Process(tmp_path / name, **options))
        return started[-1]

    yield run
    for each in started:
        if each.popen.poll() is None:
            each.popen.kill()
        each.popen.wait()
        assert each.popen.stdout is not None
        each.popen.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_order(start: Start, number: signal.Signals) -> None:
    process = start().ready()
    with Wire(process.address) as client:
        requests.create_topic(client, "orders")
        requests.produce_values(client, "orders", [b"v"])
        process.popen.send_signal(number)
        assert process.end() == 0
        with pytest.raises((ConnectionClosed, OSError)):
            client.request("metadata", 9, topics=[])
    assert process.is_clean
    assert not (process.data / "control.sock").exists()


def test_it_stops_when_its_parents_pipe_is_closed_and_not_before(start: Start) -> None:
    reading, writing = os.pipe()
    environment = {**os.environ, "ODRADEK_PARENT_FD": str(reading)}
    process = start(env=environment, pass_fds=(reading,)).ready()
    os.close(reading)
    os.write(writing, b"I am still here\n")
    with Wire(process.address) as client:
        requests.create_topic(client, "orders")
    assert process.popen.poll() is None
    os.close(writing)
    assert process.end() == 0
    assert process.is_clean


def test_more_clients_than_descriptors_do_not_harm_the_logs(start: Start) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400))

    process = start(preexec_fn=few).ready()
    clients: list[socket.socket] = []
    try:
        with Wire(process.address) as client:
            requests.create_topic(client, "before")
            for _ in range(500):
                clients.append(socket.create_connection(process.address))
            # Every log needs descriptors, old and new ones.
            for number in range(30):
                requests.create_topic(client, f"t{number}", partitions=10)
                for index in range(10):
                    requests.produce_values(client, f"t{number}", [b"v"], partition=index)
            assert requests.produce_values(client, "before", [b"v"]) == 0
            (directory,) = client.request("describe_log_dirs", 4, topics=None).results
            assert directory.error_code == 0
    finally:
        for each in clients:
            each.close()
    processes.wait_until(lambda: wire.answers(process.address), 30, "room for new clients")


def test_two_brokers_never_share_a_data_directory(start: Start) -> None:
    first = start().ready()
    second = start()
    assert second.end() == 1
    message = second.errors.read_text()
    assert f"process {first.popen.pid}" in message
    assert "Traceback" not in message
    assert (first.data / "control.sock").exists()
    assert wire.answers(first.address)


def test_a_port_that_is_taken_is_said_in_one_line(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "broker", "--data", str(tmp_path / "data")]
        done = subprocess.run(
            [*command, "--listen", f"127.0.0.1:{port}"],
            cwd=REPOSITORY, capture_output=True, timeout=60, text=True,
        )  # fmt: skip
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr
    # What a failed start left behind is no unclean stop of a broker that served.
    start().ready()
