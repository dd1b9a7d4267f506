"""The load generator (tests/bench/loadgen, Go, standard library only): built when needed, run, its JSON read."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.bench.brokers import Address

SOURCE = Path(__file__).with_name("loadgen")
CACHE = Path(__file__).resolve().parents[2] / ".cache"
BINARY = CACHE / "loadgen"
RUN_LIMIT_SECONDS = 900


class GeneratorError(Exception):
    """The generator ended with a fault: what the broker answered, or what was wrong with the request."""


@cache
def binary() -> Path:
    go = shutil.which("go") or "/usr/local/go/bin/go"
    newest = max(path.stat().st_mtime for path in SOURCE.iterdir())
    if not BINARY.exists() or BINARY.stat().st_mtime < newest:
        if not os.access(go, os.X_OK):
            raise GeneratorError("Go 1.21 or newer builds the load generator, and there is none")
        CACHE.mkdir(exist_ok=True)
        command = [go, "build", "-o", str(BINARY), "."]
        subprocess.run(command, cwd=SOURCE, check=True, stdin=subprocess.DEVNULL)
        os.utime(BINARY)  # a build from Go's cache keeps its old time
    return BINARY


@dataclass(slots=True)
class Run:
    """A generator at work. `result` waits for its end."""

    process: subprocess.Popen[str]
    what: str

    def result(self) -> dict[str, Any]:
        try:
            output, errors = self.process.communicate(timeout=RUN_LIMIT_SECONDS)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        if self.process.returncode != 0:
            raise GeneratorError(f"{self.what}: {errors.strip() or self.process.returncode}")
        answer: dict[str, Any] = json.loads(output)
        return answer


def start(address: Address, mode: str, *arguments: object, pids: Iterable[int] = ()) -> Run:
    """``pids``: of the brokers whose CPU time is told, all together."""
    command = [str(binary()), mode, "-addr", f"{address[0]}:{address[1]}"]
    for pid in pids:
        command += ["-pid", str(pid)]
    command += [str(argument) for argument in arguments]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return Run(process, f"loadgen {mode} {' '.join(map(str, arguments))}")


def run(
    address: Address, mode: str, *arguments: object, pids: Iterable[int] = ()
) -> dict[str, Any]:
    return start(address, mode, *arguments, pids=pids).result()
