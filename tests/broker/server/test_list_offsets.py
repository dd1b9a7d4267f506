"""ListOffsets over real logs: pages that are cold, disks that fail, and many partitions at once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from broker.records.builder import build_batch
from broker.records.compression import Codec
from broker.records.record import Record
from broker.replication.partition import Partition
from broker.server import tasks
from tests.broker.server.build import HandlerWorld, Pending
from tests.broker.storage.build import NOW_MS, batch
from tests.support.faulty_filesystem import FaultyFileSystem, io_error

pytestmark = pytest.mark.interpreted  # with doubles of the connection or the dispatcher

KAFKA_STORAGE_ERROR, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION = 56, 42, 3


@pytest.fixture(autouse=True)
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine, only the tests about turns see one end."""
    monkeypatch.setattr(tasks, "TURN_NS", 10**12)


def ask(world: HandlerWorld, *partitions: tuple[int, int], version: int = 7) -> Pending:
    return world.ask(
        "list_offsets",
        version,
        replica_id=-1,
        isolation_level=0,
        topics=[
            {
                "name": "orders",
                "partitions": [
                    {"partition_index": index, "timestamp": timestamp, "current_leader_epoch": -1}
                    for index, timestamp in partitions
                ],
            }
        ],
    )


def results(pending: Pending) -> list[tuple[int, int, int]]:
    """(partition, error, offset)"""
    (topic,) = pending.answer.topics
    return [(part.partition_index, part.error_code, part.offset) for part in topic.partitions]


def cold_world(count: int) -> tuple[HandlerWorld, list[Partition]]:
    """Topics whose pages are not in memory; each partition has a record at NOW_MS + its number."""
    fs = FaultyFileSystem(random.Random(2))
    world = HandlerWorld(["/a"], fs)
    world.host(partitions=count)
    partitions = [world.replicas.find("orders", index) for index in range(count)]
    for index, partition in enumerate(partitions):
        world.append(partition, batch(timestamp=NOW_MS - 1000))
        world.append(partition, batch(timestamp=NOW_MS + index))
    return world, partitions


def make_cold(partition: Partition, pull: Any = None) -> None:
    file: Any = partition.log.segments.active.records.file
    known_peek, known_pull = file.peek, file.pull
    file.peek = lambda length, position: None

    def pull_in(position: int, length: int) -> None:
        known_pull(position, length)
        file.peek = known_peek

    file.pull = pull or pull_in


def fail_to_pull(position: int, length: int) -> None:
    raise io_error()


@pytest.mark.parametrize("cold_one", [0, 1, 2])
def test_one_cold_partition_is_waited_for_wherever_it_stands(cold_one: int) -> None:
    """The answer must not say that the partition has no such record."""
    world, partitions = cold_world(3)
    make_cold(partitions[cold_one])
    pending = ask(world, *((index, NOW_MS - 500) for index in range(3)))
    world.run()
    assert results(pending) == [(0, 0, 1), (1, 0, 1), (2, 0, 1)]


def test_a_partition_that_cannot_be_read_fails_alone() -> None:
    world, partitions = cold_world(3)
    make_cold(partitions[1], fail_to_pull)
    pending = ask(world, *((index, NOW_MS - 500) for index in range(3)))
    world.run()
    assert results(pending) == [(0, 0, 1), (1, KAFKA_STORAGE_ERROR, -1), (2, 0, 1)]
    assert world.reports


def test_a_file_that_has_gone_fails_its_partition_alone() -> None:
    world, partitions = cold_world(2)
    file: Any = partitions[0].log.segments.active.records.file

    def fail(length: int, position: int) -> bytes:
        raise FileNotFoundError("gone")

    file.peek = file.pread = fail
    pending = ask(world, (0, NOW_MS - 500), (1, NOW_MS - 500))
    assert results(pending) == [(0, KAFKA_STORAGE_ERROR, -1), (1, 0, 1)]


def test_many_look_ups_take_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TURN_NS", 0)
    world, _ = cold_world(20)
    pending = ask(world, *((index, NOW_MS - 500) for index in range(20)))
    assert not pending.is_answered
    assert world.run() >= 19
    assert results(pending) == [(index, 0, 1) for index in range(20)]


def test_a_topic_deleted_between_two_turns_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TURN_NS", 0)
    world, _ = cold_world(3)
    pending = ask(world, *((index, NOW_MS - 500) for index in range(3)))
    world.replicas.drop_topic("orders")
    world.run()
    assert results(pending) == [
        (0, 0, 1),
        (1, UNKNOWN_TOPIC_OR_PARTITION, -1),
        (2, UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


def test_a_fault_ends_the_connection_instead_of_a_client_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, partitions = cold_world(1)

    def pull(position: int, length: int) -> None:
        raise RuntimeError("a fault of ours")

    make_cold(partitions[0], pull)
    ask(world, (0, NOW_MS - 500))
    world.run()
    assert world.connection.close_reason is not None


def test_a_partition_named_twice_is_refused(tmp_path: Path) -> None:
    world = HandlerWorld([tmp_path])
    world.host(partitions=2)
    pending = ask(world, (0, -1), (1, -1), (0, -2))
    assert results(pending) == [(0, INVALID_REQUEST, -1), (1, 0, 0), (0, INVALID_REQUEST, -1)]


def test_the_youngest_record_of_a_compressed_batch_is_found(tmp_path: Path) -> None:
    world = HandlerWorld([tmp_path])
    partition = world.host()
    times = (NOW_MS, NOW_MS + 5000, NOW_MS + 1000)
    records = [Record(n, at, b"k", b"v") for n, at in enumerate(times)]
    world.append(partition, build_batch(records, codec=Codec.GZIP))
    assert results(ask(world, (0, -3))) == [(0, 0, 1)]
