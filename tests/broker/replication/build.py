"""A replica manager over real logs, with time and threads moved by hand."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker.config.topic_config import TopicConfig
from broker.model.ids import BrokerId, TopicPartition
from broker.model.leadership import LeaderAndIsr
from broker.records.header import peek_header
from broker.records.produce_rules import ProduceRules
from broker.replication.partition import Partition
from broker.replication.replica_manager import AppendOutcome, ReplicaManager
from broker.storage.append_info import AppendInfo
from broker.storage.filesystem import FileSystem, RealFileSystem
from broker.storage.log_manager import LogManager
from tests.broker.storage.build import batch, config
from tests.support.by_hand import ManualScheduler, ManualThreads

TOPIC_ID = uuid.UUID(int=7)
ORDERS = "orders"
OWN_ID = BrokerId(1)


class World:
    """Everything that one test needs; ``restart`` keeps the directory."""

    def __init__(self, directories: Sequence[Path | str], fs: FileSystem | None = None) -> None:
        self.scheduler = ManualScheduler()
        self.threads = ManualThreads()
        self.fs = fs or RealFileSystem(64)
        self.logs = LogManager(
            [str(path) for path in directories],
            self.fs,
            self.scheduler,
            cluster_id="cluster",
            node_id=1,
        )
        self.logs.open(lambda topic_partition: config())
        self.replicas = ReplicaManager(self.logs, self.scheduler, self.threads, OWN_ID)

    def host(
        self,
        name: str = ORDERS,
        partitions: int = 1,
        topic_id: uuid.UUID = TOPIC_ID,
        epoch: int = 0,
        leader_id: BrokerId = OWN_ID,
        **changes: Any,
    ) -> Partition:
        """Host a topic; its first partition."""
        topic_config = config(**changes)
        self.replicas.host_topic(
            name,
            topic_id,
            [lone(epoch, leader_id)] * partitions,
            topic_config,
            rules_of(topic_config),
        )
        return self.replicas.find(name, 0)

    def reconfigure(self, name: str = ORDERS, **changes: Any) -> None:
        topic_config = config(**changes)
        self.replicas.set_topic_config(name, topic_config, rules_of(topic_config))

    def append(self, partition: Partition, data: bytearray | None = None) -> AppendInfo:
        """One batch that must be appended at once."""
        data = batch(size=10) if data is None else data
        info = self.replicas.append(
            partition, memoryview(data), peek_header(data), self.scheduler.wall_ms()
        )
        assert info is not None
        return info

    def append_later(self, partition: Partition, data: bytearray) -> list[AppendOutcome]:
        """One batch that has to wait for a walk; its outcome comes into the list."""
        outcomes: list[AppendOutcome] = []
        arguments = (partition, memoryview(data), peek_header(data), self.scheduler.wall_ms())
        assert self.replicas.append(*arguments) is None
        self.replicas.append_later(*arguments, outcomes.append)
        return outcomes


def lone(epoch: int = 0, leader_id: BrokerId = OWN_ID) -> LeaderAndIsr:
    """Of a partition with one replica."""
    return LeaderAndIsr(leader_id, epoch, 0, (leader_id,), frozenset({leader_id}))


def rules_of(topic_config: TopicConfig) -> ProduceRules:
    return ProduceRules.for_topic(topic_config)


def tp(index: int = 0, name: str = ORDERS) -> TopicPartition:
    return TopicPartition(name, index)
