"""Apache Kafka as a judge: its jars, a single-node broker, its command-line tools.

The jars come by Maven (judges/pom.xml) into KAFKA_LIBS, by default `.cache/kafka-libs`; what needs
them calls `require_jars()`, which fetches them once and otherwise skips (or fails, see judge.py).
Each main class gets a class-data archive on its first run, which cuts a tool's start to a third.
"""

import base64
import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support import judge, maven, processes, wire

REPOSITORY = Path(__file__).resolve().parents[2]
POM = Path(__file__).with_name("judges") / "pom.xml"
LOG_SETTINGS = POM.with_name("log4j2.properties")
SMALL_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xlog:disable")
# Eligible leader replicas write a min.insync.replicas of their own into the cluster's defaults.
PLAIN_FEATURES = ("--feature", "eligible.leader.replicas.version=0")
_fetching = threading.Lock()


def libs_directory() -> Path:
    return Path(os.environ.get("KAFKA_LIBS") or REPOSITORY / ".cache" / "kafka-libs")


def fetch_jars() -> Path:
    """The directory of jars, filled by Maven if it is not there. Raises when it cannot be."""
    with _fetching:
        return maven.copy_dependencies(POM, libs_directory())


def require_jars() -> Path:
    """The jars, or the end of this test with a reason."""
    judge.program("java", "a Java runtime, 17 or newer, runs Apache Kafka")
    if not libs_directory().is_dir():
        judge.program("mvn", f"Maven fetches Apache Kafka's jars into {libs_directory()}")
    try:
        return fetch_jars()
    except (OSError, subprocess.SubprocessError) as error:
        judge.missing(f"Apache Kafka's jars could not be fetched: {error}")


def class_path(libs: Path, *, with_log: bool) -> str:
    """All jars in a fixed order. Tools run without the log binding: their output is read."""
    jars = sorted(libs.glob("*.jar"))
    return ":".join(str(jar) for jar in jars if with_log or "slf4j-impl" not in jar.name)


def java_command(
    libs: Path, main_class: str, *, heap: str = "256M", with_log: bool = False
) -> tuple[list[str], Path | None]:
    """(command, archive to move into place after a good run, if this run makes one)."""
    archive = libs / "archives" / f"{main_class}.jsa"
    command = ["java", f"-Xmx{heap}", *SMALL_JVM]
    made = None
    if archive.exists():
        command.append(f"-XX:SharedArchiveFile={archive}")
    else:
        archive.parent.mkdir(exist_ok=True)
        made = archive.with_name(f"{os.getpid()}.{threading.get_ident()}.{archive.name}")
        command.append(f"-XX:ArchiveClassesAtExit={made}")
    if with_log:
        command.append(f"-Dlog4j2.configurationFile={LOG_SETTINGS}")
    command += ["-cp", class_path(libs, with_log=with_log), main_class]
    return command, made


def keep_archive(made: Path | None) -> None:
    """Put a class-data archive that this run wrote at its exit where later runs look for it."""
    if made is not None and made.exists():
        made.rename(made.with_name(made.name.split(".", 2)[2]))


@dataclass(frozen=True, slots=True)
class ToolRun:
    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    def ok(self) -> Self:
        assert self.status == 0, f"status {self.status}\n{self.stdout}\n{self.stderr}"
        return self


def run_tool(
    main_class: str,
    args: Sequence[object],
    *,
    stdin: bytes | str = b"",
    timeout: float = 120,
) -> ToolRun:
    """Run one of Kafka's tools to its end. `kafka.` and `org.` names are taken as they are, others
    are looked for in org.apache.kafka.tools."""
    libs = require_jars()
    if not main_class.startswith(("kafka.", "org.")):
        main_class = f"org.apache.kafka.tools.{main_class}"
    command, made = java_command(libs, main_class)
    done = subprocess.run(
        [*command, *map(str, args)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=timeout,
    )
    keep_archive(made)
    errors = "\n".join(
        line for line in done.stderr.decode().splitlines() if not line.startswith("SLF4J")
    )
    return ToolRun(done.returncode, done.stdout.decode(), errors)


def start_tool(main_class: str, args: Sequence[object]) -> subprocess.Popen[bytes]:
    """Start a tool and leave it running, its output on pipes."""
    command, _ = java_command(require_jars(), main_class)
    return subprocess.Popen(
        [*command, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def new_cluster_id() -> str:
    """A cluster id that the format tool does not take for an option."""
    while True:
        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not made.startswith("-"):
            return made


class ApacheKafka:
    """A broker and controller in one process, on free loopback ports, with its data in `directory`.

    It may be stopped, killed and started again; a directory that was formatted before is used as
    it is. `properties` override the settings below.
    """

    name = "apache"

    def __init__(
        self, directory: Path, properties: Mapping[str, str] | None = None, *, heap: str = "512M"
    ) -> None:
        self.directory = directory
        self.data = self.logs = directory / "data"
        self.output = directory / "output.txt"
        self.heap = heap
        self.properties = dict(properties or {})
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._libs = require_jars()

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_settings(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        port, controller_port = judge.free_port(), judge.free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "true",
            **self.properties,
        }
        path = self.directory / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        # Of the first listener, which a test may have given a port of its own.
        self.port = int(settings["listeners"].split(",")[0].rpartition(":")[2])
        return path

    def start(self) -> Self:
        """Format if new, start, and return once the broker answers."""
        assert self.process is None, "already started"
        for attempt in range(3):
            settings = self._write_settings()
            if not (self.data / "meta.properties").exists():
                run_tool(
                    "kafka.tools.StorageTool",
                    ["format", "-t", new_cluster_id(), "-c", settings, *PLAIN_FEATURES],
                ).ok()
            command, self._made = java_command(
                self._libs, "kafka.Kafka", heap=self.heap, with_log=True
            )
            with self.output.open("ab") as output:
                self.process = subprocess.Popen(
                    [*command, str(settings)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            if self._becomes_ready() or attempt == 2:
                break
            self.kill9()
        assert self.process is not None
        assert self.process.poll() is None, processes.tail(self.output)
        return self

    def _becomes_ready(self) -> bool:
        process = self.process
        assert process is not None
        processes.wait_until(
            lambda: process.poll() is not None or wire.answers(self.address),
            120,
            "Apache Kafka's first answer",
            every=0.1,
        )
        return process.poll() is None

    def stop(self) -> None:
        """A clean stop: the controlled shutdown that writes .kafka_cleanshutdown."""
        assert self.process is not None
        processes.end(self.process, signal.SIGTERM, 120)
        self.process = None
        keep_archive(self._made)

    def kill9(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        if self.process is not None:
            self.kill9()


if __name__ == "__main__":
    print(fetch_jars())
