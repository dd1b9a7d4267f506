"""Apache ZooKeeper as a judge: its jars and a server that may be stopped, killed and started again.

The jars come by Maven (judges/zookeeper.xml) into ZOOKEEPER_LIBS, by default
`.cache/zookeeper-libs`; what needs them calls `require_jars()`.
"""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.support import apache, judge, maven, processes

POM = Path(__file__).with_name("judges") / "zookeeper.xml"
MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS = 100


def libs_directory() -> Path:
    return Path(os.environ.get("ZOOKEEPER_LIBS") or apache.REPOSITORY / ".cache" / "zookeeper-libs")


def fetch_jars() -> Path:
    """The directory of jars, filled by Maven if it is not there. Raises when it cannot be."""
    return maven.copy_dependencies(POM, libs_directory())


def require_jars() -> Path:
    """The jars, or the end of this test with a reason."""
    judge.program("java", "a Java runtime, 17 or newer, runs ZooKeeper")
    if not libs_directory().is_dir():
        judge.program("mvn", f"Maven fetches ZooKeeper's jars into {libs_directory()}")
    try:
        return fetch_jars()
    except (OSError, subprocess.SubprocessError) as error:
        judge.missing(f"ZooKeeper's jars could not be fetched: {error}")


class ZooKeeper:
    """One standalone server on a loopback port, which stays the same over restarts.

    Session times are what the client asks for, from two ticks up. `settings` override those below.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.output = directory / "zookeeper.txt"
        self.settings = dict(settings or {})
        self.host = "127.0.0.1"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._libs = require_jars()
        self._made: Path | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Returns once it answers."""
        assert self.process is None, "already started"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = self.port or judge.free_port()
        settings = {
            "dataDir": str(self.directory / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": self.host,
            "tickTime": str(TICK_MS),
            "maxSessionTimeout": "60000",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
            # Only a loss of power would tell the difference.
            "forceSync": "no",
            **self.settings,
        }
        path = self.directory / "zoo.cfg"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command, self._made = apache.java_command(self._libs, MAIN_CLASS, heap="128M")
        with self.output.open("ab") as output:
            self.process = process = subprocess.Popen(
                [*command, str(path)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        processes.wait_until(
            lambda: process.poll() is not None or self._answers(), 60, "ZooKeeper's first answer"
        )
        assert process.poll() is None, f"ZooKeeper ended:\n{processes.tail(self.output)}"
        return self

    def _answers(self) -> bool:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((self.host, self.port), 5) as connection,
        ):
            connection.sendall(b"srvr")
            return b"Mode: standalone" in connection.makefile("rb").read()
        return False

    def stop(self) -> None:
        assert self.process is not None
        processes.end(self.process, signal.SIGTERM, 60)
        self.process = None
        apache.keep_archive(self._made)

    def kill9(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def close(self) -> None:
        if self.process is not None:
            self.stop()


if __name__ == "__main__":
    print(fetch_jars())
