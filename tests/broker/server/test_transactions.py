"""Transactions in a whole broker: over restarts at each step, and while things go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.coordinator.transaction.requests import MarkersDone, ProducerOfTransaction
from broker.coordinator.transaction.states import TransactionState
from broker.coordinator.transaction.transaction import RAISES_EPOCH
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import BrokerId, TopicPartition
from broker.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.model.transaction_marker import TransactionMarker
from broker.server import coordinator_log, transaction_markers
from tests.broker.server.running import Running, on_loop, running
from tests.support import group_requests, groups, requests
from tests.support.record_batches import batch
from tests.support.transactions import (
    TRANSACTIONAL,
    TransactionalProducer,
    committed_values,
    describe,
    wait_for_coordinator,
)
from tests.support.wire import Wire

QUICK = {
    "group_initial_rebalance_delay_ms": "0",
    "offsets_topic_num_partitions": "2",
    "transaction_state_log_num_partitions": "2",
}
NONE = ErrorCode.NONE


def quick(directory: Path, **settings: str) -> Any:
    return running(directory, **{**QUICK, **settings})


async def with_open_transaction(r: Running, partitions: int = 2) -> TransactionalProducer:
    """``x`` has written to ``t``, and committed offset 7 of ``g``; nothing is ended."""

    def write(wire: Wire) -> TransactionalProducer:
        requests.create_topic(wire, "t", partitions=partitions)
        group_requests.find(wire, "g")
        wait_for_coordinator(wire, "x")
        producer = TransactionalProducer(wire, "x").init()
        producer.add("t", *range(partitions))
        for partition in range(min(partitions, 2)):
            assert producer.produce("t", [b"v"], partition=partition) == 0
        assert producer.add_offsets("g") == 0
        assert producer.commit_offset("g", "t", 7) == 0
        return producer

    return await r.call(write)


async def end(r: Running, producer: TransactionalProducer, is_commit: bool) -> int:
    def ask(wire: Wire) -> int:
        producer.wire = wire
        return producer.try_end(is_commit)

    return await r.call(ask)


async def outcome(r: Running) -> tuple[list[bytes | None], int]:
    """What consumers see of ``with_open_transaction``: partition 0, and the offset."""

    def look(wire: Wire) -> tuple[list[bytes | None], int]:
        wait_for_coordinator(wire, "x")
        groups.wait_for_coordinator(wire, "g")
        return committed_values(wire, "t"), groups.committed_offset(wire, "g", "t")

    return await r.call(look)


async def until_state(r: Running, state: TransactionState) -> None:
    def is_there() -> bool:
        return r.broker.transactions.coordinator.describe("x").state == state.wire_name

    await r.until(is_there)


# --- Restarts at each step --------------------------------------------------------------------


@pytest.mark.parametrize("is_commit", [True, False])
@on_loop
async def test_no_marker_was_written(tmp_path: Path, is_commit: bool) -> None:
    """The broker goes between the outcome's record and the first marker."""
    async with quick(tmp_path) as r:
        producer = await with_open_transaction(r)
        r.broker.transactions.markers.write = lambda *_: None  # type: ignore[method-assign]
        assert await end(r, producer, is_commit) == 0
    async with quick(tmp_path) as r:
        await until_state(
            r, TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        )
        assert await outcome(r) == (([b"v"], 7) if is_commit else ([], -1))


@pytest.mark.parametrize("is_commit", [True, False])
@on_loop
async def test_some_markers_were_written(tmp_path: Path, is_commit: bool) -> None:
    """The broker goes between one marker and the next; some then come twice."""
    async with quick(tmp_path) as r:
        producer = await with_open_transaction(r)
        write = r.broker.transactions.markers.write

        def write_first(
            marker: TransactionMarker, partitions: Sequence[TopicPartition], _done: MarkersDone
        ) -> None:
            assert partitions[0].topic == CONSUMER_OFFSETS
            write(marker, partitions[:2], lambda results: None)

        r.broker.transactions.markers.write = write_first  # type: ignore[method-assign]
        assert await end(r, producer, is_commit) == 0
    async with quick(tmp_path) as r:
        await until_state(
            r, TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        )
        assert await outcome(r) == (([b"v"], 7) if is_commit else ([], -1))
        second = await r.call(committed_values, "t", partition=1)
        assert second == ([b"v"] if is_commit else [])


