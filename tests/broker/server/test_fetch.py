"""Fetch over real logs: who is told what, and when."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from broker.replication.partition import Partition
from broker.server import tasks
from broker.server.handlers import fetch as fetch_handler
from tests.broker.replication.build import TOPIC_ID
from tests.broker.server.build import HandlerWorld, Pending
from tests.broker.storage.build import batch
from tests.support import record_batches
from tests.support.faulty_filesystem import FaultyFileSystem, io_error
from tests.support.wire import Struct

pytestmark = pytest.mark.interpreted  # with doubles of the connection or the dispatcher

UNKNOWN_TOPIC_OR_PARTITION, OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_ID = (
    3, 1, 74, 100,
)  # fmt: skip
ORDERS = "orders"


class Consumer:
    """A client's side of a fetch session: names only what has changed."""

    def __init__(self, world: HandlerWorld, offsets: dict[int, int], **options: Any) -> None:
        self.world = world
        self.offsets = offsets
        self.options = {"max_wait": 500, "min_bytes": 1, "max_bytes": 1 << 20, **options}
        self.session_id = 0
        self.epoch = 0
        self._changed = dict(offsets)

    def ask(self) -> Pending:
        partitions = [
            {
                "partition": index,
                "fetch_offset": offset,
                "partition_max_bytes": 1 << 20,
                "current_leader_epoch": -1,
            }
            for index, offset in self._changed.items()
        ]
        return self.world.ask(
            "fetch",
            11,
            **{
                "replica_id": -1,
                "isolation_level": 0,
                "session_id": self.session_id,
                "session_epoch": self.epoch,
                "topics": [{"topic": ORDERS, "partitions": partitions}] if partitions else [],
                "forgotten_topics_data": [],
                **self.options,
            },
        )

    def take(self, answer: Struct) -> dict[int, Struct]:
        """The partitions of an answer; reads on behind what came."""
        assert answer.error_code == 0
        self.session_id = answer.session_id
        self.epoch += 1
        self._changed = {}
        told = {
            part.partition_index: part for topic in answer.responses for part in topic.partitions
        }
        for index, part in told.items():
            for found in record_batches.batches(part.records or b""):
                self.offsets[index] = self._changed[index] = found.last_offset + 1
        return told

    def poll(self) -> dict[int, Struct]:
        """One fetch that must be answered at once."""
        pending = self.ask()
        assert pending.is_answered, f"offsets {self.offsets}: nothing comes"
        return self.take(pending.answer)


@pytest.fixture
def world(tmp_path: Path) -> HandlerWorld:
    return HandlerWorld([tmp_path])


def partitions_of(world: HandlerWorld, count: int, **changes: Any) -> list[Partition]:
    world.host(partitions=count, **changes)
    return [world.replicas.find(ORDERS, index) for index in range(count)]


def sessionless(world: HandlerWorld, offsets: dict[int, int], **options: Any) -> Pending:
    return Consumer(world, offsets, session_epoch=-1, **options).ask()


def test_partitions_that_got_no_room_are_not_forgotten(world: HandlerWorld) -> None:
    """A response is full after one partition: the others must be told later, without an append."""
    for partition in partitions_of(world, 4):
        world.append(partition, batch(size=1000))
        world.append(partition, batch(size=1000))
    consumer = Consumer(world, dict.fromkeys(range(4), 0), max_bytes=1)
    for _ in range(8):
        consumer.poll()
    assert consumer.offsets == dict.fromkeys(range(4), 2)


def test_no_partition_starves_behind_a_busy_one(world: HandlerWorld) -> None:
    partitions = partitions_of(world, 3)
    for partition in partitions:
        world.append(partition, batch(size=1000))
    consumer = Consumer(world, dict.fromkeys(range(3), 0), max_bytes=1)
    served: list[int] = []
    for _ in range(6):
        told = consumer.poll()
        served += [index for index, part in told.items() if part.records]
        world.append(partitions[0], batch(size=1000))
    assert {1, 2} <= set(served)


def test_a_fetch_at_the_end_waits_and_an_append_answers_it(world: HandlerWorld) -> None:
    (partition,) = partitions_of(world, 1)
    pending = sessionless(world, {0: 0})
    assert not pending.is_answered
    world.append(partition)
    world.append(partition)
    world.scheduler.run()
    (topic,) = pending.answer.responses
    assert topic.partitions[0].high_watermark == 2
    assert len(list(record_batches.batches(topic.partitions[0].records))) == 2
    assert world.scheduler.timers == []


