"""Append, replay, answer: the way of every change of a coordinator's state.

A request runs against its shard and gives records and a response. The records are appended as one
batch; refused, they have changed nothing, and the request fails. Appended, they are replayed, and
the response is given once the log has committed them: at once, or when the disk has them where the
topic is flushed before it acknowledges. A *read* is answered when everything that it saw is
committed, so nobody is told what a failure could take back.

A shard is loaded before it serves: until then requests are told COORDINATOR_LOAD_IN_PROGRESS. When
its log goes (topic deleted, disk failed, another broker leads) it ends, and everybody who waits is told
NOT_COORDINATOR; so is whoever asks while the leader has no lease.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from broker.clock import Clock
from broker.coordinator.ports import PartitionLog, ShardTimers
from broker.coordinator.result import CoordinatorRecord, CoordinatorResult
from broker.coordinator.timers import Timers
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.transaction_marker import TransactionMarker

logger = logging.getLogger(__name__)

#: What a batch, and each record in it, takes besides keys and values; at most.
BATCH_OVERHEAD_BYTES: Final = 61
RECORD_OVERHEAD_BYTES: Final = 36


class Shard(Protocol):
    """The machine of one partition."""

    def replay(
        self, offset: int, key: bytes, value: bytes | None, producer_id: int = -1
    ) -> None: ...

    def replay_marker(self, producer_id: int, is_commit: bool) -> None: ...

    def on_unloaded(self, error: ErrorCode) -> None: ...


S = TypeVar("S", bound=Shard)
R = TypeVar("R")

Failed = Callable[[ErrorCode], None]


class HostedState(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    ENDED = "ended"


class Hosted(Generic[S]):
    """One shard with its log."""

    __slots__ = ("index", "is_refused", "log", "shard", "state")

    def __init__(self, index: int, shard: S, log: PartitionLog) -> None:
        self.index = index
        self.shard = shard
        self.log = log
        self.state = HostedState.LOADING
        #: The last append was refused: the next refusal is no news.
        self.is_refused = False


class Runtime(Generic[S]):
    """See the module's docstring. Everything on the loop's thread."""

    def __init__(
        self,
        clock: Clock,
        new_shard: Callable[[ShardTimers, PartitionLog], S],
        on_deadline: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._new_shard = new_shard
        #: Told whenever the next timer may run down earlier than it was before.
        self._on_deadline = on_deadline
        self._hosted: dict[int, Hosted[S]] = {}
        self.timers = Timers()

    # -- shards -------------------------------------------------------------------------------

    def begin_loading(self, index: int, log: PartitionLog) -> Hosted[S]:
        """The caller replays the log into ``shard``, then calls ``activate``."""
        assert index not in self._hosted, index
        timers = _TimersOfShard(self, index)
        hosted = self._hosted[index] = Hosted(index, self._new_shard(timers, log), log)
        timers.hosted = hosted
        return hosted

    def activate(self, hosted: Hosted[S]) -> None:
        if hosted.state is HostedState.LOADING:
            hosted.state = HostedState.ACTIVE

    def end(self, index: int, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Its log is gone. Without effect where there is no such shard."""
        hosted = self._hosted.pop(index, None)
        if hosted is None:
            return
        hosted.state = HostedState.ENDED
        hosted.shard.on_unloaded(error)
        self.timers.cancel_where(lambda key: isinstance(key, tuple) and key[0] == index)

    def hosted(self, index: int) -> Hosted[S] | None:
        return self._hosted.get(index)

    def all_hosted(self) -> list[Hosted[S]]:
        return [hosted for _, hosted in sorted(self._hosted.items())]

    def active_or_raise(self, index: int) -> Hosted[S]:
        hosted = self._hosted.get(index)
        if hosted is None or not hosted.log.may_answer:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if hosted.state is HostedState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return hosted

    # -- requests -----------------------------------------------------------------------------

    def write(
        self,
        index: int,
        operation: Callable[[S], CoordinatorResult[R]],
        done: Callable[[R], None],
        failed: Failed,
    ) -> None:
        """Run a request that may change something. Either callback comes once."""
        try:
            hosted = self.active_or_raise(index)
            result = operation(hosted.shard)
        except KafkaError as error:
            failed(error.code)
            return
        self._perform(hosted, result, done, failed)

    def read(
        self,
        index: int,
        operation: Callable[[S], R],
        done: Callable[[R], None],
        failed: Failed,
    ) -> None:
        """Look at the shard now, and tell once all of that is committed."""
        try:
            hosted = self.active_or_raise(index)
            response = operation(hosted.shard)
        except KafkaError as error:
            failed(error.code)
            return

        def committed(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                done(response)
            else:
                failed(coordinator_error(error))

        hosted.log.when_committed(committed)

    def write_marker(
        self, index: int, marker: TransactionMarker, done: Callable[[ErrorCode], None]
    ) -> None:
        """A producer's transaction on this partition has ended: append that, show it to the shard.

        Not before the shard is loaded, since a marker decides about what came before it.
        """
        try:
            hosted = self.active_or_raise(index)
            hosted.log.append_marker(marker)
        except KafkaError as error:
            done(error.code)
            return
        hosted.shard.replay_marker(marker.producer_id, marker.is_commit)
        hosted.log.when_committed(done)

    def perform(self, hosted: Hosted[S], operation: Callable[[S], CoordinatorResult[None]]) -> None:
        """Run something that nobody waits for."""
        if hosted.state is HostedState.ACTIVE:
            self._perform(hosted, operation(hosted.shard), _ignore, _ignore)

    def _perform(
        self,
        hosted: Hosted[S],
        result: CoordinatorResult[R],
        done: Callable[[R], None],
        failed: Failed,
    ) -> None:
        if not result.records:
            if result.on_written is not None:
                self._tell_machine(hosted, result, ErrorCode.NONE)
            done(result.response)
            return
        try:
            producer_id = -1 if result.producer is None else result.producer.producer_id
            for batch in _batches(result, hosted.log.max_batch_bytes):
                first_offset = hosted.log.append(batch, result.producer)
                if result.is_replayed:
                    for number, (key, value) in enumerate(batch):
                        hosted.shard.replay(first_offset + number, key, value, producer_id)
            hosted.is_refused = False
        except KafkaError as error:
            code = coordinator_error(error.code)
            if not hosted.is_refused:
                hosted.is_refused = True
                logger.warning("records of coordinator %d are refused: %s", hosted.index, error)
            self._tell_machine(hosted, result, code)
            failed(code)
            return

        def committed(error: ErrorCode) -> None:
            code = coordinator_error(error)
            self._tell_machine(hosted, result, code)
            if code is ErrorCode.NONE:
                done(result.response)
            else:
                failed(code)

        hosted.log.when_committed(committed)

    def _tell_machine(
        self, hosted: Hosted[S], result: CoordinatorResult[R], code: ErrorCode
    ) -> None:
        if result.on_written is None or hosted.state is not HostedState.ACTIVE:
            return
        further = result.on_written(code)
        if further is not None:
            self._perform(hosted, further, _ignore, _ignore)

    # -- time ---------------------------------------------------------------------------------

    def set_timer(
        self,
        hosted: Hosted[S],
        key: Hashable,
        delay_ms: int,
        operation: Callable[[], CoordinatorResult[None]],
    ) -> None:
        before = self.timers.next_deadline_ms
        deadline_ms = self._clock.monotonic_ms() + max(delay_ms, 0)
        self.timers.set((hosted.index, key), deadline_ms, partial(self._fire, hosted, operation))
        if before is None or deadline_ms < before:
            self._on_deadline()

    def _fire(
        self, hosted: Hosted[S], operation: Callable[[], CoordinatorResult[None]], _now_ms: int
    ) -> None:
        self.perform(hosted, lambda _: operation())


class _TimersOfShard(Generic[S]):
    """``ShardTimers`` of one shard, in the runtime's one heap."""

    def __init__(self, runtime: Runtime[S], index: int) -> None:
        self._runtime = runtime
        self._index = index
        self.hosted: Hosted[S]

    def perform(self, operation: Callable[[], CoordinatorResult[None]]) -> None:
        self._runtime.perform(self.hosted, lambda _: operation())

    def set(
        self, key: Hashable, delay_ms: int, operation: Callable[[], CoordinatorResult[None]]
    ) -> None:
        self._runtime.set_timer(self.hosted, key, delay_ms, operation)

    def cancel(self, key: Hashable) -> None:
        self._runtime.timers.cancel((self._index, key))

    def is_set(self, key: Hashable) -> bool:
        return (self._index, key) in self._runtime.timers


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """What a client of the coordinator is told when its log answers ``error``."""
    return _TOLD_AS.get(error, error)


_TOLD_AS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def _batches(
    result: CoordinatorResult[R], max_batch_bytes: int
) -> Iterator[Sequence[CoordinatorRecord]]:
    records = result.records
    if not result.may_be_split:
        yield records
        return
    size = start = 0
    room = max_batch_bytes - BATCH_OVERHEAD_BYTES
    for number, (key, value) in enumerate(records):
        record_size = RECORD_OVERHEAD_BYTES + len(key) + len(value or b"")
        if number > start and size + record_size > room:
            yield records[start:number]
            start, size = number, 0
        size += record_size
    yield records[start:]


def _ignore(_: object) -> None:
    pass
