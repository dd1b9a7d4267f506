"""The commands of ``docs/operations.md`` and ``docs/security.md``, run as they stand there beside a whole serve."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import judge, processes
from tests.support.odradek import REPOSITORY

pytestmark = pytest.mark.slow
BACKUPS = "/mnt/backups"


def blocks(page: str) -> list[str]:
    text = (REPOSITORY / "docs" / page).read_text()
    return re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


class Place:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        kafka, web = (f"127.0.0.1:{judge.free_port()}" for _ in range(2))
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ODRADEK_", "DJANGO_", "DATABASE_"))
        } | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "ODRADEK_LISTEN": kafka,
            "ODRADEK_WEB": web,
            "ODRADEK_BOOTSTRAP": kafka,
            "ODRADEK_BROKER_METRICS": "",
        }

    def run(self, commands: str) -> str:
        done = subprocess.run(
            ["sh", "-ec", commands.replace(BACKUPS, str(self.directory / "backups"))],
            cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("operations"))
    log = made.directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["odradek", "serve", "--data", "data"],
            cwd=made.directory, env=made.environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output,
        )  # fmt: skip
    try:
        processes.wait_until(
            lambda: process.poll() is not None or "is ready" in log.read_text(), 120, "the start"
        )
        assert process.poll() is None, log.read_text()
        made.run("odradek topic create orders -p 3; echo alice:book | odradek produce orders -K :")
        yield made
    finally:
        assert processes.end(process, signal.SIGTERM, 90) == 0


@pytest.mark.parametrize("page", ["operations.md", "security.md"])
def test_every_command_of_the_page_works(page: str, place: Place) -> None:
    found = blocks(page)
    assert len(found) >= 2
    for block in found:
        place.run(block)
