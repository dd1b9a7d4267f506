"""Consumer groups over raw connections: members that join, sync, commit and leave step by step.

JoinGroup and SyncGroup wait for other members, so each `Member` has a connection of its own, and
both can be sent and received apart.
"""

import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from tests.support import processes
from tests.support.wire import Struct, Wire

COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS = 15, 16, 14
OFFSET_METADATA_TOO_LARGE = 12
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
FENCED_INSTANCE_ID = 82
GROUP_SUBSCRIBED_TO_TOPIC = 86
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
SESSION_MS = 30_000  # long enough that no member of a test expires unasked


def new_group_name() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


def subscription(topics: Iterable[str]) -> bytes:
    """ConsumerProtocolSubscription, version 0."""
    names = list(topics)
    out = struct.pack(">hi", 0, len(names))
    for name in names:
        out += struct.pack(">h", len(name)) + name.encode()
    return out + struct.pack(">i", -1)


def assignment(topics: Mapping[str, Sequence[int]]) -> bytes:
    """ConsumerProtocolAssignment, version 0."""
    out = struct.pack(">hi", 0, len(topics))
    for name, partitions in topics.items():
        out += struct.pack(">h", len(name)) + name.encode()
        out += struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return out + struct.pack(">i", -1)


def find_coordinator(wire: Wire, group: str) -> Struct:
    """Waits while the offsets topic is being created or loaded."""
    found: list[Struct] = []

    def is_found() -> bool:
        answer = wire.request("find_coordinator", 4, key_type=0, coordinator_keys=[group])
        found[:] = answer.coordinators
        return found[0].error_code not in (COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS)

    processes.wait_until(is_found, 30, f"the coordinator of {group}")
    assert found[0].error_code == 0, found
    return found[0]


def new_group(wire: Wire) -> str:
    """The name of a group that nobody used, whose coordinator is ready for it."""
    group = new_group_name()
    wait_for_coordinator(wire, group)
    return group


def wait_for_coordinator(wire: Wire, group: str) -> None:
    """Until the group's coordinator is there and has loaded its part of the offsets topic."""
    find_coordinator(wire, group)
    processes.wait_until(
        lambda: fetch_group(wire, group).error_code == 0, 30, f"the coordinator of {group}"
    )


