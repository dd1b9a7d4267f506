"""The commands of ``docs/operations.md`` and ``docs/security.md``, run as they stand there beside a whole serve."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import judge
from tests.support.odradek import REPOSITORY
from tests.support.serving import serving

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
    command = [Path(sys.executable).parent / "odradek", "serve", "--data", "data"]
    with serving(command, made.directory, made.environment):
        made.run("odradek topic create orders -p 3; echo alice:book | odradek produce orders -K :")
        yield made


@pytest.mark.parametrize("page", ["operations.md", "security.md"])
def test_every_command_of_the_page_works(page: str, place: Place) -> None:
    found = blocks(page)
    assert len(found) >= 2
    for block in found:
        place.run(block)
