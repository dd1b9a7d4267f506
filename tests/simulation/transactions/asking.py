"""What transactional clients have in common: they ask one thing after the other and repeat it until they know the
answer; what they cannot repeat ends them, and the next one takes over under their transactional id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from broker.coordinator.transaction.requests import (
    EndAnswer,
    InitAnswer,
    InitRequest,
    ProducerOfTransaction,
)
from broker.coordinator.transaction.transaction import CLASSIC
from broker.model.error_code import ErrorCode
from broker.model.ids import TopicPartition
from broker.model.internal_topics import TRANSACTION_STATE
from broker.records.builder import build_batch
from broker.records.record import Record
from tests.simulation.clients import Metadata
from tests.simulation.transactions.coordination import EXPIRATION_MS, TransactingProcess
from tests.simulation.transactions.ledger import Name, Transfer

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
    """Of a transactional id: starts its clients."""

    def __init__(
        self, story: TransactionStory, name: str, new: type[TransactionalClient], ending_ms: int
    ) -> None:
        self._story = story
        self.name = name
        self._new = new
        self._ending_ms = ending_ms
        self.is_raising = story.world.rng.random() < 0.5
        self.timeout_ms = story.world.rng.choice(TIMEOUTS_MS)
        self.count = 0
        self.current: TransactionalClient | None = None
        story.tasks.spawn(self._run(), f"owner of {name}")

    @property
    def is_ending(self) -> bool:
        """Nobody begins a transaction any more."""
        return self._story.world.now_ms >= self._ending_ms

    @property
    def is_always_busy(self) -> bool:
        """Whether it commits something whenever it can."""
        return self._new.is_always_busy

    async def _run(self) -> None:
        world, story = self._story.world, self._story
        await asyncio.sleep(0.2)
        while not self.is_ending:
            self.count += 1
            client = self.current = self._new(story, self, self.count)
            story.tasks.spawn(client.run(), f"client {self.name}.{self.count}")
            life_ms = 1 << 30 if story.is_healed else world.rng.randrange(800, 6000)
            end_ms = world.now_ms + life_ms
            while client.is_alive and world.now_ms < end_ms and not story.is_healed:
                await asyncio.sleep(0.1)
            while client.is_alive and story.is_healed:
                await asyncio.sleep(0.1)
            if world.rng.random() < 0.5:
                client.is_killed = True  # the others go on as zombies
            if world.rng.random() < 0.1 and not story.is_healed:
                await story.idle()


class TransactionalClient:
    is_always_busy = True

    def __init__(self, story: TransactionStory, owner: Owner, number: int) -> None:
        self._story = story
        self._owner = owner
        self.number = number
        self.is_alive = True
        self.is_killed = False
        self._metadata = {topic: Metadata(story, topic) for topic in story.topics}
        self._producer_id = self._producer_epoch = -1
        self._first_name = Name(-1, -1)
        self._sequences: dict[str, int] = {}
        #: When a topic last acknowledged a batch.
        self._written_ms: dict[str, int] = {}

    async def run(self) -> None:
        try:
            await self._init()
            await self._work()
        except Fenced as fenced:
            self._story.world.tell(f"{self} ends: {fenced}")
        self.is_alive = False

    async def _work(self) -> None:
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self._owner.name}.{self.number}"

    async def _ask(
        self, topic: str, serve: Serve[T], timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> T | None:
        """Whoever leads the topic's partition, as far as is known; None: no answer in time."""
        if self.is_killed:
            raise Fenced("killed")
        future: asyncio.Future[T | None] = self._story.loop.create_future()
        leader_id = self._metadata[topic].refresh()
        self._story.client_request(leader_id, serve, future.set_result, timeout_ms)
        answer = await future
        if self.is_killed:
            raise Fenced("killed")
        return answer

    async def _until_known(
        self, topic: str, serve: Serve[ErrorCode], what: str, written: str = ""
    ) -> None:
        """Until it is done, or cannot be."""
        while (error := await self._ask(topic, serve)) is not ErrorCode.NONE:
            if error in _LOST and self._is_forgotten(written):
                raise Fenced(f"{error!r} at {what} to {written}, which has forgotten it")
            await self._pause_or_end(error, what)

    def _is_forgotten(self, topic: str) -> bool:
        """A marker that comes (again) for a producer whose sequence is forgotten makes it known without one: then it
        has to begin at 0, as in Kafka."""
        written_ms = self._written_ms.get(topic, -EXPIRATION_MS)
        return self._story.world.now_ms - written_ms >= EXPIRATION_MS or self._story.has_stepped

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
        self._sequences.clear()
        self._first_name = Name(self._producer_id, self._producer_epoch)
        self._story.checker.on_initialised(self._owner.name, self.number, self._first_name)

    # A transaction -----------------------------------------------------------------------------

    @property
    def is_classic(self) -> bool:
        return not self._owner.is_raising

    def _new_transfer(self, number: int, counts: dict[str, int]) -> Transfer:
        now_ms = self._story.world.now_ms
        transfer = Transfer(self._owner.name, self.number, number, counts, now_ms, self._first_name)
        self._story.checker.on_begun(transfer)
        return transfer

    async def _write(self, transfer: Transfer, topic: str, values: Sequence[bytes]) -> None:
        checker = self._story.checker
        batch = self._batch(topic, values)
        was_zombie = checker.is_zombie(transfer)
        await self._until_known(topic, self._produce(topic, batch), "produce", topic)
        self._written_ms[topic] = self._story.world.now_ms
        if was_zombie:
            checker.fail(f"T2: {transfer} is a zombie's, and a write of it was acknowledged")

    async def _finish(self, transfer: Transfer, is_commit: bool) -> None:
        checker = self._story.checker
        transfer.is_commit_asked = is_commit
        checker.on_end_asked(transfer)
        if self.is_classic:
            await self._until_known(TRANSACTION_STATE, self._end(is_commit), "end")
        else:
            await self._end_and_raise(is_commit)
        checker.on_ended(transfer, is_commit)

    def _add(self, topics: Sequence[str]) -> Serve[ErrorCode]:
        partitions = [TopicPartition(topic, 0) for topic in topics]
        name = self._name

        def serve(to: TransactingProcess, answer: Callable[[ErrorCode], None]) -> None:
            to.face.transactions.coordinator.add_partitions(name, partitions, answer, CLASSIC)

        return serve

    def _batch(self, topic: str, values: Sequence[bytes]) -> bytes:
        sequence = self._sequences.get(topic, 0)
        self._sequences[topic] = sequence + len(values)
        return bytes(
            build_batch(
                [
                    Record(index, 1_700_000_000_000, None, value)
                    for index, value in enumerate(values)
                ],
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
