"""``odradek import`` from a real Apache Kafka: what comes out here is what lies there, record by record.

The Kafka holds every codec, headers and nulls, transactions of every end and two that are open, a compacted, a
trimmed and an empty topic, and groups of every kind. The import is killed again and again on its way.
"""

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from tests.support import adoptable, answers, group_requests, processes, record_batches, requests
from tests.support.answers import PartitionAnswers, TopicAnswers
from tests.support.apache import ApacheKafka
from tests.support.odradek import REPOSITORY, OdradekBroker
from tests.support.wire import Wire

FOREIGN = 1 << 61
POLICY_VIOLATION = 44
KILLS = 6
NOT_COMPARED = {"min.insync.replicas"}


class Source:
    def __init__(self, directory: Path) -> None:
        self.kafka = ApacheKafka(directory, adoptable.PROPERTIES)
        self.open_producers: list[Any] = []

    @property
    def bootstrap(self) -> str:
        host, port = self.kafka.address
        return f"{host}:{port}"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    filled = Source(tmp_path_factory.mktemp("source"))
    try:
        filled.kafka.start()
        filled.open_producers = adoptable.fill(filled.kafka.address)
        yield filled
    finally:
        adoptable.close(filled.open_producers)
        filled.kafka.close()


def command(broker: OdradekBroker, source: str, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "appliance", "-b", broker.bootstrap, "--format", "json"),
        *("import", source, "--data", str(broker.data), *more),
    ]


