"""The command line as tests drive it: in this process, with everything that it says caught."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.cli import main
from tests.support.fixtures import *  # noqa: F403


@dataclass(frozen=True)
class Done:
    """What one command line came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def data(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.document["data"]
        return found

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def ok(self) -> "Done":
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self


Odradek = Callable[..., Done]
REPOSITORY = Path(__file__).resolve().parents[2]


def run_odradek(data: Path, *arguments: str, stdin: str = "") -> Done:
    """A process of its own, for commands that bring Django in: this one has Django's test settings."""
    done = subprocess.run(
        [sys.executable, "-m", "appliance", *arguments, "--data", str(data)],
        cwd=REPOSITORY,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"},
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("BOOTSTRAP", "DATA", "LISTEN", "ADVERTISED"):
        monkeypatch.delenv(f"ODRADEK_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def odradek(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Odradek:
    """Run one command line; ``stdin`` is what a pipe would bring."""

    def run(*arguments: object, stdin: bytes = b"") -> Done:
        source = tmp_path / "stdin"
        source.write_bytes(stdin)
        capfd.readouterr()
        with source.open("rb") as file, monkeypatch.context() as patch:
            patch.setattr(
                sys,
                "stdin",
                io.TextIOWrapper(io.BufferedReader(io.FileIO(file.fileno(), closefd=False))),
            )
            code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Done(code, captured.out, captured.err)

    return run