class Member:
    """One member of a classic group. The attributes may be changed between calls."""

    def __init__(
        self,
        address: tuple[str, int],
        group: str,
        *,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        instance: str | None = None,
        session_timeout: int = SESSION_MS,
        rebalance_timeout: int = 60_000,
        version: int = JOIN_VERSION,
        client_id: str = "judge",
    ) -> None:
        self.wire = Wire(address, client_id=client_id)
        self.group = group
        self.protocols = dict({"range": b"meta"} if protocols is None else protocols)
        self.protocol_type = protocol_type
        self.instance = instance
        self.session_timeout = session_timeout
        self.rebalance_timeout = rebalance_timeout
        self.version = version
        self.member_id = ""
        self.generation = -1
        self.last_join = Struct()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()

    # ------------------------------------------------------------------------------ joining

    def send_join(self, **changes: Any) -> None:
        fields = {
            "group_id": self.group,
            "session_timeout": self.session_timeout,
            "rebalance_timeout": self.rebalance_timeout,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocols": [
                {"name": name, "metadata": data} for name, data in self.protocols.items()
            ],
        }
        self.wire.send("join_group", self.version, **{**fields, **changes})

    def receive_join(self) -> Struct:
        answer = self.wire.receive()
        if answer.error_code == 0:
            self.generation = answer.generation_id
        if answer.error_code in (0, MEMBER_ID_REQUIRED):
            self.member_id = answer.member_id
        self.last_join = answer
        return answer

    def try_join(self, **changes: Any) -> Struct:
        """One JoinGroup and its answer, whatever it is."""
        self.send_join(**changes)
        return self.receive_join()

    def ask_for_id(self) -> None:
        """The first half of a join: a member id, if this version hands them out beforehand."""
        if self.version >= 4 and not self.member_id and self.instance is None:
            answer = self.try_join()
            assert answer.error_code == MEMBER_ID_REQUIRED, answer

    def join(self) -> Struct:
        """Join with all that it takes. Only for groups where nobody else has to come."""
        self.ask_for_id()
        answer = self.try_join()
        assert answer.error_code == 0, answer
        return answer

    @property
    def is_leader(self) -> bool:
        leader: str = self.last_join.leader
        return leader == self.member_id

    def send_sync(self, assignments: Mapping[str, bytes] | None = None, **changes: Any) -> None:
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocol_name": getattr(self.last_join, "protocol_name", "range"),
            "assignments": [
                {"member_id": name, "assignment": data}
                for name, data in (assignments or {}).items()
            ],
        }
        version = changes.pop("version", SYNC_VERSION)
        self.wire.send("sync_group", version, **{**fields, **changes})

    def try_sync(self, assignments: Mapping[str, bytes] | None = None, **changes: Any) -> Struct:
        self.send_sync(assignments, **changes)
        return self.wire.receive()

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> bytes:
        answer = self.try_sync(assignments)
        assert answer.error_code == 0, answer
        data: bytes = answer.assignment
        return data

    def join_alone(self, assignment: bytes = b"all") -> Self:
        """Join and sync as the only member."""
        self.join()
        assert self.is_leader
        assert self.sync({self.member_id: assignment}) == assignment
        return self

    # ------------------------------------------------------------------------- being a member

    def heartbeat(self, version: int = HEARTBEAT_VERSION, **changes: Any) -> int:
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }
        code: int = self.wire.request("heartbeat", version, **{**fields, **changes}).error_code
        return code

    def commit(self, topic: str, offset: int, *, partition: int = 0, **changes: Any) -> int:
        fields: dict[str, Any] = {
            "generation": self.generation,
            "member_id": self.member_id,
            "instance": self.instance,
            **changes,
        }
        return commit(self.wire, self.group, topic, offset, partition=partition, **fields)

    def leave(self) -> int:
        (answer,) = leave(self.wire, self.group, [(self.member_id, self.instance)]).members
        code: int = answer.error_code
        return code


def rebalance(members: Sequence[Member]) -> None:
    """The first joins, or is in already; then all others, who are new. Each gets its index."""
    first, *others = members
    if first.generation < 0:
        first.join_alone()
    for member in others:
        member.ask_for_id()
        member.send_join()
    processes.wait_until(
        lambda: len(describe(first.wire, first.group).members) == len(members), 30, "the joins"
    )
    first.send_join()
    for member in members:
        answer = member.receive_join()
        assert answer.error_code == 0, answer
    generations = {member.generation for member in members}
    assert len(generations) == 1, generations
    (leader,) = [member for member in members if member.is_leader]
    plan = {member.member_id: b"%d" % index for index, member in enumerate(members)}
    for member in members:
        if member is not leader:
            member.send_sync()
    assert leader.sync(plan) == plan[leader.member_id]
    for member in members:
        if member is not leader:
            answer = member.wire.receive()
            assert (answer.error_code, answer.assignment) == (0, plan[member.member_id])


def leave(
    wire: Wire,
    group: str,
    members: Sequence[tuple[str, str | None]],
    *,
    version: int = LEAVE_VERSION,
) -> Struct:
    return wire.request(
        "leave_group",
        version,
        group_id=group,
        members=[
            {"member_id": member_id, "group_instance_id": instance}
            for member_id, instance in members
        ],
    )


# ------------------------------------------------------------------------------------- offsets


