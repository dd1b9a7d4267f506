"""Kafka Streams, unchanged, under `exactly_once_v2`: killed again and again, its results exact.

On three brokers these are killed in turn, and what is next is counted by the other two. Its own smoke test is left out: the artifact that holds it is not published for 4.4.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.support import applications, processes, replicated, requests, routing
from tests.support.cluster import Cluster
from tests.support.job import Job
from tests.support.odradek import OdradekBroker
from tests.support.record_batches import Record
from tests.support.routing import Site
from tests.support.transactions import TRANSACTION_KEY, committed_records

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PARTITIONS = 2
WORDS = [f"w{number}" for number in range(16)]


def create(site: Site, *topics: str) -> None:
    with routing.connect(site) as wire:
        for topic in topics:
            requests.create_topic(wire, topic, partitions=PARTITIONS)


def write(site: Site, topic: str, records: Sequence[Record], *, partition: int) -> None:
    """Once, also where a broker has just died."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": site.bootstrap, "enable.idempotence": True})
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition,
            timestamp=record.timestamp,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failures == []


def results(site: Site, topic: str) -> list[list[Record]]:
    """What a read_committed consumer gets, by partition."""
    with routing.connect(site, timeout=60) as wire:
        return [committed_records(wire, topic, partition=each) for each in range(PARTITIONS)]


def count(site: Site, topic: str) -> int:
    return sum(map(len, results(site, topic)))


