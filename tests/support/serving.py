"""A whole ``odradek serve`` beside a test, by the program that is tried."""

import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support import processes


@contextmanager
def serving(
    command: Sequence[str | Path], directory: Path, environment: Mapping[str, str]
) -> Iterator[None]:
    """Runs in ``directory`` from when it says that it is ready, and has to end well."""
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=directory, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output,
        )  # fmt: skip
    try:
        processes.wait_until(
            lambda: process.poll() is not None or "is ready" in log.read_text(), 180, "the start"
        )
        assert process.poll() is None, log.read_text()
        yield
    finally:
        assert processes.end(process, signal.SIGTERM, 90) == 0