@on_loop
async def test_the_completion_was_not_written(tmp_path: Path) -> None:
    async with quick(tmp_path) as r:
        producer = await with_open_transaction(r)
        append = coordinator_log.append_own

        def refuse(broker: Any, partition: Any, batch: bytearray, now_ms: int) -> int:
            if (
                partition.topic_partition.topic == TRANSACTION_STATE
                and partition.log.log_end_offset >= 4
            ):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
            return append(broker, partition, batch, now_ms)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(coordinator_log, "append_own", refuse)
            # Empty, Ongoing, Ongoing with the group, PrepareCommit are in the log; no more fits.
            assert await end(r, producer, True) == 0
            assert await outcome(r) == ([b"v"], 7)
            await until_state(r, TransactionState.PREPARE_COMMIT)
    async with quick(tmp_path) as r:
        await until_state(r, TransactionState.COMPLETE_COMMIT)
        assert await outcome(r) == ([b"v"], 7)


@on_loop
async def test_what_ran_out_meanwhile_is_aborted_by_the_next_start(tmp_path: Path) -> None:
    async with quick(tmp_path) as r:
        await r.call(requests.create_topic, "t")
        await r.call(wait_for_coordinator, "x")

        def write(wire: Wire) -> None:
            producer = TransactionalProducer(wire, "x").init(timeout_ms=400)
            producer.add("t", 0)

        await r.call(write)
        r.broker.transactions.runtime.timers.cancel_where(lambda key: True)
    async with quick(tmp_path) as r:
        await until_state(r, TransactionState.COMPLETE_ABORT)


# --- While things go wrong --------------------------------------------------------------------


@on_loop
async def test_a_marker_waits_for_the_group_coordinator_to_be_loaded(tmp_path: Path) -> None:
    """Offsets that are being loaded must not miss the marker that decides about them."""
    async with quick(tmp_path) as r:
        producer = await with_open_transaction(r)
        r.broker.transactions.markers.write = lambda *_: None  # type: ignore[method-assign]
        assert await end(r, producer, True) == 0
    may_load = asyncio.Event()
    load = coordinator_log.LoadingLog.load

    async def slow(self: coordinator_log.LoadingLog) -> None:
        if self._partition.topic_partition.topic == CONSUMER_OFFSETS:
            await may_load.wait()
        await load(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator_log.LoadingLog, "load", slow)
        async with quick(tmp_path) as r:
            await until_state(r, TransactionState.PREPARE_COMMIT)
            found = r.broker.transactions.coordinator.describe("x")
            await r.until(
                lambda: (
                    [
                        each.topic
                        for each in r.broker.transactions.coordinator.describe("x").partitions
                    ]
                    == [CONSUMER_OFFSETS]
                )
            )
            assert found.error is NONE
            may_load.set()
            await until_state(r, TransactionState.COMPLETE_COMMIT)
            assert await outcome(r) == ([b"v"], 7)


@on_loop
async def test_a_transaction_with_many_partitions_ends_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_markers, "PARTITIONS_AT_ONCE", 3)
    async with quick(tmp_path) as r:
        producer = await with_open_transaction(r, partitions=8)
        assert await end(r, producer, True) == 0
        await until_state(r, TransactionState.COMPLETE_COMMIT)
        ends = [r.broker.replicas.find("t", index).log.log_end_offset for index in range(8)]
        assert ends == [2, 2, 1, 1, 1, 1, 1, 1]


