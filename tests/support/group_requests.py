"""The requests of a consumer group's members, over a raw connection."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support import processes
from tests.support.wire import Struct, Wire

COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, LOAD_IN_PROGRESS = 15, 16, 14
MEMBER_ID_REQUIRED = 79
NOT_READY = (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, LOAD_IN_PROGRESS)
NO_GENERATION = -1


def find(wire: Wire, group_id: str) -> Struct:
    """The coordinator, once there is one."""
    found: list[Struct] = []

    def is_found() -> bool:
        answer = wire.request("find_coordinator", 4, key_type=0, coordinator_keys=[group_id])
        (coordinator,) = answer.coordinators
        found.append(coordinator)
        return bool(coordinator.error_code == 0)

    processes.wait_until(is_found, 30, f"the coordinator of {group_id}")
    return found[-1]


def subscription(*topics: str) -> bytes:
    parts = [struct.pack(">hi", 0, len(topics))]
    parts += [struct.pack(">h", len(topic)) + topic.encode() for topic in topics]
    return b"".join(parts) + struct.pack(">i", -1)


@dataclass(slots=True)
class Membership:
    """A member with its assignment."""

    group_id: str
    member_id: str
    generation_id: int
    assignment: bytes = b""
    instance_id: str | None = None

    def heartbeat(self, wire: Wire) -> int:
        answer = wire.request(
            "heartbeat",
            4,
            group_id=self.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        code: int = answer.error_code
        return code

    def leave(self, wire: Wire) -> Struct:
        members = [{"member_id": self.member_id, "group_instance_id": self.instance_id}]
        return wire.request("leave_group", 5, group_id=self.group_id, members=members)

    def commit(self, wire: Wire, topic: str, offsets: Mapping[int, int]) -> list[int]:
        return commit(wire, self.group_id, topic, offsets, self.member_id, self.generation_id)


def join(
    wire: Wire,
    group_id: str,
    member_id: str = "",
    *,
    version: int = 9,
    topics: tuple[str, ...] = ("t",),
    instance_id: str | None = None,
    session_ms: int = 10_000,
    rebalance_ms: int = 20_000,
    protocol: str = "range",
) -> Struct:
    """One JoinGroup, or two where a member is told its id first."""
    fields: dict[str, Any] = {
        "group_id": group_id,
        "session_timeout": session_ms,
        "rebalance_timeout": rebalance_ms,
        "group_instance_id": instance_id,
        "protocol_type": "consumer",
        "protocols": [{"name": protocol, "metadata": subscription(*topics)}],
        "reason": None,
    }
    answer = wire.request("join_group", version, member_id=member_id, **fields)
    if answer.error_code == MEMBER_ID_REQUIRED:
        answer = wire.request("join_group", version, member_id=answer.member_id, **fields)
    return answer


def sync(
    wire: Wire, group_id: str, joined: Struct, assignments: Mapping[str, bytes] | None = None
) -> Struct:
    """Of a leader: each member is assigned its own id, if nothing else is said."""
    if assignments is None:
        assignments = {member.member_id: member.member_id.encode() for member in joined.members}
    return wire.request(
        "sync_group",
        5,
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": k, "assignment": v} for k, v in assignments.items()],
    )


def become_member(wire: Wire, group_id: str, **options: Any) -> Membership:
    """The only member of a group, with its assignment."""
    joined = join(wire, group_id, **options)
    assert joined.error_code == 0, joined
    synced = sync(wire, group_id, joined)
    assert synced.error_code == 0, synced
    return Membership(group_id, joined.member_id, joined.generation_id, synced.assignment)


def commit(
    wire: Wire,
    group_id: str,
    topic: str,
    offsets: Mapping[int, int],
    member_id: str = "",
    generation_id: int = NO_GENERATION,
    metadata: str | None = "",
) -> list[int]:
    """One error code for each partition."""
    answer = wire.request(
        "offset_commit",
        8,
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        group_instance_id=None,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": offset,
                        "committed_leader_epoch": 0,
                        "committed_metadata": metadata,
                    }
                    for index, offset in offsets.items()
                ],
            }
        ],
    )
    codes = {each.partition_index: each.error_code for each in answer.topics[0].partitions}
    return [codes[index] for index in offsets]


def committed(wire: Wire, group_id: str) -> dict[tuple[str, int], int]:
    """All of the group's committed offsets, once its coordinator knows them."""
    found: dict[tuple[str, int], int] = {}

    def is_told() -> bool:
        answer = wire.request(
            "offset_fetch", 7, group_id=group_id, topics=None, require_stable=False
        )
        for topic in answer.topics:
            for each in topic.partitions:
                assert each.error_code == 0, each
                found[topic.name, each.partition_index] = each.committed_offset
        assert answer.error_code in (0, *NOT_READY), answer
        return bool(answer.error_code == 0)

    processes.wait_until(is_told, 30, f"the offsets of {group_id}")
    return found


def describe(wire: Wire, group_id: str) -> Struct:
    answer = wire.request("describe_groups", 5, groups=[group_id])
    (group,) = answer.groups
    assert isinstance(group, Struct)
    return group


def list_groups(wire: Wire, **filters: Any) -> Struct:
    return wire.request("list_groups", 5, **{"states_filter": [], "types_filter": [], **filters})
