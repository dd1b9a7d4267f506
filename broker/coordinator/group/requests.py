"""What group handlers ask and are told: plain values, free of any wire format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from broker.model.error_code import ErrorCode
from broker.model.ids import ZERO_TOPIC_ID, TopicId

#: A member without an id yet.
UNKNOWN_MEMBER_ID = ""
NO_GENERATION = -1
NO_OFFSET = -1


class Protocol(NamedTuple):
    """A way of assigning that a member offers, and what it tells the group's leader about itself."""

    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    group_id: str
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str
    client_host: str
    #: KIP-394: a new dynamic member is told its id first, and joins with it.
    must_know_member_id: bool
    #: KIP-814: a static leader that comes back can be told that the assignment stands.
    can_skip_assignment: bool


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    error: ErrorCode
    member_id: str = UNKNOWN_MEMBER_ID
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    must_skip_assignment: bool = False
    #: Only told to the leader.
    members: Sequence[JoinedMember] = ()


class SyncRequest(NamedTuple):
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    #: From the leader only: (member id, its assignment).
    assignments: Sequence[tuple[str, bytes]]


class SyncAnswer(NamedTuple):
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


AnswerJoin = Callable[[JoinAnswer], None]
AnswerSync = Callable[[SyncAnswer], None]


class LeavingMember(NamedTuple):
    member_id: str
    group_instance_id: str | None


class CommittedPartition(NamedTuple):
    topic: str
    topic_id: TopicId
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


class CommitRequest(NamedTuple):
    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    #: None: the broker's own retention.
    retention_ms: int | None
    partitions: Sequence[CommittedPartition]
    #: From OffsetCommit 9 on clients know GROUP_ID_NOT_FOUND, and epochs of members (KIP-848).
    knows_missing_groups: bool


class AskedTopic(NamedTuple):
    """``topic_id`` zero: asked by name."""

    topic: str
    topic_id: TopicId
    partitions: Sequence[int]


class FetchedOffset(NamedTuple):
    partition: int
    error: ErrorCode = ErrorCode.NONE
    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""


class FetchedTopic(NamedTuple):
    topic: str
    offsets: Sequence[FetchedOffset]
    topic_id: TopicId = ZERO_TOPIC_ID


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str = "classic"


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    group_id: str
    state: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    protocol_type: str = ""
    protocol_name: str = ""
    members: Sequence[DescribedMember] = ()


class HeartbeatRequest(NamedTuple):
    """ConsumerGroupHeartbeat. None: as it was told before."""

    group_id: str
    member_id: str
    member_epoch: int
    group_instance_id: str | None
    rack_id: str | None
    #: -1: as before.
    rebalance_timeout_ms: int
    topics: frozenset[str] | None
    pattern: str | None
    assignor: str | None
    #: What the member owns.
    owned: Mapping[TopicId, Sequence[int]] | None
    client_id: str
    client_host: str
    #: From version 1 on members make their ids themselves.
    must_know_member_id: bool = True
    #: Why ``pattern`` is no regular expression, found out beforehand.
    pattern_fault: str | None = None

    @property
    def is_full(self) -> bool:
        """Members send everything after an error."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.topics is not None or self.pattern is not None)
            and self.owned is not None
        )


class HeartbeatAnswer(NamedTuple):
    error: ErrorCode
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    #: None: as it was told before.
    assignment: Mapping[TopicId, Sequence[int]] | None = None


AnswerHeartbeat = Callable[[HeartbeatAnswer], None]


class DescribedConsumer(NamedTuple):
    """A member of a consumer group (KIP-848)."""

    member_id: str
    group_instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: Sequence[str]
    pattern: str | None
    assignment: Mapping[TopicId, Sequence[int]]
    target: Mapping[TopicId, Sequence[int]]
    is_classic: bool


class DescribedConsumerGroup(NamedTuple):
    group_id: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: Sequence[DescribedConsumer] = ()