@on_loop
async def test_acknowledgements_wait_for_the_disk_where_the_topic_says_so(tmp_path: Path) -> None:
    """``flush.messages=1`` on the state topic: an id is pending until its record is synced."""
    async with quick(tmp_path) as r:
        await r.call(requests.create_topic, "t")
        await r.call(wait_for_coordinator, "x")
        await r.call(requests.alter_config, TRANSACTION_STATE, "flush.messages", "1")

        def live(wire: Wire) -> list[bytes | None]:
            producer = TransactionalProducer(wire, "x").init()
            for number in range(3):
                producer.add("t", 0)
                assert producer.produce("t", [b"%d" % number]) == 0
                producer.end(number != 1)
            return committed_values(wire, "t")

        await r.call(live)
        await until_state(r, TransactionState.COMPLETE_COMMIT)
        assert await r.call(committed_values, "t") == [b"0", b"2"]
        partition = r.broker.replicas.find(
            TRANSACTION_STATE, r.broker.transactions.coordinator.index_of("x")
        )
        assert partition.log.flushed_offset == partition.log.log_end_offset


@on_loop
async def test_a_batch_that_was_looked_through_in_a_thread_is_checked_again(tmp_path: Path) -> None:
    """The transaction ends while the records of its last batch are being walked: appended behind the
    marker, they would hang for ever."""
    async with quick(tmp_path) as r:
        producer = await with_open_transaction(r)
        await r.call(requests.alter_config, "t", "odradek.produce.validation", "strict")
        partition = r.broker.replicas.find("t", 0)
        compute = r.broker.threads.compute
        held: list[Callable[[], None]] = []

        def hold(*arguments: Any) -> None:
            held.append(lambda: compute(*arguments))

        r.broker.threads.compute = hold  # type: ignore[method-assign]

        def write(wire: Wire) -> int:
            producer.wire = wire
            return producer.produce("t", [bytes(30_000)])

        writing = asyncio.ensure_future(r.call(write))
        await r.until(lambda: bool(held))
        ending = TransactionalProducer.__new__(TransactionalProducer)
        ending.__dict__.update(producer.__dict__)
        assert await end(r, ending, True) == 0
        await until_state(r, TransactionState.COMPLETE_COMMIT)
        end_offset = partition.log.log_end_offset
        held[0]()
        assert await writing == ErrorCode.TRANSACTION_ABORTABLE
        assert partition.log.log_end_offset == end_offset
        assert partition.last_stable_offset == end_offset


@on_loop
async def test_unused_ids_go_by_themselves(tmp_path: Path) -> None:
    async with quick(
        tmp_path,
        transactional_id_expiration_ms="1",
        transaction_remove_expired_transaction_cleanup_interval_ms="100",
    ) as r:
        await r.call(wait_for_coordinator, "x")
        await r.call(lambda wire: TransactionalProducer(wire, "x").init())
        await r.until(lambda: not r.broker.transactions.coordinator.transactional_ids())
        found = await r.call(describe, "x")
        assert found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@on_loop
async def test_a_consumer_that_looks_for_the_state_topic_makes_it_as_it_has_to_be(
    tmp_path: Path,
) -> None:
    async with quick(tmp_path) as r:
        for name in (TRANSACTION_STATE, CONSUMER_OFFSETS):
            await r.request("metadata", 8, topics=[{"name": name}], allow_auto_topic_creation=True)
            await r.until(lambda name=name: name in r.broker.image.topics)  # type: ignore[misc]
            topic = r.broker.image.topics[name]
            assert len(topic.partitions) == 2
            assert topic.configs["cleanup.policy"] == "compact"
        producer = await with_open_transaction(r)
        assert await end(r, producer, True) == 0