class Fate:
    """Who is killed next: the application (which may lose its state, too) or a broker of ours;
    Apache Kafka would come back under another address."""

    def __init__(self, site: Site, job: Job, state: Path, application: str, target: str) -> None:
        self._dice = random.Random(7)
        self._site, self._job, self._state = site, job, state
        self._application = application
        self._offices: list[Callable[[Cluster], int]] = [
            lambda cluster: routing.leader(cluster, target, 0),
            self._transaction_coordinator,
            lambda cluster: routing.coordinator(cluster, application, routing.GROUP_KEY),
            routing.controller,
        ]

    def interrupt(self, step: int) -> None:
        if isinstance(self._site, Cluster):
            self._bring_back(self._site)
            if step % 2 == 0:
                routing.kill(self._site, self._offices[step // 2 % len(self._offices)])
                return
        elif isinstance(self._site, OdradekBroker) and self._dice.random() < 0.4:
            self._site.kill9()
            self._site.start()
            return
        self._job.kill()
        if self._dice.random() < 0.5:
            shutil.rmtree(self._state, ignore_errors=True)
        self._job.start()

    def end(self) -> None:
        if isinstance(self._site, Cluster):
            self._bring_back(self._site)

    def _bring_back(self, cluster: Cluster) -> None:
        for broker in cluster.brokers.values():
            if broker.process is None:
                broker.start()

    def _transaction_coordinator(self, cluster: Cluster) -> int:
        """Of a thread of the application's that lives."""
        with routing.connect(cluster) as wire:
            answer = wire.request("list_transactions", 1)
        told = max(
            (
                each
                for each in answer.transaction_states
                if self._application in each.transactional_id
            ),
            key=lambda each: each.producer_id,
        )
        return routing.coordinator(cluster, told.transactional_id, TRANSACTION_KEY)


def start_of(
    site: Site, directory: Path, kind: str, application: str, target: str, *sources: str
) -> tuple[Job, Fate]:
    job = applications.streams_job(
        directory, kind, site.bootstrap, routing.replicas(site), application, target, *sources
    )
    return job, Fate(site, job, directory / "state", application, target)


def run(
    site: Site,
    job: Job,
    fate: Fate,
    target: str,
    *,
    steps: Sequence[Callable[[], None]],
    expected: int,
) -> None:
    """Gives input step by step, and kills something once each has come into its results."""
    with job:
        for number, step in enumerate(steps):
            before = count(site, target)
            step()

            def is_further(before: int = before) -> bool:
                job.keep_alive()
                return count(site, target) > before

            processes.wait_until(is_further, 120, "results", every=0.2)
            fate.interrupt(number)

        def is_over() -> bool:
            job.keep_alive()
            return count(site, target) >= expected

        fate.end()
        processes.wait_until(is_over, 180, f"{expected} results: {job.errors}", every=0.5)


def check_replicas(site: Site, application: str) -> None:
    """Each topic, Streams' own and the broker's too, is on every broker, and all are in sync again."""
    with routing.connect(site) as wire:
        names = [each.name for each in wire.request("metadata", 12, topics=None).topics]
    assert any(name.startswith(f"{application}-") for name in names)
    assert {"__consumer_offsets", "__transaction_state"} <= set(names)
    if isinstance(site, Cluster):
        for name in names:
            replicated.wait_for_isr(site, name, set(site.brokers))


def test_words_are_counted_exactly(own_site: Site, tmp_path: Path) -> None:
    dice = random.Random(1)
    lines = [" ".join(dice.choices(WORDS, range(1, 17), k=3)) for _ in range(1600)]
    create(own_site, "lines", "counts")
    job, fate = start_of(own_site, tmp_path, "count", "counter", "counts", "lines")

    def give(number: int) -> None:
        now = requests.now_ms()
        for partition in range(PARTITIONS):
            part = lines[number * 200 : number * 200 + 200][partition::PARTITIONS]
            records = [Record(None, line.encode(), now) for line in part]
            write(own_site, "lines", records, partition=partition)

    steps = [lambda number=number: give(number) for number in range(8)]
    words = [word for line in lines for word in line.split()]
    run(own_site, job, fate, "counts", steps=steps, expected=len(words))
    # Each count was told once and in its turn.
    told: dict[str, list[int]] = {word: [] for word in WORDS}
    for part in results(own_site, "counts"):
        for record in part:
            told[record.key.decode()].append(int(record.value))
    expected = Counter(words)
    assert told == {word: list(range(1, expected[word] + 1)) for word in WORDS}
    check_replicas(own_site, "counter")
    # The changelog, from which a store is made anew, says the same in the end.
    stored = {
        record.key.decode(): int.from_bytes(record.value)
        for part in results(own_site, "counter-counts-changelog")
        for record in part
    }
    assert stored == expected
    with routing.connect(own_site) as wire:
        policies = [
            requests.topic_config(wire, f"counter-{name}", "cleanup.policy").value
            for name in ("counts-changelog", "words-repartition")
        ]
        assert policies == ["compact", "delete"]
        # Streams deletes what it has read of its own repartition topic.
        assert all(
            requests.start_offset(wire, "counter-words-repartition", partition=each) > 0
            for each in range(PARTITIONS)
        )


def test_streams_are_joined_exactly(own_site: Site, tmp_path: Path) -> None:
    """Records of one key within ten seconds of each other, each pair once."""
    dice = random.Random(2)
    start = requests.now_ms() - 600_000
    sides: dict[str, list[tuple[int, str, str]]] = {"left": [], "right": []}
    for side, records in sides.items():
        for number in range(600):
            time = start + number * 500 + dice.randrange(500)
            records.append((time, f"k{dice.randrange(20)}", f"{side}{number}"))
    expected = Counter(
        (key, f"{one}+{other}")
        for time, key, one in sides["left"]
        for other_time, other_key, other in sides["right"]
        if key == other_key and abs(time - other_time) <= applications.JOIN_WINDOW_MS
    )
    create(own_site, *sides, "pairs")
    job, fate = start_of(own_site, tmp_path, "join", "joiner", "pairs", *sides)

    def give(number: int) -> None:
        for side, records in sides.items():
            part = records[number * 100 : number * 100 + 100]
            for partition in range(PARTITIONS):
                chosen = [
                    Record(key.encode(), value.encode(), time)
                    for time, key, value in part
                    if int(key[1:]) % PARTITIONS == partition
                ]
                write(own_site, side, chosen, partition=partition)

    steps = [lambda number=number: give(number) for number in range(6)]
    run(own_site, job, fate, "pairs", steps=steps, expected=expected.total())
    found = Counter(
        (record.key.decode(), record.value.decode())
        for part in results(own_site, "pairs")
        for record in part
    )
    assert found == expected
    check_replicas(own_site, "joiner")