def run(broker: OdradekBroker, source: str, *more: str, status: int = 0) -> dict[str, Any]:
    done = subprocess.run(
        command(broker, source, *more), cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == status, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def names(address: tuple[str, int]) -> set[str]:
    return {name for name in answers.topic_names(address) if not name.startswith("__")}


def batches(partition: PartitionAnswers, level: int) -> list[tuple[Any, ...]]:
    """What lies in the log, batch by batch; a producer's id is another one's here."""
    return [
        (
            batch.base_offset,
            batch.last_offset,
            batch.attributes,
            batch.base_timestamp,
            batch.max_timestamp,
            batch.producer_id | FOREIGN if batch.producer_id >= 0 else -1,
            batch.producer_epoch,
            batch.base_sequence,
            batch.records() if batch.record_count else (),
        )
        for _, data, *_ in partition.fetches[level]
        for batch in record_batches.batches(data)
    ]


def check_partition(there: PartitionAnswers, here: PartitionAnswers, level: int) -> None:
    assert batches(here, level) == batches(there, level)
    assert here.records(level) == there.records(level)
    # (first offset, producer) of what was aborted, and the log start
    assert [
        (offset, producer) for fetch in here.fetches[level] for offset, producer in fetch[2]
    ] == [
        (offset, producer | FOREIGN)
        for fetch in there.fetches[level]
        for offset, producer in fetch[2]
    ]
    assert here.fetches[level][-1][5] == there.fetches[level][-1][5]


def check_topics(
    there: dict[str, TopicAnswers], here: dict[str, TopicAnswers], *levels: int
) -> None:
    assert set(here) == set(there)
    for name, topic in there.items():
        assert len(here[name].partitions) == len(topic.partitions)
        for one, other in zip(topic.partitions, here[name].partitions, strict=True):
            for level in levels:
                check_partition(one, other, level)
            if 0 in levels:
                # By timestamp, too; leader epochs are each cluster's own.
                assert {key: found[:3] for key, found in other.offsets.items()} == {
                    key: found[:3] for key, found in one.offsets.items()
                }
        values = {key: cell[0] for key, cell in here[name].configs.items()}
        for key, cell in topic.configs.items():
            if key in values and key not in NOT_COMPARED and not key.startswith("remote."):
                assert (key, values[key]) == (key, cell[0]), name


def without_epochs(committed: dict[str, Any]) -> dict[str, Any]:
    return {
        group: [[(*each[:4], each[5]) for each in told] for told in both]
        for group, both in committed.items()
    }


def end_transactions(producers: list[Any]) -> None:
    """Some of these producers have none open."""
    for number, producer in enumerate(producers):
        with contextlib.suppress(KafkaException):  # checked by what the source tells afterwards
            (producer.abort_transaction if number % 2 else producer.commit_transaction)(60)


def copied_bytes(broker: OdradekBroker) -> int:
    return sum(path.stat().st_size for path in broker.logs.glob("[!_]*/*.log"))


def kill_on_the_way(broker: OdradekBroker, source: str, dice: random.Random) -> None:
    """Kill an import as soon as it has brought a little more, or let it end."""
    before, step = copied_bytes(broker), dice.randrange(1, 400_000)
    process = subprocess.Popen(
        command(broker, source, "--fetch-size", "60000"), cwd=REPOSITORY, stdout=subprocess.PIPE
    )
    with process:
        processes.wait_until(
            lambda: process.poll() is not None or copied_bytes(broker) >= before + step,
            120,
            "the import to bring something",
            every=0.002,
        )
        process.kill()


@pytest.mark.slow
@pytest.mark.conformance
def test_topics_groups_and_transactions_come_over_whatever_kills_the_import(
    source: Source, tmp_path: Path
) -> None:
    there = source.kafka.address
    with OdradekBroker(tmp_path, {"log.index.interval.bytes": "2048"}) as broker:
        # While transactions are open there, and for as long as others will write there.
        first = run(broker, source.bootstrap, "--prepare")
        assert {row["topic"] for row in first["data"]} == names(there)
        assert {row["outcome"] for row in first["data"]} == {"copied, still closed"}
        told = answers.observe(there, names(there))
        check_topics(told, answers.observe(broker.address, names(broker.address)), 1)
        # Nor is it finished then by whoever takes it for the last time: what lies behind them would never come.
        refused = run(broker, source.bootstrap, "transactions", status=1)
        assert {row["outcome"] for row in refused["data"]} == {"not finished"}
        assert {each["code"] for each in refused["errors"]} == {"OPEN_TRANSACTION"}
        assert {each["topic"] for each in refused["errors"]} == {
            "transactions-0", "transactions-1"
        }  # fmt: skip
        with Wire(broker.address) as wire:
            answer = requests.try_produce(wire, "plain", record_batches.batch([b"mine"]))
            assert answer.error_code == POLICY_VIOLATION
        # The open ones end, more is written; then it is brought, with kills.
        end_transactions(source.open_producers)
        adoptable.append_by_hand(there, 5)
        dice = random.Random(7)
        for _ in range(KILLS):
            kill_on_the_way(broker, source.bootstrap, dice)
        broker.kill9()
        broker.start()
        run(broker, source.bootstrap)
        told = answers.observe(there, names(there))
        check_topics(told, answers.observe(broker.address, names(broker.address)), 0, 1)
        assert without_epochs(adoptable.committed_offsets(broker.address)) == without_epochs(
            adoptable.committed_offsets(there)
        )
        # Once more: nothing comes twice, and what was written here stays.
        with Wire(broker.address) as wire:
            mine = requests.produce(wire, "plain", record_batches.batch([b"mine"]))
            producer_id, _ = requests.init_producer(wire)
            assert producer_id < FOREIGN
            group_requests.commit(wire, "readers", "clients", {0: 1})
        again = run(broker, source.bootstrap)
        assert {row["outcome"] for row in again["data"]} == {"was imported before"}
        with Wire(broker.address) as wire:
            assert requests.end_offset(wire, "plain") == mine + 1
            assert group_requests.committed(wire, "readers")["clients", 0] == 1
        assert not list((broker.data / "import").glob("from-*"))


@pytest.mark.conformance
def test_topics_that_are_here_already_are_left_alone(source: Source, tmp_path: Path) -> None:
    with OdradekBroker(tmp_path) as broker:
        with Wire(broker.address) as wire:
            requests.create_topic(wire, "plain")
            requests.produce_values(wire, "plain", [b"mine"])
        found = run(broker, source.bootstrap, "plain", "emp*", "--no-groups", status=1)
        assert [row["topic"] for row in found["data"]] == ["empty"]
        assert [error["code"] for error in found["errors"]] == ["TOPIC_ALREADY_EXISTS"]
        with Wire(broker.address) as wire:
            assert requests.end_offset(wire, "plain") == 1
        assert "is this cluster itself" in str(run(broker, broker.bootstrap, status=1)["errors"])