def commit_fields(
    group: str,
    topics: Mapping[Any, Sequence[Mapping[str, Any]]],
    *,
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
) -> dict[str, Any]:
    """`topics` by name, or by id: partitions as dicts of their fields."""
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": instance,
        "topics": [
            {
                ("topic_id" if isinstance(topic, uuid.UUID) else "name"): topic,
                "partitions": [
                    {
                        "committed_metadata": "",
                        "committed_leader_epoch": -1,
                        **partition,
                    }
                    for partition in partitions
                ],
            }
            for topic, partitions in topics.items()
        ],
    }


def commit(
    wire: Wire,
    group: str,
    topic: Any,
    offset: int,
    *,
    partition: int = 0,
    metadata: str | None = "",
    leader_epoch: int = -1,
    version: int = 9,
    **identity: Any,
) -> int:
    """The error code of one committed partition."""
    part = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_metadata": metadata,
        "committed_leader_epoch": leader_epoch,
    }
    answer = wire.request(
        "offset_commit", version, **commit_fields(group, {topic: [part]}, **identity)
    )
    (entry,) = answer.topics
    (found,) = entry.partitions
    assert found.partition_index == partition
    code: int = found.error_code
    return code


def fetch_group(
    wire: Wire,
    group: str,
    topics: Mapping[Any, Sequence[int]] | None = None,
    *,
    version: int = 9,
    **more: Any,
) -> Struct:
    """One group's part of the answer; without topics, all that the group has committed."""
    asked = None
    if topics is not None:
        asked = [
            {
                ("topic_id" if isinstance(topic, uuid.UUID) else "name"): topic,
                "partition_indexes": list(partitions),
            }
            for topic, partitions in topics.items()
        ]
    if version < 8:
        return wire.request("offset_fetch", version, group_id=group, topics=asked, **more)
    answer = wire.request(
        "offset_fetch", version, groups=[{"group_id": group, "topics": asked, **more}]
    )
    (found,) = answer.groups
    assert found.group_id == group
    assert isinstance(found, Struct)
    return found


def committed(
    wire: Wire, group: str, topic: Any, *, partition: int = 0, version: int = 9, **more: Any
) -> Struct:
    """The partition's part of the answer."""
    found = fetch_group(wire, group, {topic: [partition]}, version=version, **more)
    assert getattr(found, "error_code", 0) == 0, found
    (entry,) = found.topics
    (part,) = entry.partitions
    assert isinstance(part, Struct)
    return part


def committed_offset(wire: Wire, group: str, topic: Any, *, partition: int = 0) -> int:
    part = committed(wire, group, topic, partition=partition)
    assert part.error_code == 0, part
    offset: int = part.committed_offset
    return offset


# --------------------------------------------------------------------------------------- admin


def describe(wire: Wire, group: str, *, version: int = 5, **more: Any) -> Struct:
    (found,) = wire.request("describe_groups", version, groups=[group], **more).groups
    assert found.group_id == group
    assert isinstance(found, Struct)
    return found


def state(wire: Wire, group: str) -> str:
    found: str = describe(wire, group).group_state
    return found


def wait_for_state(wire: Wire, group: str, wanted: str, seconds: float = 30) -> None:
    processes.wait_until(
        lambda: state(wire, group) == wanted, seconds, f"{group} in state {wanted}"
    )


def list_groups(wire: Wire, *, version: int = 5, **filters: Sequence[str]) -> dict[str, Struct]:
    answer = wire.request("list_groups", version, **filters)
    assert answer.error_code == 0, answer
    return {entry.group_id: entry for entry in answer.groups}


def delete_groups(wire: Wire, groups: Sequence[str], *, version: int = 2) -> dict[str, int]:
    answer = wire.request("delete_groups", version, groups_names=list(groups))
    return {entry.group_id: entry.error_code for entry in answer.results}


def delete_offsets(wire: Wire, group: str, topics: Mapping[str, Sequence[int]]) -> Struct:
    return wire.request(
        "offset_delete",
        0,
        group_id=group,
        topics=[
            {"name": topic, "partitions": [{"partition_index": index} for index in partitions]}
            for topic, partitions in topics.items()
        ],
    )
