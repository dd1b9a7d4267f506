"""Kafka Connect, unchanged, in distributed mode: a file becomes a topic, exactly once, and the topic
a file again, while workers and the broker are killed, tasks restarted and moved."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import processes, requests
from tests.support.applications import ConnectWorker
from tests.support.fixtures import Broker
from tests.support.odradek import OdradekBroker
from tests.support.transactions import committed_values
from tests.support.wire import Wire

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
#: Between two lines.
PAUSE_S = 0.01


class Pipeline:
    """in.txt -> topic -> out.txt"""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.broker = broker
        self.first, self.second = (
            ConnectWorker(directory / name, broker.bootstrap) for name in ("first", "second")
        )
        self.source, self.sink = directory / "in.txt", directory / "out.txt"
        self.source.touch()
        self.written: list[bytes] = []

    def create(self) -> None:
        connector = "org.apache.kafka.connect.file.FileStream"
        self.first.ask(
            "PUT",
            "/connectors/source/config",
            {
                "connector.class": f"{connector}SourceConnector",
                "file": str(self.source),
                "topic": "lines",
                "exactly.once.support": "required",
                "tasks.max": "1",
            },
        )
        self.first.ask(
            "PUT",
            "/connectors/sink/config",
            {
                "connector.class": f"{connector}SinkConnector",
                "file": str(self.sink),
                "topics": "lines",
                "tasks.max": "1",
            },
        )

    @contextlib.contextmanager
    def fed(self) -> Iterator[None]:
        """Lines come all the while, so that whatever happens interrupts a transaction."""
        is_over = threading.Event()

        def feed() -> None:
            with self.source.open("ab", buffering=0) as file:
                while not is_over.wait(PAUSE_S):
                    self.written.append(b"line %d" % len(self.written))
                    file.write(self.written[-1] + b"\n")

        feeder = threading.Thread(target=feed)
        feeder.start()
        try:
            yield
        finally:
            is_over.set()
            feeder.join()

    def get_on(self) -> None:
        """Until lines that are written now have come into the topic."""
        goal = len(self.written)
        self.wait(lambda: len(self.copied()) > goal, "lines in the topic")

    def copied(self) -> list[bytes | None]:
        with Wire(self.broker.address, timeout=60) as wire:
            return committed_values(wire, "lines")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """As an administrator would, who restarts what has failed."""

        def is_so() -> bool:
            for name in ("source", "sink"):
                self.mend(name)
            return condition()

        processes.wait_until(is_so, 150, f"{what}\n{self.first.errors}", every=0.3)

    def mend(self, connector: str) -> None:
        for worker in (self.first, self.second):
            if worker.is_running:
                worker.keep_alive()
                if any(state == "FAILED" for state, _ in worker.tasks(connector)):
                    worker.call("POST", restart_path(connector))
                return

    def places(self) -> set[str]:
        """The workers that run a task."""
        asked = self.first if self.first.is_running else self.second
        tasks = asked.tasks("source") + asked.tasks("sink")
        return {place for state, place in tasks if state == "RUNNING"}


def restart_path(connector: str) -> str:
    return f"/connectors/{connector}/restart?includeTasks=true"


@pytest.fixture
def pipeline(own_broker: Broker, tmp_path: Path) -> Pipeline:
    with Wire(own_broker.address) as wire:
        requests.create_topic(wire, "lines")
    return Pipeline(own_broker, tmp_path)


def test_a_file_becomes_a_topic_and_a_file_again(pipeline: Pipeline) -> None:
    first, second, broker = pipeline.first, pipeline.second, pipeline.broker
    try:
        first.start()
        pipeline.create()
        with pipeline.fed():
            pipeline.get_on()
            first.kill()
            first.start()
            pipeline.get_on()
            second.start()
            pipeline.wait(lambda: len(pipeline.places()) == 2, "tasks on both workers")
            pipeline.get_on()
            second.ask("POST", restart_path("source"))
            pipeline.get_on()
            first.kill()
            pipeline.get_on()
            pipeline.wait(lambda: pipeline.places() == {second.address}, "tasks on one worker")
            if isinstance(broker, OdradekBroker):
                broker.kill9()
                broker.start()
                pipeline.get_on()
            first.start()
            pipeline.wait(lambda: len(pipeline.places()) == 2, "tasks on both workers again")
            pipeline.get_on()
        pipeline.wait(lambda: len(pipeline.copied()) >= len(pipeline.written), "the topic")
        pipeline.wait(
            lambda: set(pipeline.sink.read_bytes().split(b"\n")) >= set(pipeline.written),
            "the second file",
        )
    finally:
        first.kill()
        second.kill()
    assert pipeline.copied() == pipeline.written
    with Wire(broker.address) as wire:
        for name in ("configs", "offsets", "status"):
            topic = f"connect-{name}"
            assert requests.topic_config(wire, topic, "cleanup.policy").value == "compact"
