"""Members of consumer groups (KIP-848) over raw connections, one heartbeat at a time."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support import processes
from tests.support.wire import Struct, Wire

Partitions = dict[uuid.UUID, list[int]]
UNKNOWN_MEMBER_ID = 25
GROUP_ID_NOT_FOUND = 69
FENCED_INSTANCE_ID = 82
INVALID_REQUEST = 42
FENCED_MEMBER_EPOCH = 110
UNRELEASED_INSTANCE_ID = 111
UNSUPPORTED_ASSIGNOR = 112
STALE_MEMBER_EPOCH = 113
INVALID_REGULAR_EXPRESSION = 128


def heartbeat(wire: Wire, group: str, member: str, epoch: int, **fields: Any) -> Struct:
    """One request, as given."""
    asked: dict[str, Any] = {
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
    }
    version = fields.pop("version", 1)
    if version == 0:
        del asked["subscribed_topic_regex"]
    asked.update(fields)
    return wire.request(
        "consumer_group_heartbeat",
        version,
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        **asked,
    )


def joining(*topics: str, **fields: Any) -> dict[str, Any]:
    """What a first heartbeat says."""
    return {
        "rebalance_timeout": 30_000,
        "subscribed_topic_names": list(topics),
        "topic_partitions": [],
        **fields,
    }


def listed(partitions: Mapping[uuid.UUID, Sequence[int]]) -> list[dict[str, Any]]:
    return [{"topic_id": each, "partitions": list(found)} for each, found in partitions.items()]


@dataclass(slots=True)
class Consumer:
    """A member that does what it is told at once: gives up, takes, and says so."""

    wire: Wire
    group: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    instance: str | None = None
    assignor: str | None = None
    member_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    epoch: int = 0
    owned: Partitions = field(default_factory=dict)

    def join(self, **fields: Any) -> Struct:
        """A first heartbeat."""
        asked = joining(
            *self.topics,
            instance_id=self.instance,
            subscribed_topic_regex=self.pattern,
            server_assignor=self.assignor,
        )
        if self.pattern is not None and not self.topics:
            asked["subscribed_topic_names"] = None
        return self._beat(0, asked | fields)

    def beat(self, **fields: Any) -> Struct:
        """A full heartbeat, with all that the member owns."""
        asked = {"instance_id": self.instance, "topic_partitions": listed(self.owned)}
        return self._beat(self.epoch, asked | fields)

    def _beat(self, epoch: int, fields: dict[str, Any]) -> Struct:
        answer = heartbeat(self.wire, self.group, self.member_id, epoch, **fields)
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {
                    each.topic_id: sorted(each.partitions)
                    for each in answer.assignment.topic_partitions
                }
        return answer

    def leave(self, epoch: int = -1) -> Struct:
        return heartbeat(self.wire, self.group, self.member_id, epoch, instance_id=self.instance)

    @property
    def count(self) -> int:
        return sum(map(len, self.owned.values()))


def settle(members: Sequence[Consumer], counts: Sequence[int], what: str = "a balance") -> None:
    """All beat until each has as many partitions as it should, in one epoch."""

    def is_settled() -> bool:
        for member in members:
            answer = member.beat()
            assert answer.error_code == 0, answer
        has_all = sorted(member.count for member in members) == sorted(counts)
        return has_all and len({member.epoch for member in members}) == 1

    processes.wait_until(is_settled, 30, what)


def describe(wire: Wire, group: str) -> Struct:
    answer = wire.request(
        "consumer_group_describe", 1, group_ids=[group], include_authorized_operations=False
    )
    (found,) = answer.groups
    assert isinstance(found, Struct)
    return found
