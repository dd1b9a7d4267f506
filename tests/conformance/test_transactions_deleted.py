"""What is left of transactions whose records are gone, after a restart too (cases C061, C078)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import processes, requests
from tests.support.fixtures import IN_THE_LONG_RUN, KINDS, Broker
from tests.support.record_batches import Record
from tests.support.requests import create_topic
from tests.support.transactions import (
    TransactionalProducer,
    committed_records,
    committed_values,
    wait_for_coordinator,
    wait_for_state,
)
from tests.support.wire import Wire

MIB = 1024 * 1024
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
SETTINGS = {
    # Apache Kafka forgets a start that it has not written down; we write it down before we answer.
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "0",
    "log.segment.delete.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "1",
}


@pytest.fixture(params=IN_THE_LONG_RUN, ids=["on_odradek", "on_apache"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    with KINDS[request.param](tmp_path / "own", SETTINGS) as made:
        yield made


def restart(broker: Broker, *, is_killed: bool) -> None:
    if is_killed:
        broker.kill9()
    else:
        broker.stop()
    broker.start()


def wait_for_checkpoint(broker: Broker, name: str, topic: str, offset: int) -> None:
    """Until ``name`` says so of the topic's partition 0."""
    path = broker.logs / name
    line = f"{topic} 0 {offset}"
    processes.wait_until(
        lambda: path.exists() and line in path.read_text().splitlines(), 60, f"{name}: {line}"
    )


def base_offsets(broker: Broker, topic: str) -> list[int]:
    return sorted(int(path.stem) for path in (broker.logs / f"{topic}-0").glob("*.log"))


def commit(wire: Wire, topic: str, producer: TransactionalProducer, values: list[bytes]) -> None:
    begin(wire, topic, producer)
    assert producer.produce(topic, values) == 0
    end(wire, producer, is_commit=True)


def begin(wire: Wire, topic: str, producer: TransactionalProducer) -> None:
    producer.wire = wire
    wait_for_coordinator(wire, producer.transactional_id)
    producer.add(topic, 0)


def end(wire: Wire, producer: TransactionalProducer, *, is_commit: bool) -> None:
    producer.end(is_commit)
    state = "CompleteCommit" if is_commit else "CompleteAbort"
    wait_for_state(wire, producer.transactional_id, state)


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("start", [5, 6], ids=["only the marker is left", "nothing is left"])
def test_a_producer_goes_on_behind_records_that_were_deleted(
    broker: Broker, start: int, is_killed: bool
) -> None:
    """C078: its records are still in the file, below the start, and are what tells its sequence."""
    with Wire(broker.address) as wire:
        topic = create_topic(wire)
        producer = TransactionalProducer(wire).init()
        commit(wire, topic, producer, [b"%d" % number for number in range(5)])
        assert requests.delete_records(wire, topic, start).low_watermark == start
        wait_for_checkpoint(broker, "log-start-offset-checkpoint", topic, start)
    restart(broker, is_killed=is_killed)
    with Wire(broker.address) as wire:
        assert requests.start_offset(wire, topic) == start
        commit(wire, topic, producer, [b"5"])
        assert committed_values(wire, topic) == [b"5"]


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("is_commit", [True, False], ids=["committed", "aborted"])
def test_a_producer_goes_on_behind_files_that_were_deleted(
    broker: Broker, is_commit: bool, is_killed: bool
) -> None:
    """C078: its records are gone with their segment, the marker in the next one is left. Apache Kafka's
    own recovery after a kill knows no more than the marker, and refuses what follows."""
    with Wire(broker.address) as wire:
        topic = create_topic(wire, configs={"segment.bytes": str(MIB)})
        producer = TransactionalProducer(wire).init()
        producer.add(topic, 0)
        assert producer.produce(topic, [b"%d" % number for number in range(5)]) == 0
        for _ in range(2):
            requests.produce_values(wire, topic, [b"x" * (MIB * 6 // 10)])
        end(wire, producer, is_commit=is_commit)
        assert base_offsets(broker, topic) == [0, 6]
        marker = requests.end_offset(wire, topic) - 1
        assert requests.delete_records(wire, topic, marker).low_watermark == marker
        processes.wait_until(
            lambda: base_offsets(broker, topic) == [6], 60, "the records' file is deleted"
        )
        wait_for_checkpoint(broker, "log-start-offset-checkpoint", topic, marker)
    restart(broker, is_killed=is_killed)
    with Wire(broker.address) as wire:
        if broker.name == "apache" and is_killed:
            begin(wire, topic, producer)
            assert producer.produce(topic, [b"5"]) == OUT_OF_ORDER_SEQUENCE_NUMBER
            return
        commit(wire, topic, producer, [b"5"])
        assert committed_values(wire, topic) == [b"5"]


@pytest.mark.parametrize("delete_retention_ms", [86_400_000, 0], ids=["markers stay", "none stay"])
def test_compaction_of_aborted_records_changes_nothing_that_readers_see(
    broker: Broker, delete_retention_ms: int
) -> None:
    """C061 for a topic of records: the same before, after, and after a stop and a kill."""
    dice = random.Random(delete_retention_ms)
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": str(MIB),
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": str(delete_retention_ms),
    }
    with Wire(broker.address) as wire:
        topic = create_topic(wire, configs=settings)
        producer = TransactionalProducer(wire).init()
        latest: dict[bytes, bytes] = {}
        for _ in range(60):
            transaction(wire, producer, topic, latest, dice, 60_000)
        assert latest_of(committed_records(wire, topic)) == latest
        last_base = base_offsets(broker, topic)[-1]
        assert last_base > 0
        wait_for_checkpoint(broker, "cleaner-offset-checkpoint", topic, last_base)
        before = check_compacted(wire, topic, latest, last_base)
        for is_killed in (True, False, True):
            restart(broker, is_killed=is_killed)
            with Wire(broker.address) as other:
                found = check_compacted(other, topic, latest, last_base)
                assert found == before
                # Of this producer, whose records may be gone, nothing is out of order.
                transaction(other, producer, topic, latest, dice, 100)
                before = check_compacted(other, topic, latest, last_base)


def transaction(
    wire: Wire,
    producer: TransactionalProducer,
    topic: str,
    latest: dict[bytes, bytes],
    dice: random.Random,
    size: int,
) -> None:
    """A few keys of many; two in five are aborted. ``latest`` is what readers are to see."""
    is_commit = dice.random() < 0.6
    word = b"good" if is_commit else b"bad"
    written = {
        b"key-%d" % dice.randrange(20): word + dice.randbytes(size)
        for _ in range(dice.randrange(1, 4))
    }
    begin(wire, topic, producer)
    now_ms = requests.now_ms()
    records = [Record(key, value, now_ms) for key, value in written.items()]
    assert producer.produce(topic, records) == 0
    end(wire, producer, is_commit=is_commit)
    if is_commit:
        latest.update(written)


def latest_of(records: list[Record]) -> dict[bytes, bytes]:
    assert all(record.value and record.value.startswith(b"good") for record in records)
    return {record.key: record.value for record in records if record.key and record.value}


def check_compacted(
    wire: Wire, topic: str, latest: dict[bytes, bytes], cleaned: int
) -> list[Record]:
    found = committed_records(wire, topic)
    assert latest_of(found) == latest
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    below = [record for record in requests.read_all(wire, topic) if record.offset < cleaned]
    keys = [record.key for record in below]
    assert len(keys) == len(set(keys)), "once a key"
    assert all(record.value and record.value.startswith(b"good") for record in below)
    return found