def test_a_fetch_is_answered_empty_after_its_time(world: HandlerWorld) -> None:
    partitions_of(world, 1)
    pending = sessionless(world, {0: 0}, max_wait=500)
    world.scheduler.advance(499)
    assert not pending.is_answered
    world.scheduler.advance(1)
    (part,) = pending.answer.responses[0].partitions
    assert (part.error_code, part.high_watermark, part.records) == (0, 0, b"")


@pytest.mark.parametrize("max_wait", [0, -1, -(1 << 31)])
def test_no_time_to_wait_is_an_answer_at_once(world: HandlerWorld, max_wait: int) -> None:
    partitions_of(world, 1)
    assert sessionless(world, {0: 0}, max_wait=max_wait).is_answered


@pytest.mark.parametrize("min_bytes", [0, -1, -(1 << 31)])
def test_no_bytes_wanted_is_an_answer_at_once(world: HandlerWorld, min_bytes: int) -> None:
    partitions_of(world, 1)
    assert sessionless(world, {0: 0}, min_bytes=min_bytes).is_answered


def test_the_longest_wait_of_the_protocol(world: HandlerWorld) -> None:
    (partition,) = partitions_of(world, 1)
    pending = sessionless(world, {0: 0}, max_wait=2**31 - 1)
    world.scheduler.advance(10_000_000)
    assert not pending.is_answered
    world.append(partition)
    world.scheduler.run()
    assert pending.is_answered


def test_no_partition_at_all_is_answered_at_once(world: HandlerWorld) -> None:
    assert Consumer(world, {}).ask().is_answered


def test_bytes_of_several_partitions_count_together(world: HandlerWorld) -> None:
    partitions = partitions_of(world, 3)
    size = len(batch(size=100))
    pending = sessionless(world, dict.fromkeys(range(3), 0), min_bytes=3 * size)
    for partition in partitions[:2]:
        world.append(partition, batch(size=100))
        world.scheduler.run()
        assert not pending.is_answered
    world.append(partitions[2], batch(size=100))
    world.scheduler.run()
    (topic,) = pending.answer.responses
    assert sum(len(part.records) for part in topic.partitions) == 3 * size


def test_the_end_of_a_segment_is_no_reason_to_wait(world: HandlerWorld) -> None:
    """What is left of a segment is less than min_bytes, but there is more in the next one."""
    (partition,) = partitions_of(world, 1)
    for _ in range(100):
        world.append(partition, batch(size=1000))
    first, *_ = partition.log.segments
    last_of_first = partition.log.segments[1].base_offset - 1
    assert first.size < 64 * 1024
    pending = sessionless(world, {0: last_of_first}, min_bytes=8000)
    assert pending.is_answered
    (part,) = pending.answer.responses[0].partitions
    (found,) = record_batches.batches(part.records)
    assert found.last_offset == last_of_first


def test_an_error_is_answered_at_once_beside_partitions_without_news(world: HandlerWorld) -> None:
    partitions_of(world, 2)
    pending = sessionless(world, {0: 0, 7: 0, 1: 5})
    assert {
        part.partition_index: part.error_code for part in pending.answer.responses[0].partitions
    } == {0: 0, 7: UNKNOWN_TOPIC_OR_PARTITION, 1: OFFSET_OUT_OF_RANGE}


def test_an_offset_out_of_range_is_told_even_by_a_full_answer(world: HandlerWorld) -> None:
    first, _ = partitions_of(world, 2)
    world.append(first, batch(size=1000))
    pending = sessionless(world, {0: 0, 1: 99}, max_bytes=100)
    assert [part.error_code for part in pending.answer.responses[0].partitions] == [
        0,
        OFFSET_OUT_OF_RANGE,
    ]


def test_a_topic_deleted_while_a_fetch_waits_is_told_at_once(world: HandlerWorld) -> None:
    partitions_of(world, 1)
    pending = sessionless(world, {0: 0})
    world.replicas.drop_topic(ORDERS)
    world.scheduler.run()
    (part,) = pending.answer.responses[0].partitions
    assert part.error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert world.scheduler.timers == []


def test_a_session_follows_a_topic_that_was_deleted_and_created_anew(world: HandlerWorld) -> None:
    (partition,) = partitions_of(world, 1)
    world.append(partition)
    consumer = Consumer(world, {0: 0})
    consumer.poll()
    waiting = consumer.ask()
    assert not waiting.is_answered
    world.replicas.drop_topic(ORDERS)
    world.logs.delete(partition.topic_partition)
    world.scheduler.run()
    assert consumer.take(waiting.answer)[0].error_code == UNKNOWN_TOPIC_OR_PARTITION
    anew = world.host(topic_id=uuid.UUID(int=8))
    assert consumer.poll()[0].error_code == OFFSET_OUT_OF_RANGE  # it stood at 1, the log is empty
    consumer._changed = {0: 0}
    waiting = consumer.ask()
    world.append(anew)
    world.scheduler.run()
    assert consumer.take(waiting.answer)[0].records


