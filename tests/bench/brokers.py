"""The two brokers under measurement, started the way their users start them.

The judge in tests/support/apache.py trims its Java for quick starts; here Kafka gets the settings of
its own start script (but for `-Xms1G`, which would only raise its memory), so that the comparison is
fair to it. A start is timed from the creation of the process to an answer, asked every few milliseconds.
"""

import compileall
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from kio.index import load_entity_schema
from kio.static.constants import EntityType

from tests.support import apache, judge, odradek, processes, wire

KAFKA_JVM = (
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
START_LIMIT_SECONDS = 600
STOP_LIMIT_SECONDS = 300
PROBE_EVERY_SECONDS = 0.005
#: Of a deleted topic's files, instead of a minute.
DELETE_DELAY_MS = 1000

Address = tuple[str, int]


class Broker(Protocol):
    name: str
    data: Path
    output: Path
    process: subprocess.Popen[bytes] | None

    @property
    def address(self) -> Address: ...
    @property
    def pid(self) -> int: ...
    def prepare(self) -> None: ...
    def launch(self) -> None: ...
    def stop(self) -> None: ...
    def kill9(self) -> None: ...
    def close(self) -> None: ...


class Kafka(apache.ApacheKafka):
    """Apache Kafka as its own start script runs it, on the judge's single-node settings."""

    name = "kafka"

    def prepare(self) -> None:
        """Kafka wants its directory formatted by a tool, once: not a part of its start."""
        if not (self.data / "meta.properties").exists():
            # One argument: an id may begin with a dash.
            cluster_id = f"--cluster-id={apache.new_cluster_id()}"
            arguments = ["format", cluster_id, "-c", self._write_settings()]
            apache.run_tool("kafka.tools.StorageTool", arguments).ok()

    def launch(self) -> None:
        assert self.process is None
        settings = self._write_settings()
        command = ["java", *KAFKA_JVM, f"-Dlog4j2.configurationFile={apache.LOG_SETTINGS}"]
        command += ["-cp", apache.class_path(self._libs, with_log=True), "kafka.Kafka"]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [*command, str(settings)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def stop(self) -> None:
        assert self.process is not None
        processes.end(self.process, signal.SIGTERM, STOP_LIMIT_SECONDS)
        self.process = None


class Odradek(odradek.OdradekBroker):
    """Our broker, as `odradek serve --only broker` starts it."""

    name = "odradek"

    def prepare(self) -> None:
        """Odradek makes its directory at its first start. Its bytecode is what `make run` sees to."""
        compileall.compile_dir(odradek.REPOSITORY / "broker", quiet=1)

    def launch(self) -> None:
        assert self.process is None
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = self.port or judge.free_port()
        command = [sys.executable, "-m", "broker", "--data", str(self.data)]
        command += ["--listen", self.bootstrap]
        for key, value in self.properties.items():
            command += ["--property", f"{key}={value}"]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                cwd=odradek.REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(),
            )


def _environment() -> dict[str, str]:
    """Packages keep their bytecode, as pip installs them, whatever the bench itself was told."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def create(name: str, directory: Path) -> Broker:
    """A broker that is not started yet. Both flush, roll and retain by their own defaults."""
    properties = {"log.segment.delete.delay.ms": str(DELETE_DELAY_MS)}
    if name == Kafka.name:
        apache.fetch_jars()
        return Kafka(directory / name, properties)
    return Odradek(directory / name, properties)


def load_probes() -> None:
    """Import what the probes speak, so that a start is not charged for it."""
    for api, version in (("metadata", 1), ("fetch", 11)):
        for kind in (EntityType.request, EntityType.response):
            load_entity_schema(api, version, kind)


def start(broker: Broker, ready: Callable[[Address], bool] = wire.answers) -> float:
    """Start, and return the seconds until `ready` first said yes."""
    load_probes()
    broker.prepare()
    started = time.perf_counter()
    broker.launch()
    process = broker.process
    assert process is not None
    while not ready(broker.address):
        assert process.poll() is None, (
            f"it ended at its start:\n{processes.tail(broker.output, 15)}"
        )
        assert time.perf_counter() - started < START_LIMIT_SECONDS, f"{broker.name} never answered"
        time.sleep(PROBE_EVERY_SECONDS)
    return time.perf_counter() - started


def serves_record(topic: str, partition: int) -> Callable[[Address], bool]:
    """A probe that is content with nothing less than a stored record of that partition."""

    def probe(address: Address) -> bool:
        request = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1 << 16}
        try:
            with wire.Wire(address, timeout=10) as connection:
                answer = connection.request(
                    "fetch",
                    11,
                    replica_id=-1,
                    max_wait=0,
                    min_bytes=1,
                    max_bytes=1 << 16,
                    session_epoch=-1,
                    topics=[{"topic": topic, "partitions": [request]}],
                )
        except (OSError, wire.WireError):
            return False
        (partition_answer,) = answer.responses[0].partitions
        return partition_answer.error_code == 0 and bool(partition_answer.records)

    return probe


def control(broker: Broker, command: str, **arguments: Any) -> dict[str, Any]:
    """What Odradek's control socket says; Apache Kafka has none."""
    return broker.control(command, **arguments) if isinstance(broker, Odradek) else {}
