"""A short run, with each fault once, in which nothing is lost; and a loss that is planted is found.

The harness runs in a process of its own: it enters a network namespace, and clients that hang are left behind in it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import network
from tests.support import processes, zookeeper
from tests.support.odradek import REPOSITORY

pytestmark = pytest.mark.conformance

LIMIT_SECONDS = 500


def run(directory: Path, *options: str) -> tuple[int, str]:
    """Its status, and all that it said. Whatever it started is gone afterwards."""
    zookeeper.require_jars()
    output = directory / "output.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos", "--work", str(directory), *options],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        status = process.wait(LIMIT_SECONDS)
    finally:
        processes.end(process, signal.SIGTERM, 60)
    return status, output.read_text()


@pytest.mark.timeout(LIMIT_SECONDS + 60)
def test_nothing_is_lost_by_any_fault(tmp_path: Path) -> None:
    status, told = run(tmp_path, "--each", "--no-network")
    print(told)
    assert status == 0, told


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_SECONDS + 60)
def test_nothing_is_lost_by_cuts_of_the_network(tmp_path: Path) -> None:
    missing = network.why_not()
    if missing is not None:  # never a failure: it is the machine's to permit
        pytest.skip(missing)
    status, told = run(tmp_path, "--each", "--only", "cut*")
    print(told)
    assert status == 0, told


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_SECONDS + 60)
def test_an_acknowledged_record_that_was_cut_off_everywhere_is_missed(tmp_path: Path) -> None:
    status, told = run(tmp_path, "--plant-loss", "--no-network")
    assert status == 1, told
    assert any(line.startswith("I1:") and "partition=0" in line for line in told.splitlines()), told
