"""A member of a consumer group (KIP-848) in the small: it does at once what it is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.coordinator.group.requests import (
    DescribedConsumerGroup,
    HeartbeatAnswer,
    HeartbeatRequest,
)
from broker.model.error_code import ErrorCode
from broker.model.ids import TopicId
from tests.broker.coordinator.build import GroupWorld

SESSION_MS = 45_000


class Consumer:
    def __init__(self, world: GroupWorld, name: str, *topics: str, **wishes: Any) -> None:
        self.world = world
        self.name = name
        self.topics = frozenset(topics)
        self.wishes = wishes
        self.epoch = 0
        self.owned: dict[TopicId, Sequence[int]] = {}
        self.last: HeartbeatAnswer

    def send(self, epoch: int, **fields: Any) -> ErrorCode:
        """One heartbeat, as it is."""
        asked: dict[str, Any] = {
            "group_id": "g",
            "member_id": self.name,
            "member_epoch": epoch,
            "group_instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "topics": None,
            "pattern": None,
            "assignor": None,
            "owned": None,
            "client_id": "c",
            "client_host": "/127.0.0.1",
        }
        asked |= {k: v for k, v in self.wishes.items() if k == "group_instance_id"}
        answers: list[HeartbeatAnswer] = []
        request = HeartbeatRequest(**(asked | fields))
        self.world.groups.consumer_heartbeat(request, answers.append)
        (self.last,) = answers
        if self.last.error is ErrorCode.NONE and epoch >= 0:
            self.epoch = self.last.member_epoch
            if self.last.assignment is not None:
                self.owned = dict(self.last.assignment)
        return self.last.error

    def join(self, **fields: Any) -> ErrorCode:
        asked = {"rebalance_timeout_ms": 60_000, "topics": self.topics, "owned": {}}
        return self.send(0, **(asked | self.wishes | fields))

    def beat(self, **fields: Any) -> ErrorCode:
        return self.send(self.epoch, owned=self.owned, **fields)

    def leave(self, epoch: int = -1) -> ErrorCode:
        return self.send(epoch)

    @property
    def count(self) -> int:
        return sum(map(len, self.owned.values()))


def settle(world: GroupWorld, *members: Consumer) -> list[int]:
    """Everybody beats until nothing changes any more; how many partitions each has."""
    for _ in range(4):
        world.advance(1_000)
        for member in members:
            assert member.beat() is ErrorCode.NONE, member.last
    return [member.count for member in members]


def described(world: GroupWorld) -> DescribedConsumerGroup:
    found: list[DescribedConsumerGroup] = []
    world.groups.describe_consumer("g", found.append)
    return found[0]
