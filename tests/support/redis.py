"""A real Redis of one test, on a loopback port, in memory."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import judge, processes


@contextmanager
def redis_server(directory: Path) -> Iterator[str]:
    """Its address, as a URL."""
    program, port = judge.program("redis-server", "package redis-server"), judge.free_port()
    log = directory / "redis.txt"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)],
            stdout=output, stderr=output,
        )  # fmt: skip
    try:
        processes.wait_until(lambda: b"Ready to accept" in log.read_bytes(), 30, "redis")
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        processes.end(server, signal.SIGTERM, 20)
