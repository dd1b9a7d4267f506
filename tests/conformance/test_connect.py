"""Kafka Connect, unchanged, in distributed mode: a file becomes a topic, exactly once, and the topic
a file again, while workers and the broker are killed, tasks restarted and moved. Of three brokers each is
killed that has an office, and the others carry on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import groups, processes, replicated, requests, routing
from tests.support.applications import ConnectWorker
from tests.support.cluster import Cluster
from tests.support.odradek import OdradekBroker
from tests.support.routing import Site
from tests.support.transactions import TRANSACTION_KEY, committed_values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
#: Between two lines.
PAUSE_S = 0.01
OWN_TOPICS = tuple(f"connect-{name}" for name in ("configs", "offsets", "status"))
#: Of the one task of the connector `source`, as Connect calls it.
TRANSACTIONAL_ID = f"{ConnectWorker.GROUP}-source-0"
#: Who has them is killed while all is running.
OFFICES: dict[str, Callable[[Cluster], int]] = {
    "leader of the target": lambda cluster: routing.leader(cluster, "lines", 0),
    "transaction coordinator": lambda cluster: routing.coordinator(
        cluster, TRANSACTIONAL_ID, TRANSACTION_KEY
    ),
    "coordinator of the workers": lambda cluster: routing.coordinator(
        cluster, ConnectWorker.GROUP, routing.GROUP_KEY
    ),
    "coordinator of the sink": lambda cluster: routing.coordinator(
        cluster, "connect-sink", routing.GROUP_KEY
    ),
    "leader of the configs": lambda cluster: routing.leader(cluster, "connect-configs", 0),
    "controller": routing.controller,
}


class Pipeline:
    """in.txt -> topic -> out.txt"""

    def __init__(self, site: Site, directory: Path) -> None:
        self.site = site
        self.first, self.second = (
            ConnectWorker(directory / name, site.bootstrap, routing.replicas(site))
            for name in ("first", "second")
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
        with routing.connect(self.site, timeout=60) as wire:
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

    def interrupt(self) -> None:
        if isinstance(self.site, OdradekBroker):
            self.site.kill9()
            self.site.start()
            self.get_on()
        elif isinstance(self.site, Cluster):
            for office, find in OFFICES.items():
                number = routing.kill(self.site, find)
                print(f"broker {number}, {office}", flush=True)
                self.get_on()
                self.site.brokers[number].start()
                self.get_on()


def restart_path(connector: str) -> str:
    return f"/connectors/{connector}/restart?includeTasks=true"


@pytest.fixture
def pipeline(own_site: Site, tmp_path: Path) -> Pipeline:
    with routing.connect(own_site) as wire:
        requests.create_topic(wire, "lines")
    return Pipeline(own_site, tmp_path)


def test_a_file_becomes_a_topic_and_a_file_again(pipeline: Pipeline) -> None:
    first, second, site = pipeline.first, pipeline.second, pipeline.site
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
            pipeline.interrupt()
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
    with routing.connect(site) as wire:
        for topic in OWN_TOPICS:
            assert requests.topic_config(wire, topic, "cleanup.policy").value == "compact"
        # Who has these offices was killed.
        listed = wire.request("list_transactions", 1).transaction_states
        assert TRANSACTIONAL_ID in {each.transactional_id for each in listed}
        assert {ConnectWorker.GROUP, "connect-sink"} <= groups.list_groups(wire).keys()
    if isinstance(site, Cluster):
        for topic in ("lines", *OWN_TOPICS, "__consumer_offsets", "__transaction_state"):
            replicated.wait_for_isr(site, topic, set(site.brokers))