@on_loop
async def test_a_new_state_topic_forgets_everything(tmp_path: Path) -> None:
    async with quick(tmp_path) as r:
        producer = await with_open_transaction(r)
        await r.call(requests.delete_topic, TRANSACTION_STATE)
        assert await end(r, producer, True) == ErrorCode.NOT_COORDINATOR
        await r.call(wait_for_coordinator, "x")
        assert await end(r, producer, True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


# --- Batches that add their partitions (``transaction.version`` 2) ----------------------------


def coordinate_elsewhere(r: Running, before_answer: Callable[[], None]) -> None:
    """The coordinator is asked as another broker's is."""
    transactions = r.broker.transactions

    def ask(
        _: object,
        producer: ProducerOfTransaction,
        partitions: Sequence[TopicPartition],
        adds: bool,
        done: Callable[[Sequence[ErrorCode]], None],
    ) -> None:
        def told(code: ErrorCode) -> None:
            before_answer()
            done([code] * len(partitions))

        assert adds
        transactions.coordinator.add_partitions(producer, partitions, told, RAISES_EPOCH)

    transactions.coordinator_elsewhere = lambda _: BrokerId(99)  # type: ignore[method-assign]
    transactions._ask_elsewhere = ask  # type: ignore[method-assign]


def note_tries(r: Running) -> list[object]:
    """Each time that the coordinator is asked to add partitions."""
    asked = r.broker.transactions.coordinator.add_partitions
    tries: list[object] = []

    def note(*arguments: Any) -> None:
        tries.append(arguments)
        asked(*arguments)

    r.broker.transactions.coordinator.add_partitions = note  # type: ignore[method-assign]
    return tries


@on_loop
async def test_a_marker_that_comes_between_question_and_word_costs_another_question(
    tmp_path: Path,
) -> None:
    async with quick(tmp_path) as r:
        await r.call(requests.create_topic, "t")
        await r.call(wait_for_coordinator, "x")
        producer = await r.call(lambda wire: TransactionalProducer(wire, "x").init(version=5))
        markers = [TopicPartition("t", 0)]

        def before_answer() -> None:
            if markers:
                table = r.broker.transactions.verifications
                table.on_marker(markers.pop(), producer.producer_id)

        coordinate_elsewhere(r, before_answer)

        def write(wire: Wire) -> int:
            producer.wire = wire
            return producer.produce("t", [b"1"], version=12)

        assert await r.call(write) == 0
        assert markers == []


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["here", "elsewhere"])
@on_loop
async def test_a_batch_waits_for_the_markers_of_the_last_transaction(
    tmp_path: Path, is_elsewhere: bool
) -> None:
    """And what is behind it on its connection keeps its place."""
    async with quick(tmp_path) as r:
        if is_elsewhere:
            coordinate_elsewhere(r, lambda: None)
        await r.call(requests.create_topic, "t")
        await r.call(wait_for_coordinator, "x")
        write = r.broker.transactions.markers.write
        held: list[Callable[[], None]] = []
        r.broker.transactions.markers.write = (  # type: ignore[method-assign]
            lambda *arguments: held.append(lambda: write(*arguments))
        )

        def first(wire: Wire) -> TransactionalProducer:
            producer = TransactionalProducer(wire, "x").init(version=5)
            assert producer.produce("t", [b"1"], version=12) == 0
            producer.end_and_raise(True)
            return producer

        producer = await r.call(first)
        assert producer.epoch == 1

        def try_next(wire: Wire) -> int:
            producer.wire = wire
            return producer.produce("t", [b"2"], version=12)

        assert await r.call(try_next) == ErrorCode.CONCURRENT_TRANSACTIONS
        tries = note_tries(r)

        def pipelined(wire: Wire) -> list[int]:
            numbers = [b"2", b"3"]
            for number, value in enumerate(numbers):
                fields = transactional_batch(producer, "t", value, number)
                wire.send("produce", 12, **fields)
            answers = [wire.receive() for _ in numbers]
            return [each.responses[0].partition_responses[0].error_code for each in answers]

        writing = asyncio.ensure_future(r.call(pipelined))
        await r.until(lambda: bool(tries))
        held[0]()
        assert await writing == [0, 0]
        r.broker.transactions.markers.write = write  # type: ignore[method-assign]
        await r.call(lambda wire: _end_on(wire, producer))
        await until_state(r, TransactionState.COMPLETE_COMMIT)
        assert await r.call(committed_values, "t") == [b"1", b"2", b"3"]


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["here", "elsewhere"])
@on_loop
async def test_offsets_wait_for_the_markers_of_the_last_transaction(
    tmp_path: Path, is_elsewhere: bool
) -> None:
    """A client that is told CONCURRENT_TRANSACTIONS here may abort, and that is refused amid the end of the last
    transaction (PRODUCER_FENCED)."""
    async with quick(tmp_path) as r:
        await r.call(requests.create_topic, "t")
        await r.call(wait_for_coordinator, "x")
        await r.call(groups.wait_for_coordinator, "g")
        if is_elsewhere:
            coordinate_elsewhere(r, lambda: None)
        write = r.broker.transactions.markers.write
        held: list[Callable[[], None]] = []
        r.broker.transactions.markers.write = (  # type: ignore[method-assign]
            lambda *arguments: held.append(lambda: write(*arguments))
        )

        def commit(wire: Wire, producer: TransactionalProducer, offset: int) -> int:
            producer.wire = wire
            return producer.commit_offset("g", "t", offset, version=5)

        def first(wire: Wire) -> TransactionalProducer:
            producer = TransactionalProducer(wire, "x").init(version=5)
            assert commit(wire, producer, 1) == 0
            producer.end_and_raise(True)
            return producer

        producer = await r.call(first)
        tries = note_tries(r)
        committing = asyncio.ensure_future(r.call(commit, producer, 2))
        await r.until(lambda: bool(tries))
        held[0]()
        r.broker.transactions.markers.write = write  # type: ignore[method-assign]
        assert await committing == 0
        await r.call(lambda wire: _end_on(wire, producer))
        await until_state(r, TransactionState.COMPLETE_COMMIT)
        assert await r.call(groups.committed_offset, "g", "t") == 2


