"""Proposing goes on whatever becomes of an answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker.clock import SystemClock
from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId, TopicPartition
from broker.model.leadership import IsrProposal
from broker.server.cluster import isr_changes
from broker.server.cluster.isr_changes import IsrChanges
from broker.server.tasks import TaskGroup
from tests.broker.server.running import on_loop


class Partition:
    """Proposes the same, again and again."""

    topic_partition = TopicPartition("t", 0)
    is_closed = False

    def __init__(self) -> None:
        self.ended: list[ErrorCode | None] = []

    def propose(self, _: Any) -> IsrProposal:
        return IsrProposal(BrokerId(1), 1, 1, 1, ())

    def on_proposal_ended(self, error: ErrorCode | None, *_: object) -> None:
        self.ended.append(error)


@on_loop
async def test_a_controller_that_does_not_answer_leaves_it_open_and_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isr_changes, "ANSWER_SECONDS", 0.001)
    asked: list[Any] = []
    membership: Any = SimpleNamespace(
        is_in_office=True, alter_isrs=lambda proposals, done: asked.append(proposals)
    )
    tasks = TaskGroup(asyncio.get_running_loop())
    replicas = SimpleNamespace(broker_epochs={}, replicated_partitions=lambda: ())
    broker: Any = SimpleNamespace(tasks=tasks, clock=SystemClock(), replicas=replicas)
    changes = IsrChanges(broker, membership)
    changes.start()
    partition: Any = Partition()
    async with asyncio.timeout(30):
        for number in range(1, 3):
            changes.look_at(partition)
            while len(partition.ended) < number:
                await asyncio.sleep(0.001)
    await tasks.cancel()
    assert partition.ended[:2] == [None, None]
    assert len(asked) >= 2
