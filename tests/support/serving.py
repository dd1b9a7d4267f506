"""A whole ``odradek serve`` beside a test or a benchmark, by the program that is tried."""

import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support import processes

END_SECONDS = 90


@contextmanager
def serving(
    command: Sequence[str | Path],
    directory: Path,
    environment: Mapping[str, str] | None = None,
    *,
    log: Path | None = None,
    ask_to_end: Callable[[], object] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs in ``directory`` from when it says that it is ready, and has to end well. Without ``environment`` it has
    this process's. ``ask_to_end``: where the command only leads to the process that a signal has to reach."""
    log = log or directory / "log"
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
        yield process
        if ask_to_end is not None:
            ask_to_end()
            assert process.wait(END_SECONDS) == 0
    finally:
        if process.poll() is None:
            last = signal.SIGTERM if ask_to_end is None else signal.SIGKILL
            status = processes.end(process, last, END_SECONDS)
            assert ask_to_end is not None or status == 0
