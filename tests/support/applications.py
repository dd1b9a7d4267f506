"""Applications on Kafka as judges: jobs of Kafka Streams, workers of Kafka Connect.

Their jars come by Maven (judges/applications/pom.xml) into APPLICATIONS_LIBS, by default
`.cache/applications-libs`; Connect itself is among Apache Kafka's own (apache.py).
"""

import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.support import apache, foreign, judge, maven, processes
from tests.support.job import Job

SOURCES = Path(__file__).with_name("judges") / "applications"
#: Of the join in StreamsJob.java.
JOIN_WINDOW_MS = 10_000
_JAVA = ("java", "-Xmx256M", *apache.SMALL_JVM)


def libs_directory() -> Path:
    chosen = os.environ.get("APPLICATIONS_LIBS")
    return Path(chosen or apache.REPOSITORY / ".cache" / "applications-libs")


def fetch_jars() -> Path:
    return maven.copy_dependencies(SOURCES / "pom.xml", libs_directory())


def _class_path(*directories: Path) -> str:
    jars = [str(jar) for each in directories for jar in sorted(each.glob("*.jar"))]
    return ":".join(jars)


def _compile(source: Path, made: Path) -> None:
    command = ["javac", "-d", str(made), "-cp", _class_path(fetch_jars())]
    done = subprocess.run(
        [*command, *map(str, sorted(source.rglob("*.java")))],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        raise OSError(done.stderr[-2000:])


def _require() -> tuple[Path, Path]:
    """(jars, our own classes), or the end of this test with a reason."""
    judge.program("java", "a Java runtime, 17 or newer, runs applications on Kafka")
    judge.program("javac", "a Java development kit compiles applications on Kafka")
    if not libs_directory().is_dir():
        judge.program("mvn", f"Maven fetches their jars into {libs_directory()}")
    try:
        return fetch_jars(), foreign.built(SOURCES.name, _compile)
    except (OSError, subprocess.SubprocessError) as error:
        judge.missing(f"applications on Kafka could not be built: {error}")


def streams_job(
    directory: Path,
    kind: str,
    bootstrap: str,
    replicas: int,
    application: str,
    target: str,
    *sources: str,
) -> Job:
    """A Streams application (StreamsJob.java), its state below `directory`."""
    libs, classes = _require()
    command = [*_JAVA, "-cp", f"{classes}:{_class_path(libs)}", "StreamsJob", kind]
    command += [bootstrap, str(replicas), application]
    command += [str(directory / "state"), target, *sources]
    return Job(command, directory / "streams.txt")


class ConnectWorker(Job):
    """A worker of Kafka Connect in distributed mode, and its REST interface."""

    GROUP = "connect"

    def __init__(self, directory: Path, bootstrap: str, replicas: int) -> None:
        libs, classes = _require()
        directory.mkdir(parents=True)
        self.address = f"127.0.0.1:{judge.free_port()}"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": self.GROUP,
            "listeners": f"http://{self.address}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "config.storage.topic": "connect-configs",
            "config.storage.replication.factor": str(replicas),
            "offset.storage.topic": "connect-offsets",
            "offset.storage.replication.factor": str(replicas),
            "offset.storage.partitions": "3",
            "status.storage.topic": "connect-status",
            "status.storage.replication.factor": str(replicas),
            "status.storage.partitions": "2",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "500",
            "plugin.discovery": "service_load",
            # Whoever was killed is missed soon, and its tasks have another place at once.
            "session.timeout.ms": "4000",
            "heartbeat.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
            "consumer.session.timeout.ms": "4000",
            "consumer.heartbeat.interval.ms": "500",
        }
        path = directory / "worker.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        class_path = _class_path(apache.require_jars())
        file_connectors = next(libs.glob("connect-file-*.jar"))
        super().__init__(
            [
                *_JAVA,
                f"-Dlog4j2.configurationFile={apache.LOG_SETTINGS}",
                *("-cp", f"{classes}:{file_connectors}:{class_path}"),
                *("org.apache.kafka.connect.cli.ConnectDistributed", path),
            ],
            directory / "worker.txt",
        )

    def call(self, method: str, path: str, body: object = None) -> Any:
        """One request to the REST interface; None where it cannot answer just now."""
        request = urllib.request.Request(
            f"http://{self.address}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                # 404: not known yet; 409: a rebalance; 5xx: no leader, or one that does not answer.
                if error.code not in (404, 409) and error.code < 500:
                    raise RuntimeError(error.read()) from error
                return None
        except OSError:
            return None
        return json.loads(text or b"{}")

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The same, until it answers."""
        found: list[Any] = []

        def is_answered() -> bool:
            self.keep_alive()
            found[:] = [self.call(method, path, body)]
            return found[0] is not None

        processes.wait_until(is_answered, 120, f"{method} {path}", every=0.2)
        return found[0]

    def tasks(self, connector: str) -> list[tuple[str, str]]:
        """(state, worker) of the connector's tasks."""
        status = self.call("GET", f"/connectors/{connector}/status") or {"tasks": []}
        return [(task["state"], task["worker_id"]) for task in status["tasks"]]


if __name__ == "__main__":
    print(fetch_jars())
    print(foreign.built(SOURCES.name, _compile))
