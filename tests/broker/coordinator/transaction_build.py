"""A transaction coordinator over a log in memory, with time, disk and partitions moved by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from broker.config.broker_config import resolve_broker_config
from broker.coordinator.transaction.coordinator import TransactionCoordinator
from broker.coordinator.transaction.records import read_transaction
from broker.coordinator.transaction.requests import (
    DescribedTransaction,
    EndAnswer,
    InitAnswer,
    InitRequest,
    MarkersDone,
    ProducerOfTransaction,
)
from broker.coordinator.transaction.transaction import RAISES_EPOCH
from broker.model.error_code import ErrorCode
from broker.model.ids import TopicPartition
from broker.model.transaction_marker import TransactionMarker
from tests.broker.coordinator.build import MemoryLog, advance
from tests.support.by_hand import ManualScheduler

NONE = ErrorCode.NONE
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_MS = 60_000


class Partitions:
    """Takes markers at once, or (``holds``) when the test says so; refuses what ``refusals`` says."""

    def __init__(self) -> None:
        self.written: list[tuple[TransactionMarker, TopicPartition]] = []
        self.refusals: dict[TopicPartition, ErrorCode] = {}
        self.holds = False
        self._waiting: list[Callable[[], None]] = []

    def write(
        self, marker: TransactionMarker, partitions: Sequence[TopicPartition], done: MarkersDone
    ) -> None:
        results = {}
        for each in partitions:
            results[each] = self.refusals.get(each, NONE)
            if results[each] is NONE:
                self.written.append((marker, each))
        if self.holds:
            self._waiting.append(lambda: done(results))
        else:
            done(results)

    def release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each()


class TransactionWorld:
    def __init__(self, **settings: str) -> None:
        self.clock = ManualScheduler()
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.config = resolve_broker_config({"log.dirs": "/tmp/unused", **given})
        self.log = MemoryLog()
        self.partitions = Partitions()
        self._ids = itertools.count(1000)
        #: Producer ids are refused with this.
        self.id_refusal: ErrorCode | None = None
        self.coordinator = self._start()

    def _take_id(self, taken: Callable[[int], None], failed: Callable[[ErrorCode], None]) -> None:
        if self.id_refusal is not None:
            failed(self.id_refusal)
        else:
            taken(next(self._ids))

    def _start(self) -> TransactionCoordinator:
        coordinator = TransactionCoordinator(
            self.clock,
            lambda: self.config,
            self.partitions,
            self._take_id,
            lambda: 1,
            lambda: None,
        )
        runtime = coordinator.runtime
        hosted = runtime.begin_loading(0, self.log)
        self.log.replay_into(hosted.shard)
        runtime.activate(hosted)
        for transactional_id in list(hosted.shard.entries):
            runtime.perform(hosted, lambda shard, t=transactional_id: shard.on_loaded(t))
        return coordinator

    def crash(self) -> None:
        """The process ends, at once; another one reads the log, under the next leader epoch."""
        self.partitions.release = lambda: None  # type: ignore[method-assign]
        written, refusals = self.partitions.written, self.partitions.refusals
        self.partitions = Partitions()
        self.partitions.written, self.partitions.refusals = written, refusals
        self.log.holds = False
        self.log.leader_epoch += 1
        self.coordinator = self._start()

    def advance(self, ms: int) -> None:
        advance(self.clock, self.coordinator.runtime.timers, ms)

    def expire(self) -> None:
        for hosted in self.coordinator.runtime.all_hosted():
            for transactional_id in list(hosted.shard.entries):
                self.coordinator.runtime.perform(
                    hosted, lambda shard, t=transactional_id: shard.expire(t)
                )

    @property
    def states(self) -> list[str]:
        """Of all records in the log, in order; a dash for a tombstone."""
        return [
            "-" if value is None else read_transaction(value).state.wire_name
            for _, value in self.log.records
        ]

    def state(self, transactional_id: str = "a") -> str:
        return self.describe(transactional_id).state

    def describe(self, transactional_id: str = "a") -> DescribedTransaction:
        return self.coordinator.describe(transactional_id)

    def producer(self, transactional_id: str = "a", timeout_ms: int = TIMEOUT_MS) -> Client:
        return Client(self, transactional_id, timeout_ms)


class Client:
    """A producer in the small: what it was told last, and what it was given."""

    def __init__(self, world: TransactionWorld, transactional_id: str, timeout_ms: int) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        #: Answers that are still owed when a request returns come in here.
        self.answers: list[ErrorCode] = []

    @property
    def name(self) -> ProducerOfTransaction:
        return ProducerOfTransaction(self.transactional_id, self.producer_id, self.epoch)

    def init(self, names_itself: bool = False) -> ErrorCode | None:
        """None: no answer yet."""
        self.answers = []
        request = InitRequest(self.transactional_id, self.timeout_ms)
        if names_itself:
            request = request._replace(producer_id=self.producer_id, producer_epoch=self.epoch)
        self.world.coordinator.init(request, self._on_name)
        return self._last()

    def _on_name(self, answer: InitAnswer | EndAnswer) -> None:
        self.answers.append(answer.error)
        if answer.error is NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        else:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)

    def add(self, *partitions: TopicPartition) -> ErrorCode | None:
        self.answers = []
        self.world.coordinator.add_partitions(self.name, partitions, self.answers.append)
        return self._last()

    def end(self, is_commit: bool) -> ErrorCode | None:
        self.answers = []
        self.world.coordinator.end(self.name, is_commit, self.answers.append)
        return self._last()

    def add_by_batch(self, *partitions: TopicPartition) -> ErrorCode | None:
        """As ``transaction.version`` 2 does."""
        self.answers = []
        self.world.coordinator.add_partitions(
            self.name, partitions, self.answers.append, RAISES_EPOCH
        )
        return self._last()

    def end_and_raise(self, is_commit: bool) -> ErrorCode | None:
        self.answers = []
        self.world.coordinator.end_and_raise(self.name, is_commit, self._on_name)
        return self._last()

    def at(self, producer_id: int, epoch: int) -> Client:
        """The same producer, under another name."""
        other = Client(self.world, self.transactional_id, self.timeout_ms)
        other.producer_id, other.epoch = producer_id, epoch
        return other

    def commit(self) -> ErrorCode | None:
        return self.end(True)

    def abort(self) -> ErrorCode | None:
        return self.end(False)

    def _last(self) -> ErrorCode | None:
        assert len(self.answers) <= 1, "answered twice"
        return self.answers[0] if self.answers else None


class Stages:
    """Producers brought to each state, by the protocol that ``add`` and ``end`` speak."""

    def __init__(
        self,
        add: Callable[..., ErrorCode | None],
        end: Callable[[Client, bool], ErrorCode | None],
    ) -> None:
        self._add = add
        self._end = end

    def empty(self, world: TransactionWorld) -> Client:
        client = world.producer()
        assert client.init() is NONE
        return client

    def ongoing(self, world: TransactionWorld) -> Client:
        client = self.empty(world)
        assert self._add(client, T0, T1) is NONE
        return client

    def preparing(self, is_commit: bool) -> Callable[[TransactionWorld], Client]:
        def prepare(world: TransactionWorld) -> Client:
            client = self.ongoing(world)
            world.partitions.holds = True
            assert self._end(client, is_commit) is NONE
            return client

        return prepare

    def complete(self, is_commit: bool) -> Callable[[TransactionWorld], Client]:
        def end(world: TransactionWorld) -> Client:
            client = self.ongoing(world)
            assert self._end(client, is_commit) is NONE
            return client

        return end
