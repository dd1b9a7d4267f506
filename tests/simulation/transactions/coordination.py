"""Transactions in a simulated broker: the server's own modules, on a simulated loop, over simulated partitions.

``BrokerFace`` is what these modules reach the rest of a broker by. Real are coordinator, markers, questions
between brokers, verification, loading and ``ReplicatedPartition``; simulated are connections, threads, time.
"""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

from broker.config.broker_config import BrokerConfig, resolve_broker_config
from broker.coordinator.group.coordinator import GroupCoordinator
from broker.coordinator.group.requests import CommitRequest
from broker.coordinator.result import Producer
from broker.coordinator.transaction.requests import ProducerOfTransaction
from broker.metadata.image import ClusterImage
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.file_region import FileRegion
from broker.model.ids import BrokerId, TopicPartition
from broker.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.records.header import BatchHeader, peek_header
from broker.records.produce_rules import ProduceRules
from broker.replication.delayed import DelayedProduce
from broker.replication.replicated_partition import ReplicatedPartition
from broker.replication.traffic import BrokerTraffic, TopicTraffic
from broker.server import coordination, coordinator_host
from broker.server.app import LoopScheduler
from broker.server.cluster import transactions as cluster_transactions
from broker.server.cluster.peer import PeerError
from broker.server.cluster.private_wire import PrivateKey
from broker.server.cluster.transactions import ClusterTransactions
from broker.server.coordination import Coordination
from broker.server.coordinator_log import LoadingLog
from broker.server.tasks import Turn
from broker.server.transactions import Transactions
from broker.storage.append_info import AppendInfo
from broker.storage.cleaning.cleaner import clean
from broker.storage.cleaning.job import RoundResult
from tests.simulation.broker import Process, Types
from tests.simulation.partition import HostedPartition
from tests.simulation.transactions.cleaning import clean_log
from tests.simulation.transactions.loop import Tasks, WorldLoop

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from tests.simulation.transactions.story import TransactionStory

T = TypeVar("T")
Done = Callable[[ErrorCode], None]

SECOND_MS = 1000
#: Of transactional ids that nobody uses, and of producers in partitions.
EXPIRATION_MS = 5000
CLEANING_CHANCE = 0.3
#: In proportion to the world's: how long a request of a broker waits for markers to be committed.
COMMIT_SECONDS = 0.25
PRODUCE_TIMEOUT_MS = 1000


class SimulatedLoading(LoadingLog):
    async def _read(self, region: FileRegion) -> bytes:
        read = partial(region.file.pread, region.length, region.position)  # type: ignore[attr-defined]
        return bytes(await self._broker.threads.call(read))


@contextlib.contextmanager
def in_simulated_time(rng: random.Random) -> Iterator[None]:
    """What the server's modules measure, wait for or throw dice for by themselves follows the world."""

    def new_id() -> uuid.UUID:
        return uuid.UUID(int=rng.getrandbits(128))

    with (
        mock.patch.object(coordination, "uuid", SimpleNamespace(uuid4=new_id)),
        mock.patch.object(Turn, "is_over", False),
        mock.patch.object(coordinator_host, "LoadingLog", SimulatedLoading),
        mock.patch.object(cluster_transactions, "COMMIT_SECONDS", COMMIT_SECONDS),
    ):
        yield


@lru_cache
def config_of(broker_id: BrokerId) -> BrokerConfig:
    return resolve_broker_config(
        {
            "node.id": str(broker_id),
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "500",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
            "transactional.id.expiration.ms": str(EXPIRATION_MS),
        }
    )


class CoordinatedPartition(HostedPartition):
    """With the server's object for it, while this broker leads: of one leader epoch."""

    current: ReplicatedPartition | None = None

    def _on_role(self) -> None:
        super()._on_role()
        gone, self.current = self.current, None
        leader, log = self.leader, self.log
        if leader is not None and log is not None:
            self.cluster.faults.on_leader(self)  # type: ignore[attr-defined]
            self.current = ReplicatedPartition(
                self.topic_partition,
                self.cluster.topic_ids[self.topic],
                log,
                leader,
                ProduceRules.for_topic(self.cluster.config_of(self.topic)),
                TopicTraffic(BrokerTraffic()),
                self.clock.monotonic_ms,
                lambda _: None,
            )
        if gone is not None:
            gone.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _after_change(self) -> None:
        super()._after_change()
        if self.current is not None:
            self.current.settle()

    def append(self, batch: memoryview | bytearray, header: BatchHeader, now_ms: int) -> AppendInfo:
        assert self.current is not None
        info = self.current.append(batch, header, now_ms)
        if self.topic == TRANSACTION_STATE:
            self.cluster.faults.on_coordinator_append(self, bytes(batch))  # type: ignore[attr-defined]
        self._finish_append(info)
        self._after_change()
        return info


