"""A real RabbitMQ of one test, on a loopback port, with its data in the test's directory."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import judge, processes

#: Debian's package; the program in /usr/sbin changes to a user of its own, this one does not.
PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


@contextmanager
def rabbitmq_server(directory: Path) -> Iterator[str]:
    """Its address, as a URL."""
    if not PROGRAM.exists():
        pytest.skip("RabbitMQ is not installed; Redis and files are tried")
    port, erlang_port, names_port = (judge.free_port() for _ in range(3))
    home = directory / "rabbitmq"
    home.mkdir()
    log = home / "output.txt"
    environment = {
        **os.environ,
        "HOME": str(home),
        "RABBITMQ_NODENAME": f"test{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(erlang_port),
        "ERL_EPMD_PORT": str(names_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_MNESIA_BASE": str(home),
        "RABBITMQ_LOG_BASE": str(home),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_FEATURE_FLAGS_FILE": str(home / "feature_flags"),
    }
    with log.open("wb") as output:
        server = subprocess.Popen(
            [PROGRAM], stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=home,
            env=environment, start_new_session=True,
        )  # fmt: skip
    try:
        processes.wait_until(
            lambda: server.poll() is not None or b"completed with" in log.read_bytes(),
            60,
            "RabbitMQ",
        )
        assert server.poll() is None, processes.tail(log)
        yield f"amqp://guest:guest@127.0.0.1:{port}//"
    finally:
        # It leaves the program that looks names up behind.
        processes.end(server, signal.SIGTERM, 30)
        subprocess.run(
            ["epmd", "-port", str(names_port), "-kill"],
            env=environment,
            capture_output=True,
            check=False,
        )
