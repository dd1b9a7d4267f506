"""Transactional producers, which are replaced and go on as zombies, and readers of committed records.

A producer asks one thing after the other and repeats it until it knows the answer; what it cannot repeat
ends it, and the next one takes over under its transactional id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from broker.coordinator.transaction.requests import (
    EndAnswer,
    InitAnswer,
    InitRequest,
    ProducerOfTransaction,
)
from broker.coordinator.transaction.transaction import CLASSIC
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicPartition
from broker.model.internal_topics import TRANSACTION_STATE
from broker.records.builder import build_batch
from broker.records.record import Record
from broker.storage.cold import ColdRead
from tests.simulation.broker import Process
from tests.simulation.clients import Metadata
from tests.simulation.transactions.coordination import TransactingProcess
from tests.simulation.transactions.ledger import Transfer

if TYPE_CHECKING:
    from tests.simulation.transactions.story import TransactionStory

T = TypeVar("T")
#: What a broker does with a request: ``serve(process, answer)``.
Serve = Callable[[Any, Callable[[T], None]], None]

#: Longer than any lease: what was asked before and is served later is refused.
REQUEST_TIMEOUT_MS = 1500
PAUSE_MS = 40
TIMEOUTS_MS = (1500, 3000)
_AGAIN = frozenset(
    {
        None,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_LOST = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class Fenced(Exception):
    """Its time is over; the next one may go on."""


class Owner:
    """Of a transactional id: starts its producers."""

    def __init__(self, story: TransactionStory, name: str) -> None:
        self._story = story
        self.name = name
        self.is_raising = story.world.rng.random() < 0.5
        self.timeout_ms = story.world.rng.choice(TIMEOUTS_MS)
        self.count = 0
        self.current: TransactionalProducer | None = None
        story.tasks.spawn(self._run(), f"owner of {name}")

    async def _run(self) -> None:
        world = self._story.world
        await asyncio.sleep(0.2)
        while not self._story.is_ending:
            self.count += 1
            producer = self.current = TransactionalProducer(self._story, self, self.count)
            self._story.tasks.spawn(producer.run(), f"producer {self.name}.{self.count}")
            life_ms = 1 << 30 if self._story.is_healed else world.rng.randrange(800, 6000)
            end_ms = world.now_ms + life_ms
            while producer.is_alive and world.now_ms < end_ms and not self._story.is_healed:
                await asyncio.sleep(0.1)
            while producer.is_alive and self._story.is_healed:
                await asyncio.sleep(0.1)
            if world.rng.random() < 0.5:
                producer.is_killed = True  # the others go on as zombies


class TransactionalProducer:
    def __init__(self, story: TransactionStory, owner: Owner, number: int) -> None:
        self._story = story
        self._owner = owner
        self.number = number
        self.is_alive = True
        self.is_killed = False
        self._metadata = {topic: Metadata(story, topic) for topic in story.topics}
        self._producer_id = self._producer_epoch = self._first_epoch = -1
        self._sequences: dict[str, int] = {}

    async def run(self) -> None:
        try:
            await self._init()
            transfers = 0
            while not self._story.is_ending:
                transfers += 1
                await self._transfer(transfers)
                await asyncio.sleep(self._story.world.rng.randrange(1, 120) / 1000)
        except Fenced as fenced:
            self._story.world.tell(f"{self} ends: {fenced}")
        self.is_alive = False

    def __str__(self) -> str:
        return f"{self._owner.name}.{self.number}"

    async def _ask(self, topic: str, serve: Serve[T]) -> T | None:
        """Whoever leads the topic's partition, as far as is known; None: no answer in time."""
        if self.is_killed:
            raise Fenced("killed")
        future: asyncio.Future[T | None] = self._story.loop.create_future()
        leader_id = self._metadata[topic].refresh()
        self._story.client_request(leader_id, serve, future.set_result, REQUEST_TIMEOUT_MS)
        answer = await future
        if self.is_killed:
            raise Fenced("killed")
        return answer

    async def _until_known(self, topic: str, serve: Serve[ErrorCode], what: str) -> None:
        """Until it is done, or cannot be."""
        while (error := await self._ask(topic, serve)) is not ErrorCode.NONE:
            await self._pause_or_end(error, what)

    async def _take_name(self, serve: Serve[InitAnswer] | Serve[EndAnswer], what: str) -> None:
        """Id and epoch that the coordinator gives from here on."""
        while True:
            answer: InitAnswer | EndAnswer | None = await self._ask(TRANSACTION_STATE, serve)
            if answer is not None and answer.error is ErrorCode.NONE:
                break
            await self._pause_or_end(None if answer is None else answer.error, what)
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch

    async def _pause_or_end(self, error: ErrorCode | None, what: str) -> None:
        if error in _LOST:
            assert error is not None
            self._story.checker.fail(f"I1: {error.name} at {what} of {self}")
        if error not in _AGAIN:
            raise Fenced(f"{error!r} at {what}")
        await asyncio.sleep(PAUSE_MS / 1000)

    @property
    def _name(self) -> ProducerOfTransaction:
        return ProducerOfTransaction(self._owner.name, self._producer_id, self._producer_epoch)

    async def _init(self) -> None:
        request = InitRequest(self._owner.name, self._owner.timeout_ms)

        def serve(to: TransactingProcess, answer: Callable[[InitAnswer], None]) -> None:
            to.face.transactions.coordinator.init(request, answer)

        await self._take_name(serve, "init")
        self._first_epoch = self._producer_epoch
        self._story.checker.on_initialised(self._owner.name, self.number, self._first_epoch)

    # A transaction -----------------------------------------------------------------------------

    async def _transfer(self, number: int) -> None:
        rng = self._story.world.rng
        topics = (
            self._story.topics[1:] if rng.random() < 0.8 else (rng.choice(self._story.topics[1:]),)
        )
        counts = {topic: rng.choice((1, 1, 2, 3)) for topic in topics}
        transfer = Transfer(
            self._owner.name,
            self.number,
            number,
            counts,
            self._story.world.now_ms,
            self._first_epoch,
        )
        checker = self._story.checker
        checker.on_begun(transfer)
        is_classic = not self._owner.is_raising
        if is_classic:
            await self._until_known(TRANSACTION_STATE, self._add(topics), "add")
        for topic in sorted(counts, key=lambda _: rng.random()):
            for part in range(counts[topic]):
                batch = self._batch(topic, transfer.value(part))
                was_zombie = checker.is_zombie(transfer)
                await self._until_known(topic, self._produce(topic, batch), "produce")
                if was_zombie:
                    checker.fail(
                        f"T2: {transfer} is a zombie's, and a write of it was acknowledged"
                    )
            if rng.random() < 0.1:
                await asyncio.sleep(rng.randrange(20, 2500) / 1000)
        is_commit = rng.random() < 0.8
        transfer.is_commit_asked = is_commit
        checker.on_end_asked(transfer)
        if is_classic:
            await self._until_known(TRANSACTION_STATE, self._end(is_commit), "end")
        else:
            await self._end_and_raise(is_commit)
        checker.on_ended(transfer, is_commit)

    def _add(self, topics: tuple[str, ...]) -> Serve[ErrorCode]:
        partitions = [TopicPartition(topic, 0) for topic in topics]
        name = self._name

        def serve(to: TransactingProcess, answer: Callable[[ErrorCode], None]) -> None:
            to.face.transactions.coordinator.add_partitions(name, partitions, answer, CLASSIC)

        return serve

    def _batch(self, topic: str, value: bytes) -> bytes:
        sequence = self._sequences.get(topic, 0)
        self._sequences[topic] = sequence + 1
        return bytes(
            build_batch(
                [Record(0, 1_700_000_000_000, None, value)],
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
        )

    def _produce(self, topic: str, batch: bytes) -> Serve[ErrorCode]:
        def serve(to: TransactingProcess, answer: Callable[[ErrorCode], None]) -> None:
            to.serve_produce(topic, self._owner.name, batch, self._owner.is_raising, answer)

        return serve

    def _end(self, is_commit: bool) -> Serve[ErrorCode]:
        name = self._name

        def serve(to: TransactingProcess, answer: Callable[[ErrorCode], None]) -> None:
            to.face.transactions.coordinator.end(name, is_commit, answer)

        return serve

    async def _end_and_raise(self, is_commit: bool) -> None:
        name = self._name

        def serve(to: TransactingProcess, answer: Callable[[EndAnswer], None]) -> None:
            to.face.transactions.coordinator.end_and_raise(name, is_commit, answer)

        await self._take_name(serve, "end")
        self._sequences.clear()


class ReadAnswer(NamedTuple):
    leader_epoch: int
    high_watermark: int
    last_stable_offset: int
    #: From the reader's place on, up to the high watermark.
    data: bytes
    #: From the place of what it takes as committed, up to the last stable offset.
    stable_data: bytes
    aborted: list[tuple[int, int]]


class Reader:
    """Reads a topic twice: all of it, and what is committed, as a client filters that."""

    def __init__(self, story: TransactionStory, topic: str) -> None:
        self._story = story
        self._topic = topic
        self._metadata = Metadata(story, topic)
        story.world.call_later(250, self._read)

    def _read(self) -> None:
        partition = self._story.checker.partitions[self._topic]
        offset, stable_offset = partition.consumer_offset, partition.stable_offset

        def serve(to: Process, answer: Callable[[ReadAnswer | None], None]) -> None:
            assert isinstance(to, TransactingProcess)
            answer(_read(to, self._topic, offset, stable_offset))

        self._story.client_request(self._metadata.refresh(), serve, self._ended, timeout_ms=500)

    def _ended(self, answer: ReadAnswer | None) -> None:
        if answer is not None and answer.leader_epoch >= self._metadata.leader_epoch:
            self._metadata.leader_epoch = answer.leader_epoch
            self._story.checker.partitions[self._topic].on_answer(answer)
        self._story.world.call_later(120, self._read)


def _read(
    process: TransactingProcess, topic: str, offset: int, stable_offset: int
) -> ReadAnswer | None:
    hosted = process.partitions[topic]
    partition = hosted.current
    if partition is None:
        return None
    try:
        end = partition.readable_end(is_read_committed=False)
        stable_end = partition.readable_end(is_read_committed=True)
    except KafkaError:
        return None
    data = hosted.read(offset, end) if offset < end else b""
    stable = hosted.read(stable_offset, stable_end) if stable_offset < stable_end else b""
    aborted = partition.log.aborted_transactions(stable_offset, stable_end)
    while isinstance(aborted, ColdRead):
        aborted.pull()
        aborted = partition.log.aborted_transactions(stable_offset, stable_end)
    return ReadAnswer(partition.leader_epoch, end, stable_end, data, stable, aborted)