def transactional_batch(
    producer: TransactionalProducer, topic: str, value: bytes, sequence: int
) -> dict[str, Any]:
    data = batch(
        [value],
        timestamp=requests.now_ms(),
        attributes=TRANSACTIONAL,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
    )
    fields = requests.produce_fields(topic, 0, data)
    return fields | {"transactional_id": producer.transactional_id}


def _end_on(wire: Wire, producer: TransactionalProducer) -> None:
    producer.wire = wire
    producer.end_and_raise(True)


@on_loop
async def test_the_disk_is_waited_for_before_a_batch_is_appended(tmp_path: Path) -> None:
    """``flush.messages=1`` on the state topic: the partition is in the log for good first."""
    async with quick(tmp_path) as r:
        await r.call(requests.create_topic, "t", partitions=3)
        await r.call(wait_for_coordinator, "x")
        await r.call(requests.alter_config, TRANSACTION_STATE, "flush.messages", "1")

        def live(wire: Wire) -> None:
            producer = TransactionalProducer(wire, "x").init(version=5)
            for number in range(5):
                for partition in range(3):
                    assert (
                        producer.produce("t", [b"%d" % number], partition=partition, version=12)
                        == 0
                    )
                producer.end_and_raise(number != 1)

        await r.call(live)
        await until_state(r, TransactionState.COMPLETE_COMMIT)
        for partition in range(3):
            found = await r.call(committed_values, "t", partition=partition)
            assert found == [b"0", b"2", b"3", b"4"]


@pytest.mark.parametrize("is_commit", [True, False])
@on_loop
async def test_the_raise_outlives_a_broker_that_wrote_no_marker(
    tmp_path: Path, is_commit: bool
) -> None:
    async with quick(tmp_path) as r:
        await r.call(requests.create_topic, "t")
        await r.call(wait_for_coordinator, "x")
        r.broker.transactions.markers.write = lambda *_: None  # type: ignore[method-assign]

        def live(wire: Wire) -> TransactionalProducer:
            producer = TransactionalProducer(wire, "x").init(version=5)
            assert producer.produce("t", [b"v"], version=12) == 0
            producer.end_and_raise(is_commit)
            return producer

        producer = await r.call(live)
    async with quick(tmp_path) as r:
        await until_state(
            r, TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        )

        def again(wire: Wire) -> tuple[int, int, int]:
            producer.wire = wire
            told = producer.try_end_and_raise(is_commit, producer_epoch=0)
            assert producer.produce("t", [b"w"], version=12) == 0
            producer.end_and_raise(True)
            return told

        assert await r.call(again) == (0, producer.producer_id, 1)
        assert await r.call(committed_values, "t") == ([b"v", b"w"] if is_commit else [b"w"])