def test_a_session_by_id_does_not_find_the_topic_that_took_the_name(world: HandlerWorld) -> None:
    partitions_of(world, 1)

    def ask(session_id: int, session_epoch: int, topics: list[Any]) -> Struct:
        pending = world.ask(
            "fetch",
            13,
            replica_id=-1,
            max_wait=0,
            min_bytes=1,
            max_bytes=1000,
            isolation_level=0,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=topics,
            forgotten_topics_data=[],
        )
        return pending.answer

    named = [
        {
            "topic_id": TOPIC_ID,
            "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}],
        }
    ]
    session_id = ask(0, 0, named).session_id
    assert ask(session_id, 1, []).responses == []
    world.replicas.drop_topic(ORDERS)
    anew = world.host(topic_id=uuid.UUID(int=8))
    world.append(anew)
    for epoch in (2, 3):
        (topic,) = ask(session_id, epoch, []).responses
        assert topic.topic_id == TOPIC_ID
        assert topic.partitions[0].error_code == UNKNOWN_TOPIC_ID


def test_a_raised_leader_epoch_is_news_to_a_session(world: HandlerWorld) -> None:
    partitions_of(world, 1)
    consumer = Consumer(world, {0: 0}, max_wait=0)
    consumer.poll()
    assert consumer.poll() == {}
    assert consumer.poll() == {}
    entry = next(iter(world.broker.fetch_sessions.get(consumer.session_id).partitions.values()))
    entry.current_leader_epoch = 0
    world.host(epoch=1)
    assert consumer.poll()[0].error_code == FENCED_LEADER_EPOCH


