"""Kafka Streams, unchanged, under `exactly_once_v2`: killed again and again, its results exact.

Its own smoke test is left out: the artifact that holds it is not published for 4.4.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support import applications, processes, record_batches, requests
from tests.support.fixtures import Broker
from tests.support.job import Job
from tests.support.odradek import OdradekBroker
from tests.support.record_batches import Record
from tests.support.transactions import committed_records
from tests.support.wire import Wire

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PARTITIONS = 2
WORDS = [f"w{number}" for number in range(16)]


def create(broker: Broker, *topics: str) -> None:
    with Wire(broker.address) as wire:
        for topic in topics:
            requests.create_topic(wire, topic, partitions=PARTITIONS)


def write(broker: Broker, topic: str, records: Sequence[Record], *, partition: int) -> None:
    with Wire(broker.address) as wire:
        requests.produce(wire, topic, record_batches.batch(records), partition=partition)


def results(broker: Broker, topic: str) -> list[list[Record]]:
    """What a read_committed consumer gets, by partition."""
    with Wire(broker.address, timeout=60) as wire:
        return [committed_records(wire, topic, partition=each) for each in range(PARTITIONS)]


def count(broker: Broker, topic: str) -> int:
    return sum(map(len, results(broker, topic)))


def interrupt(dice: random.Random, broker: Broker, job: Job, state: Path) -> None:
    """kill -9 of the application (which may lose its state, too) or of a broker of ours; Apache
    Kafka would come back under another address."""
    if isinstance(broker, OdradekBroker) and dice.random() < 0.4:
        broker.kill9()
        broker.start()
        return
    job.kill()
    if dice.random() < 0.5:
        shutil.rmtree(state, ignore_errors=True)
    job.start()


def run(
    broker: Broker,
    job: Job,
    state: Path,
    target: str,
    *,
    steps: Sequence[Callable[[], None]],
    expected: int,
) -> None:
    """Gives input step by step, and kills something once each has come into its results."""
    dice = random.Random(7)
    with job:
        for step in steps:
            before = count(broker, target)
            step()

            def is_further(before: int = before) -> bool:
                job.keep_alive()
                return count(broker, target) > before

            processes.wait_until(is_further, 120, "results", every=0.2)
            interrupt(dice, broker, job, state)

        def is_over() -> bool:
            job.keep_alive()
            return count(broker, target) >= expected

        processes.wait_until(is_over, 180, f"{expected} results: {job.errors}", every=0.5)


def test_words_are_counted_exactly(own_broker: Broker, tmp_path: Path) -> None:
    dice = random.Random(1)
    lines = [" ".join(dice.choices(WORDS, range(1, 17), k=3)) for _ in range(1600)]
    create(own_broker, "lines", "counts")
    job = applications.streams_job(
        tmp_path, "count", own_broker.bootstrap, "counter", "counts", "lines"
    )

    def give(number: int) -> None:
        now = requests.now_ms()
        for partition in range(PARTITIONS):
            part = lines[number * 200 : number * 200 + 200][partition::PARTITIONS]
            records = [Record(None, line.encode(), now) for line in part]
            write(own_broker, "lines", records, partition=partition)

    steps = [lambda number=number: give(number) for number in range(8)]
    words = [word for line in lines for word in line.split()]
    run(own_broker, job, tmp_path / "state", "counts", steps=steps, expected=len(words))
    # Each count was told once and in its turn.
    told: dict[str, list[int]] = {word: [] for word in WORDS}
    for part in results(own_broker, "counts"):
        for record in part:
            told[record.key.decode()].append(int(record.value))
    expected = Counter(words)
    assert told == {word: list(range(1, expected[word] + 1)) for word in WORDS}
    # The changelog, from which a store is made anew, says the same in the end.
    stored = {
        record.key.decode(): int.from_bytes(record.value)
        for part in results(own_broker, "counter-counts-changelog")
        for record in part
    }
    assert stored == expected
    with Wire(own_broker.address) as wire:
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


def test_streams_are_joined_exactly(own_broker: Broker, tmp_path: Path) -> None:
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
    create(own_broker, *sides, "pairs")
    job = applications.streams_job(
        tmp_path, "join", own_broker.bootstrap, "joiner", "pairs", *sides
    )

    def give(number: int) -> None:
        for side, records in sides.items():
            part = records[number * 100 : number * 100 + 100]
            for partition in range(PARTITIONS):
                chosen = [
                    Record(key.encode(), value.encode(), time)
                    for time, key, value in part
                    if int(key[1:]) % PARTITIONS == partition
                ]
                write(own_broker, side, chosen, partition=partition)

    steps = [lambda number=number: give(number) for number in range(6)]
    run(own_broker, job, tmp_path / "state", "pairs", steps=steps, expected=expected.total())
    found = Counter(
        (record.key.decode(), record.value.decode())
        for part in results(own_broker, "pairs")
        for record in part
    )
    assert found == expected
