"""The commands of pages, and of the README's first session, run as they stand there beside a whole serve."""

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
    return blocks_in((REPOSITORY / "docs" / page).read_text())


def blocks_in(text: str) -> list[str]:
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


SERVE = [Path(sys.executable).parent / "odradek", "serve", "--data", "data"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("operations"))
    with serving(SERVE, made.directory, made.environment):
        made.run("odradek topic create orders -p 3; echo alice:book | odradek produce orders -K :")
        yield made


@pytest.mark.parametrize("page", ["operations.md", "security.md", "concepts.md"])
def test_every_command_of_the_page_works(page: str, place: Place) -> None:
    found = blocks(page)
    assert found
    for block in found:
        place.run(block)


def test_the_first_session_of_the_readme_goes_as_it_says(tmp_path: Path) -> None:
    readme = (REPOSITORY / "README.md").read_text()
    first, look, group, kcat = blocks_in(
        readme.partition("\n## First session\n")[2].partition("\n## ")[0]
    )
    judge.program("kcat", "the README has it read a topic")
    place = Place(tmp_path)
    with serving(SERVE, place.directory, place.environment):
        said = place.run(first).splitlines()
        assert len(said) == 4 + said.index("TOPIC   STATUS") + 2
        assert any(line.startswith("alice bought a book (partition ") for line in said)
        # The one that waits is ended as a person would end it.
        tail = "odradek tail orders "
        assert tail in look
        place.run(look.replace(tail, f"timeout --signal INT 5 {tail} || true "))
        said = place.run(group).splitlines()
        assert sorted(said[:4]) == ["book", "ink", "lamp", "pen"]
        assert said.count("cup") == 1
        bootstrap = place.environment["ODRADEK_BOOTSTRAP"]
        read = place.run(kcat.replace("127.0.0.1:9092", bootstrap)).splitlines()
        assert sorted(read) == ["book", "cup", "ink", "lamp", "pen"]
