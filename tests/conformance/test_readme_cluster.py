"""The README's cluster section works as it is written, but for ports and directories."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos import network
from tests.support import judge, processes, wire
from tests.support.namespaces import Network, in_network_of
from tests.support.odradek import REPOSITORY
from tests.support.zookeeper import ZooKeeper


def blocks() -> tuple[list[str], list[str]]:
    """Commands that start the nodes, and what is typed then."""
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    section = readme.partition("\n## A cluster\n")[2].partition("\n## ")[0]
    starts, typed = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return starts.splitlines(), typed.splitlines()


@pytest.mark.slow
def test_three_nodes_by_three_commands(tmp_path: Path) -> None:
    starts, typed = blocks()
    assert len(starts) == 3
    ports = [judge.free_port() for _ in range(3)]
    web = judge.free_port()
    environment = {
        **with_odradek(tmp_path),
        "ODRADEK_BOOTSTRAP": f"127.0.0.1:{ports[0]}",
        "ODRADEK_LISTEN": f"127.0.0.1:{ports[0]}",  # the first command leaves it at its default
        "ODRADEK_WEB": f"127.0.0.1:{web}",
    }
    with ZooKeeper(tmp_path / "zookeeper") as zookeeper, ExitStack() as stack:
        for number, command in enumerate(starts):
            for default, port in zip(("9092", "9093", "9094"), ports, strict=True):
                command = command.replace(f"127.0.0.1:{default}", f"127.0.0.1:{port}")
            command = command.replace("127.0.0.1:2181", zookeeper.address)
            output = stack.enter_context((tmp_path / f"node-{number + 1}.txt").open("wb"))
            process = subprocess.Popen(
                shlex.split(command), cwd=tmp_path, env=environment, stdout=output, stderr=output
            )
            stack.callback(processes.end, process, signal.SIGTERM, 60)
        for port in ports:
            address = ("127.0.0.1", port)
            processes.wait_until(lambda at=address: wire.answers(at), 60, f"a broker at {address}")

        type_all(typed, lambda line: run(line, tmp_path, environment))


def type_all(typed: list[str], run_line: Callable[[str], subprocess.CompletedProcess[str]]) -> None:
    def brokers() -> int:
        done = run_line("odradek cluster info --format json")
        return len(json.loads(done.stdout)["data"][0]["broker_list"]) if done.stdout else 0

    processes.wait_until(lambda: brokers() == 3, 60, "three brokers")
    for line in typed:
        done = run_line(line)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert "broker 3 holds nothing any more and may be stopped" in done.stderr
    read = run_line("odradek consume orders -e -f '%k=%v'")
    assert read.stdout == "ada=book", f"{read.returncode} {read.stderr}"


def with_odradek(directory: Path) -> dict[str, str]:
    """An environment in which `odradek` is a command."""
    binaries = directory / "bin"
    binaries.mkdir()
    script = binaries / "odradek"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m appliance "$@"\n')
    script.chmod(0o755)
    path = f"{binaries}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY)}


@pytest.mark.slow
def test_three_nodes_on_three_machines(tmp_path: Path) -> None:
    """Each in a network and a directory of its own, with the names that the README gives them."""
    missing = network.why_not()
    if missing is not None:  # never a failure: it is the machine's to permit
        pytest.skip(missing)
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    (added,) = re.findall(
        r"(--listen 0\.0\.0\.0:9092 --advertised\s+node-1\.example\.com:9092)", readme
    )
    starts, typed = blocks()
    machines = [f"node-{number}.example.com" for number in (1, 2, 3)]
    environment = with_odradek(tmp_path)
    with Network(tmp_path, ["zookeeper.example.com", *machines]) as net, ExitStack() as stack:
        zookeeper = ZooKeeper(tmp_path / "zookeeper")
        zookeeper.host = net.addresses["zookeeper.example.com"]
        zookeeper.port = 2181
        pid = net.place("zookeeper.example.com")
        in_network_of(pid, zookeeper.start)
        stack.callback(zookeeper.close)
        pids = [net.place(name) for name in machines]
        for name, pid, command in zip(machines, pids, starts, strict=True):
            command = re.sub(r" --listen \S+", "", command) + " " + " ".join(added.split())
            command = command.replace("node-1.example.com", name)
            command = command.replace("127.0.0.1:2181", "zookeeper.example.com:2181")
            directory = tmp_path / name
            directory.mkdir()
            output = stack.enter_context((tmp_path / f"{name}.txt").open("wb"))
            process = in_network_of(
                pid,
                lambda command=command, directory=directory, output=output: subprocess.Popen(
                    [*with_hosts(net), f"exec {command}"],
                    cwd=directory,
                    env=environment,
                    stdout=output,
                    stderr=output,
                ),
            )
            stack.callback(processes.end, process, signal.SIGTERM, 60)
        there = {**environment, "ODRADEK_BOOTSTRAP": f"{machines[0]}:9092"}
        type_all(
            typed,
            lambda line: in_network_of(
                pids[0],
                lambda: run(shlex.join([*with_hosts(net), line]), tmp_path / machines[0], there),
            ),
        )


def with_hosts(net: Network) -> list[str]:
    """A shell that knows the machines by name."""
    setup = 'mount --bind "$1" /etc/hosts && exec /bin/sh -c "$2"'
    return ["unshare", "--mount", "/bin/sh", "-c", setup, "sh", str(net.hosts)]


def run(
    line: str, directory: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
