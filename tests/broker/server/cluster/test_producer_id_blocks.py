"""Blocks of producer ids: no two brokers have the same, whatever answers are lost."""

from __future__ import annotations

import itertools
from typing import Any

from broker.metadata.requests import ProducerIds
from broker.metadata.store import Done, Operation, Unknown
from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId
from broker.server.cluster.producer_ids import BLOCK_SIZE, ProducerIdBlocks
from tests.broker.metadata.test_simulated_zookeeper import ZooKeeperWorld
from tests.support.simulated_zookeeper import SimulatedStore


class ForgetfulStore(SimulatedStore):
    """The answer to its first write that happened is lost, and so to every other."""

    done_count = 0

    def submit(self, operations: Any, done: Any) -> None:
        made: list[Operation] = list(operations)

        def received(outcome: object) -> None:
            self.done_count += isinstance(outcome, Done)
            is_lost = isinstance(outcome, Done) and self.done_count % 2
            done(Unknown("lost") if is_lost else outcome)

        super().submit(made, received)


def test_blocks_never_overlap() -> None:
    world = ZooKeeperWorld()
    stores = [world.store, *(ForgetfulStore(world.server, world.schedule, n) for n in (1, 2))]
    brokers = [ProducerIdBlocks(store, BrokerId(n)) for n, store in enumerate(stores)]
    told: list[ProducerIds] = []
    for _ in range(2):
        for broker in brokers:
            broker.allocate(told.append)
    world.turns.run()
    assert [block.error for block in told] == [ErrorCode.NONE] * 6
    firsts = sorted(block.first for block in told)
    assert all(after - before >= BLOCK_SIZE for before, after in itertools.pairwise(firsts))


def test_without_the_store_there_is_no_block() -> None:
    world = ZooKeeperWorld()
    world.store.connection_lost()
    world.turns.step()
    told: list[ProducerIds] = []
    ProducerIdBlocks(world.store, BrokerId(1)).allocate(told.append)
    world.turns.run()
    assert [block.error for block in told] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