def test_a_session_may_change_its_isolation(world: HandlerWorld) -> None:
    """What read_committed could not see yet is news once the same session reads uncommitted."""
    (partition,) = partitions_of(world, 1)
    consumer = Consumer(world, {0: 0}, isolation_level=1, max_wait=0)
    data = batch(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    world.append(partition, data)
    assert not consumer.poll()[0].records
    assert consumer.poll() == {}
    consumer.options["isolation_level"] = 0
    assert consumer.poll()[0].records


def test_sessions_tell_only_news(world: HandlerWorld) -> None:
    first, _ = partitions_of(world, 2)
    consumer = Consumer(world, {0: 0, 1: 0}, max_wait=0)
    assert set(consumer.poll()) == {0, 1}
    assert consumer.poll() == {}
    world.append(first)
    assert set(consumer.poll()) == {0}
    world.scheduler.now_ms += 1
    first.delete_records(1)
    told = consumer.poll()
    assert told[0].log_start_offset == 1
    assert consumer.poll() == {}


def test_an_epoch_out_of_order_ends_nothing_but_the_request(world: HandlerWorld) -> None:
    partitions_of(world, 1)
    consumer = Consumer(world, {0: 0}, max_wait=0)
    consumer.poll()
    epoch, consumer.epoch = consumer.epoch, 9
    assert consumer.ask().answer.error_code == 71  # INVALID_FETCH_SESSION_EPOCH
    consumer.epoch = epoch
    assert consumer.poll() == {}
    consumer.session_id += 1
    assert consumer.ask().answer.error_code == 70  # FETCH_SESSION_ID_NOT_FOUND


# Pages that are not in memory


def cold_world(probability: float, count: int) -> tuple[HandlerWorld, list[Partition]]:
    fs = FaultyFileSystem(random.Random(3))
    world = HandlerWorld(["/a"], fs)
    partitions = partitions_of(world, count)
    for partition in partitions:
        for _ in range(3):
            world.append(partition, batch(size=100))
        partition.log._reader.forget()
    fs.cold_probability = probability
    return world, partitions


def test_cold_pages_of_many_partitions_take_one_trip() -> None:
    world, _ = cold_world(1.0, 30)
    pending = sessionless(world, dict.fromkeys(range(30), 1), max_wait=0)
    assert not pending.is_answered
    assert len(world.threads.waiting("read")) == 1
    assert world.threads.run() < 5
    (topic,) = pending.answer.responses
    assert all(part.records for part in topic.partitions)


def test_cold_reads_of_one_trip_are_bounded() -> None:
    world, _ = cold_world(1.0, fetch_handler.MAX_COLD_READS + 20)
    pending = sessionless(
        world, dict.fromkeys(range(fetch_handler.MAX_COLD_READS + 20), 1), max_wait=0
    )
    assert world.threads.run() >= 2
    (topic,) = pending.answer.responses
    assert all(part.records for part in topic.partitions)


def test_files_are_unpinned_whatever_becomes_of_the_client() -> None:
    world, partitions = cold_world(1.0, 2)
    pending = sessionless(world, {0: 1, 1: 1})
    files = [partition.log.segments.active.records.file for partition in partitions]
    assert pending.is_deferred
    world.connection.close("gone")
    world.threads.run()
    assert not pending.is_answered
    assert [file.pins for file in files] == [0, 0]
    assert world.threads.jobs == []


def test_a_disk_that_cannot_be_read_fails_its_partition_alone() -> None:
    world, partitions = cold_world(1.0, 2)
    pending = sessionless(world, {0: 1, 1: 1}, max_wait=0)
    bad = partitions[1].log.segments.active
    for file in bad.open_files():
        file.pull = fail_to_pull  # type: ignore[method-assign]
    world.threads.run()
    (topic,) = pending.answer.responses
    assert [part.error_code for part in topic.partitions] == [0, 56]  # KAFKA_STORAGE_ERROR
    assert topic.partitions[0].records
    assert world.reports


def fail_to_pull(position: int, length: int) -> None:
    raise io_error()


def test_a_fault_while_waiting_ends_the_connection_and_not_the_patience_of_the_client(
    world: HandlerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    (partition,) = partitions_of(world, 1)
    sessionless(world, {0: 0})

    def break_down(*_: object) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(type(partition), "read", break_down)
    world.append(partition)
    world.scheduler.run()
    assert world.connection.close_reason is not None
    assert not partition.fetch_waiters


def test_what_was_found_long_ago_is_looked_up_again_before_it_is_sent(world: HandlerWorld) -> None:
    """Too few bytes, then retention takes their segment while the fetch waits."""
    (partition,) = partitions_of(world, 1, file_delete_delay_ms=0)
    world.append(partition)
    pending = sessionless(world, {0: 0}, min_bytes=10_000, max_wait=500)
    partition.log.roll(world.scheduler.now_ms)
    partition.delete_records(1)
    partition.log.condemn(world.scheduler.now_ms)
    partition.log.delete_condemned(1)
    for work in world.logs.tick(world.scheduler.now_ms + 60_000):
        work.run()
    world.scheduler.advance(500)
    (part,) = pending.answer.responses[0].partitions
    assert part.error_code == OFFSET_OUT_OF_RANGE


# More partitions than one turn of the loop looks at


@pytest.fixture
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_handler, "PARTITIONS_AT_ONCE", 10)
    monkeypatch.setattr(tasks, "TURN_NS", 0)


@pytest.mark.usefixtures("small_turns")
def test_many_partitions_are_looked_at_in_many_turns(world: HandlerWorld) -> None:
    for partition in partitions_of(world, 40):
        world.append(partition)
    pending = sessionless(world, dict.fromkeys(range(40), 0))
    assert not pending.is_answered
    assert world.run() >= 40
    (topic,) = pending.answer.responses
    assert all(part.records for part in topic.partitions)


@pytest.mark.usefixtures("small_turns")
def test_an_append_behind_the_look_of_a_large_fetch_is_not_missed(world: HandlerWorld) -> None:
    partitions = partitions_of(world, 40)
    pending = sessionless(world, dict.fromkeys(range(40), 0), max_wait=60_000)
    for _ in range(20):  # turns; the first partitions have been looked at
        world.tasks.step()
    world.append(partitions[3])
    world.run()
    (topic,) = pending.answer.responses
    assert [part.partition_index for part in topic.partitions if part.records] == [3]
    assert world.scheduler.timers == []


@pytest.mark.usefixtures("small_turns")
def test_a_large_session_waits_is_woken_and_times_out(world: HandlerWorld) -> None:
    partitions = partitions_of(world, 40)
    consumer = Consumer(world, dict.fromkeys(range(40), 0), max_wait=0)
    first = consumer.ask()
    world.run()
    assert len(consumer.take(first.answer)) == 40
    consumer.options["max_wait"] = 500
    waiting = consumer.ask()
    world.run()
    assert not waiting.is_answered
    world.append(partitions[7])
    world.run()
    assert set(consumer.take(waiting.answer)) == {7}
    waiting = consumer.ask()
    world.run()
    world.scheduler.advance(500)
    world.run()
    assert consumer.take(waiting.answer) == {}


@pytest.mark.usefixtures("small_turns")
def test_a_large_fetch_whose_client_has_gone_ends(world: HandlerWorld) -> None:
    partitions = partitions_of(world, 40)
    sessionless(world, dict.fromkeys(range(40), 0))
    world.tasks.step()
    world.connection.close("gone")
    world.run()
    assert world.scheduler.timers == []
    assert not any(partition.fetch_waiters for partition in partitions)
