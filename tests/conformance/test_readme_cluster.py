"""The README's cluster section works as it is written, but for ports and directories."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import judge, processes, wire
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
    binaries = tmp_path / "bin"
    binaries.mkdir()
    script = binaries / "odradek"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m appliance "$@"\n')
    script.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
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

        def brokers() -> int:
            done = run("odradek cluster info --format json", tmp_path, environment)
            return len(json.loads(done.stdout)["data"][0]["broker_list"])

        processes.wait_until(lambda: brokers() == 3, 60, "three brokers")
        for line in typed:
            done = run(line, tmp_path, environment)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        assert "broker 3 holds nothing any more and may be stopped" in done.stderr
        read = run("odradek consume orders -e -f '%k=%v'", tmp_path, environment)
        assert read.stdout == "ada=book"


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
