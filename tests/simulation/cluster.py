"""Three brokers, a ZooKeeper, a producer and a consumer, one partition: a life story by a seed.

``transactions/`` tells another kind, of several partitions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from broker.config.topic_config import DEFAULT_TOPIC_CONFIG, TopicConfig
from broker.metadata import znodes
from broker.metadata.changes import TopicCreated
from broker.metadata.image import ClusterImage, PartitionImage, TopicImage
from broker.metadata.store import Create
from broker.metadata.writes import operations_for
from broker.model.ids import NO_BROKER, BrokerId
from broker.records.batch import iter_records
from tests.simulation.broker import ROOT, TOPIC, Process, Types
from tests.simulation.checker import Checker
from tests.simulation.clients import Consumer, Operator, Producer
from tests.simulation.faults import Faults
from tests.simulation.partition import HostedPartition
from tests.simulation.world import Settings, World
from tests.support.faulty_filesystem import FaultyFileSystem
from tests.support.simulated_zookeeper import SimulatedStore, ZooKeeperServer

T = TypeVar("T")


class Cluster:
    cluster_id = "MkU3OEVBNTcwNTJENDM2Qg"
    #: Each of one partition.
    topics: tuple[str, ...] = (TOPIC,)
    settings = Settings()
    #: Producers that are silent for so long are forgotten by partitions.
    producer_id_expiration_ms = 86_400_000
    checker: Checker

    def __init__(self, seed: int, types: type[Types] = Types) -> None:
        self.world = World(seed)
        self.types = types
        self.topic_ids = {
            topic: uuid.UUID(int=seed + 1000 + (number << 64))
            for number, topic in enumerate(self.topics)
        }
        self.broker_ids = (BrokerId(1), BrokerId(2), BrokerId(3))
        rng = self.world.rng
        self.is_flush_bound = rng.random() < 0.4
        #: Whether brokers lose power, or are only killed where a fault says so.
        self.may_lose_power = True
        self.min_insync_replicas = rng.choice((1, 2))
        self.topic_config = replace(
            DEFAULT_TOPIC_CONFIG,
            **({"flush_messages": 1} if self.is_flush_bound else {}),
        )
        self.is_healed = False
        self.checker = self._new_checker()
        self.zookeeper = ZooKeeperServer(self.world, self.settings.session_timeout_ms)
        self.zookeeper.on_change = self.checker.on_store_change
        self._lay_out()
        self.disks = {b: FaultyFileSystem(rng) for b in self.broker_ids}
        self.processes: dict[BrokerId, Process] = {}
        for broker_id in self.broker_ids:
            self.disks[broker_id].make_directory(ROOT)
            self.disks[broker_id].root.sync()
            self.start(broker_id)
        self._start_clients()
        self.faults = self._new_faults()
        self.world.after_event = self.checker.after_event

    def _new_checker(self) -> Checker:
        return Checker(self)

    def _new_faults(self) -> Faults:
        return Faults(self)

    def _start_clients(self) -> None:
        self.producer = Producer(self)
        self.consumer = Consumer(self)
        self.operator = Operator(self) if self.world.rng.random() < 0.5 else None

    def _lay_out(self) -> None:
        """The topics are there, with brokers that were never registered."""
        epoch = znodes.encode_controller_epoch(1)
        nodes = [Create(path) for path in znodes.CLUSTER_SKELETON]
        nodes.append(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(self.cluster_id)))
        everywhere = frozenset(self.broker_ids)
        made = []
        for number, name in enumerate(self.topics):
            replicas = (*self.broker_ids[number:], *self.broker_ids[:number])
            partition = PartitionImage(0, NO_BROKER, 0, 0, replicas, everywhere)
            made.append(TopicCreated(TopicImage(name, self.topic_ids[name], (partition,))))
        changes = operations_for(ClusterImage(controller_epoch=1), made, NO_BROKER)
        self.zookeeper.submit(0, [*nodes, Create(znodes.CONTROLLER_EPOCH, epoch), *changes])

    def config_of(self, topic: str) -> TopicConfig:
        return self.topic_config

    def controller_epoch(self) -> int:
        node = self.zookeeper.tree.get(znodes.CONTROLLER_EPOCH)
        assert node is not None
        return znodes.decode_controller_epoch(node.data)

    def assignment(self, topic: str = TOPIC) -> znodes.TopicAssignment:
        node = self.zookeeper.tree.get(znodes.topic_path(topic))
        assert node is not None
        return znodes.decode_topic(node.data)

    def controller_id(self) -> BrokerId:
        node = self.zookeeper.tree.get(znodes.CONTROLLER)
        return NO_BROKER if node is None else znodes.decode_controller(node.data)

    # Processes ---------------------------------------------------------------------------------

    def start(self, broker_id: BrokerId) -> None:
        if broker_id not in self.processes:
            self.processes[broker_id] = self.types.process(self, broker_id, self.disks[broker_id])

    def stop(self, process: Process) -> None:
        """A clean stop, unless it has died meanwhile."""
        if self.processes.get(process.broker_id) is process:
            del self.processes[process.broker_id]
            process.end()
            process.logs.close(clean=True)
            self.zookeeper.expire(process.store.session_id)

    def crash(self, broker_id: BrokerId, is_power_lost: bool) -> None:
        process = self.processes.pop(broker_id, None)
        if process is None:
            return
        process.end()
        is_power_lost = is_power_lost and self.may_lose_power
        if not is_power_lost:
            for reset in process.resets:
                reset()
        disk = self.disks[broker_id]
        self.disks[broker_id] = disk.after_power_loss() if is_power_lost else disk.after_kill()
        self.checker.on_crash(broker_id, is_power_lost)
        self.expire_later(process.store)

    def expire_later(self, store: SimulatedStore) -> None:
        """Its session ends: the server has not heard of it since now."""
        session_id = store.session_id

        def expire() -> None:
            if self.zookeeper.is_up:
                self.zookeeper.expire(session_id)
            else:
                self.world.call_later(self.settings.session_timeout_ms, expire)

        self.world.call_later(self.settings.session_timeout_ms, expire)

    def leaders(self, topic: str) -> list[HostedPartition]:
        """Of running processes, which may not all know better."""
        hosted = [process.partitions[topic] for process in self.running()]
        return [partition for partition in hosted if partition.leader is not None]

    def running(self) -> list[Process]:
        return [p for p in self.processes.values() if not p.schedule.is_stopped]

    # Network -----------------------------------------------------------------------------------

    def request(
        self,
        source: Process,
        target_id: BrokerId,
        serve: Callable[[Process, Callable[[T], None]], None],
        ended: Callable[[T | None], None],
        *,
        delay_ms: int = 0,
        answer_delay_ms: int = 0,
        is_answer_lost: bool = False,
    ) -> None:
        """``ended`` once: with the answer, or None when there was none in time."""
        world, schedule = self.world, source.schedule
        is_over = False

        def end(answer: T | None) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                ended(answer)

        def answered(answer: T) -> None:
            if not is_answer_lost and not world.is_cut(target_id, source.broker_id):
                schedule.call_later(world.delay() + answer_delay_ms, lambda: end(answer))

        def refused() -> None:
            if not is_over:
                end(None)
                source.on_refused(target_id)

        def reset() -> None:
            """The kernel of a process that died says so to whoever waits for its answer."""
            if not is_over and not world.is_cut(target_id, source.broker_id):
                schedule.call_later(1, refused)

        def arrive() -> None:
            if world.is_cut(source.broker_id, target_id):
                return
            target = self.processes.get(target_id)
            if target is not None:
                target.resets.append(reset)
                target.schedule.call_later(0, lambda: serve(target, answered))
            elif not world.is_cut(target_id, source.broker_id):
                schedule.call_later(1, refused)

        world.call_later(world.delay() + delay_ms, arrive)
        schedule.call_later(self.settings.request_timeout_ms, lambda: end(None))

    def client_request(
        self,
        target_id: BrokerId,
        serve: Callable[[Process, Callable[[T], None]], None],
        ended: Callable[[T | None], None],
        timeout_ms: int,
    ) -> None:
        world = self.world
        is_over = False

        def end(answer: T | None) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                ended(answer)

        def arrive() -> None:
            target = self.processes.get(target_id)
            if target is None:
                end(None)
                return
            target.schedule.call_later(
                0,
                lambda: serve(
                    target, lambda answer: world.call_later(world.delay(), lambda: end(answer))
                ),
            )

        world.call_later(world.delay(), arrive)
        world.call_later(timeout_ms, lambda: end(None))

    def on_the_wire(self, data: bytes) -> bytes:
        """Bytes in a socket may change under a leader that is being cut."""
        if not data or self.world.rng.random() >= self.world.corruption:
            return data
        changed = bytearray(data)
        changed[-1 - self.world.rng.randrange(min(4, len(data)))] ^= 0x01
        return bytes(changed)

    def number_in(self, batch: bytes) -> int:
        [record] = iter_records(batch, 1 << 16)
        assert record.value is not None
        return int(record.value)

    # The story ---------------------------------------------------------------------------------

    def run(self) -> None:
        settings = self.settings
        self.world.run_until(settings.faults_until_ms)
        self.faults.heal()
        self.is_healed = True
        self.world.run_until(settings.converged_by_ms)
        self.checker.at_the_end()

    def describe(self) -> str:
        return f"{self.producer.number} records, {self.checker.excuse_count} losses excused"


def run_seed(seed: int, types: type[Types] = Types) -> Cluster:
    """Raises ``Failure`` with the seed, the event's number and the last events."""
    cluster = Cluster(seed, types)
    cluster.run()
    return cluster