class TransactionTypes(Types):
    partition = CoordinatedPartition
    transactions: type[Transactions] = Transactions
    coordination: type[Coordination] = Coordination
    clean: Callable[..., RoundResult] = staticmethod(clean)


class TransactingProcess(Process):
    cluster: TransactionStory
    types: type[TransactionTypes]
    partitions: dict[str, CoordinatedPartition]  # type: ignore[assignment]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.face = BrokerFace(self)
        self.schedule.call_later(SECOND_MS, self._each_second)

    def end(self) -> None:
        super().end()
        self.face.tasks.drop()

    def _on_image(self) -> None:
        super()._on_image()
        if self.registration.was_answered:
            self.face.transactions.on_repaired()
            self.face.coordination.on_repaired()

    # Time --------------------------------------------------------------------------------------

    def _each_second(self) -> None:
        """As ``maintenance.py``; now and then as its compaction, which dies with the broker here."""
        self.schedule.call_later(SECOND_MS, self._each_second)
        now_ms = self.clock.monotonic_ms()
        self.face.transactions.tick(now_ms)
        self.face.coordination.tick(now_ms)
        for log in self.logs.logs.values():
            log.expire_producers(self.clock.wall_ms())
        for topic_partition, log in self.logs.logs.items():
            if log.config.is_compacted and self.world.rng.random() < CLEANING_CHANCE:
                checker = self.cluster.checker.followed[topic_partition.topic]
                clean = partial(clean_log, self, log, self.cluster.faults.on_cleaning())
                if not checker.clean(self.partitions[topic_partition.topic], clean):
                    self.cluster.faults.on_death(self.broker_id)
                    return

    # Requests of producers ---------------------------------------------------------------------

    def serve_produce(
        self, topic: str, transactional_id: str, batch: bytes, adds: bool, done: Done
    ) -> None:
        """As ``handlers/produce.py`` does, with acks=all; ``adds``: as from version 12 on."""
        face, header = self.face, peek_header(batch)
        try:
            partition = face.replicas.find(topic, 0)
            if face.transactions.has_begun(partition, header):
                self._append(topic, batch, header, done)
                return
        except KafkaError as error:
            done(error.code)
            return
        producer = ProducerOfTransaction(
            transactional_id, header.producer_id, header.producer_epoch
        )

        def held(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                done(code)
                return
            try:
                self._append(topic, batch, header, done)
            except KafkaError as error:
                done(error.code)

        face.transactions.hold(producer, partition.topic_partition, adds, held)

    def _append(self, topic: str, batch: bytes, header: BatchHeader, done: Done) -> None:
        """Raises ``KafkaError``."""
        partition = self.face.replicas.find(topic, 0)
        partition.check_append(is_acks_all=True)
        info = self.partitions[topic].append(bytearray(batch), header, self.clock.wall_ms())
        if partition.high_watermark > info.last_offset:
            done(ErrorCode.NONE)
            return
        DelayedProduce(
            {partition: info.last_offset + 1},
            PRODUCE_TIMEOUT_MS,
            self.face.scheduler,
            lambda failed: done(failed.get(partition, ErrorCode.NONE)),
        )

    # Of other brokers --------------------------------------------------------------------------

    def serve_private(
        self, key: PrivateKey, body: Any, answer: Callable[[dict[str, Any] | None], None]
    ) -> None:
        transactions = self.face.cluster.transactions
        serve = (
            transactions.begin_writing
            if key is PrivateKey.WRITE_MARKERS
            else transactions.begin_answering
        )
        try:
            serve(body, answer)
        except (ValueError, KeyError, TypeError):
            answer(None)  # the connection is closed


TransactionTypes.process = TransactingProcess


class BrokerFace:
    """See the module's docstring."""

    def __init__(self, process: TransactingProcess) -> None:
        self._process = process
        self.clock = process.clock
        self.config = config_of(process.broker_id)
        self.loop = WorldLoop(process.schedule)
        self.scheduler = LoopScheduler(self.loop)  # type: ignore[arg-type]
        self.tasks = Tasks(self.loop)
        self.threads = Threads(process, self.loop)
        self.replicas = Replicas(process)
        self.producer_ids = ProducerIds(process, self.threads)
        types: Any = process.types
        broker: Any = self
        self.transactions: Transactions = types.transactions(broker)
        self.coordination: Coordination = types.coordination(broker)
        self.cluster = ClusterFace(process, broker)

    @property
    def image(self) -> ClusterImage:
        return self._process.image

    def leads(self, topic: str, index: int) -> bool:
        hosted = self._process.partitions.get(topic)
        return hosted is not None and hosted.current is not None

    @property
    def groups(self) -> GroupCoordinator:
        return self.coordination.groups

    def commit_offsets(
        self,
        transactional_id: str,
        request: CommitRequest,
        producer: Producer,
        adds: bool,
        done: Done,
    ) -> None:
        """As ``handlers/offsets.py`` does for TxnOffsetCommit; ``adds``: as from version 5 on."""

        def told(error: ErrorCode, codes: Sequence[ErrorCode]) -> None:
            done(error if error is not ErrorCode.NONE else codes[0])

        def held(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self.groups.commit_in_transaction(request, producer, told)
            else:
                done(error)

        named = ProducerOfTransaction(transactional_id, *producer)
        self.transactions.hold(named, TopicPartition(CONSUMER_OFFSETS, 0), adds, held)


class Replicas:
    def __init__(self, process: TransactingProcess) -> None:
        self._process = process

    def find(self, topic: str, index: int) -> ReplicatedPartition:
        """Raises ``KafkaError``."""
        hosted = self._process.partitions.get(topic)
        found = None if hosted is None else hosted.current
        if found is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return found

    def append_own(
        self, partition: Partition, batch: memoryview, header: BatchHeader, now_ms: int
    ) -> AppendInfo:
        return self._process.partitions[partition.topic_partition.topic].append(
            batch, header, now_ms
        )


class Threads:
    def __init__(self, process: Process, loop: WorldLoop) -> None:
        self._rng = process.world.rng
        self._loop = loop

    async def call(self, work: Callable[[], T]) -> T:
        future = self._loop.create_future()
        delay_ms = self._rng.randrange(1, 20)
        self._loop.call_later(delay_ms / 1000, lambda: future.set_result(work()))
        result: T = await future
        return result


class ProducerIds:
    """Blocks of them are the store's matter, which is not simulated."""

    def __init__(self, process: TransactingProcess, threads: Threads) -> None:
        self._cluster = process.cluster
        self._threads = threads

    async def next(self) -> int:
        return await self._threads.call(self._cluster.next_producer_id)


class ClusterFace:
    """Of a membership."""

    def __init__(self, process: TransactingProcess, broker: Any) -> None:
        self._process = process
        membership: Any = self
        self.broker_id = process.broker_id
        self.transactions = ClusterTransactions(broker, membership)

    @property
    def image(self) -> ClusterImage:
        return self._process.image

    @property
    def broker_epoch(self) -> int | None:
        return self._process.registration.broker_epoch

    async def connect_by_image(self, broker_id: BrokerId) -> SimulatedPeer:
        if broker_id not in self.image.brokers:
            raise PeerError(f"broker {broker_id} is not there")
        return SimulatedPeer(self._process, broker_id)


class SimulatedPeer:
    """A connection; after a ``PeerError`` it is of no use."""

    def __init__(self, process: TransactingProcess, target_id: BrokerId) -> None:
        self._process = process
        self._target_id = target_id

    async def ask_json(
        self, key: PrivateKey, body: Any, batches: bytearray | None = None
    ) -> dict[str, Any]:
        assert batches is None, "no transaction asks with record batches"
        process = self._process
        future = process.face.loop.create_future()

        def serve(to: Process, answer: Callable[[dict[str, Any] | None], None]) -> None:
            assert isinstance(to, TransactingProcess)
            to.serve_private(key, body, answer)

        delay_ms, answer_delay_ms, is_answer_lost = 0, 0, False
        if key is PrivateKey.WRITE_MARKERS:
            delay_ms, is_answer_lost = process.cluster.faults.on_markers(process.broker_id)
        else:
            answer_delay_ms = process.cluster.faults.on_question()
        process.cluster.request(
            process,
            self._target_id,
            serve,
            future.set_result,
            delay_ms=delay_ms,
            answer_delay_ms=answer_delay_ms,
            is_answer_lost=is_answer_lost,
        )
        answer: dict[str, Any] | None = await future
        if answer is None:
            raise PeerError("no answer")
        return answer

    def close(self) -> None:
        """What is under way may arrive all the same."""
