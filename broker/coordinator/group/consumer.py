"""A group of the consumer protocol (KIP-848), as the log has it.

Three epochs tell how far it is: the group's rises with every change that matters for the
assignment; the target's follows once a target is computed for it; each member's follows when the
member has given up what is another's. ``replay`` is the only way in; ``heartbeat`` decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final

from broker.coordinator.group.consumer_member import (
    LEAVES,
    NOTHING_ASSIGNED,
    NOTHING_OWNED,
    Assignment,
    ConsumerMember,
    MemberState,
    Owned,
)
from broker.coordinator.group.consumer_protocol import CONSUMER
from broker.coordinator.group.consumer_records import (
    CURRENT_KEY,
    EPOCH_KEY,
    MEMBER_KEY,
    PARTITION_METADATA_KEY,
    PATTERN_KEY,
    TARGET_EPOCH_KEY,
    TARGET_KEY,
    ResolvedPattern,
    current_record,
    epoch_record,
    member_record,
    read_current,
    read_epoch,
    read_member,
    read_pattern,
    read_second_text,
    read_target,
    read_target_epoch,
    target_record,
    tombstone,
)
from broker.coordinator.group.requests import ListedGroup
from broker.coordinator.record_codec import key_type
from broker.coordinator.result import CoordinatorRecord
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicId

FIRST_EPOCH: Final = 1


class ConsumerGroupState(Enum):
    """Values are the names that clients are told."""

    EMPTY = "Empty"
    #: A change waits for its target.
    ASSIGNING = "Assigning"
    #: Members are on their way to the target.
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class ConsumerGroup:
    """See the module's docstring."""

    __slots__ = (
        "_holders",
        "_static_members",
        "assignment_epoch",
        "assignment_ms",
        "group_epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "patterns",
        "seen_topics",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        #: A group begins in an epoch that no record tells of.
        self.group_epoch = FIRST_EPOCH
        #: Of the topics that members ask for, when the epoch last rose.
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        #: When the target was computed, by the wall clock; 0: never, or nobody knows.
        self.assignment_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        #: Group instance id to member id.
        self._static_members: dict[str, str] = {}
        #: Partition to the member that has it, or has not given it up yet.
        self._holders: dict[tuple[TopicId, int], str] = {}
        #: Kafka 4.0 wrote a record that nobody needs any more.
        self.has_partition_metadata = False
        #: The cluster's topics (compared by identity) that ``metadata_hash`` was compared with.
        self.seen_topics: object = None

    # -- members ------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(each.is_reconciled_to(self.assignment_epoch) for each in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def member_or_raise(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def static_member(self, group_instance_id: str | None) -> ConsumerMember | None:
        if group_instance_id is None:
            return None
        member_id = self._static_members.get(group_instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member: ConsumerMember) -> Assignment:
        """A static member that comes back under another id takes over what was meant for it."""
        before = self.static_member(member.group_instance_id)
        member_id = member.member_id if before is None else before.member_id
        return self.targets.get(member_id, NOTHING_ASSIGNED)

    def members_with(self, member: ConsumerMember) -> dict[str, ConsumerMember]:
        """All members as they will be once ``member`` is in the log."""
        members = dict(self.members)
        before = self.static_member(member.group_instance_id)
        if before is not None and before.member_id != member.member_id:
            del members[before.member_id]
        members[member.member_id] = member
        return members

    def is_held(self, topic_id: TopicId, partition: int) -> bool:
        return (topic_id, partition) in self._holders

    def are_all_classic_but(self, leaving: Iterable[ConsumerMember]) -> bool:
        """Whether nobody speaks the newer protocol once these have left."""
        leaving_ids = {each.member_id for each in leaving}
        return all(
            each.is_classic for each in self.members.values() if each.member_id not in leaving_ids
        ) and any(not self.members[member_id].is_classic for member_id in leaving_ids)

    def supports_classic(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these classic protocols may join."""
        classics = [each.classic for each in self.members.values() if each.classic is not None]
        votes = Counter(
            name
            for classic in classics
            for name in {protocol.name for protocol in classic.protocols}
        )
        return protocol_type == CONSUMER and any(votes[name] == len(classics) for name in names)

    # -- what they ask for --------------------------------------------------------------------

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """By name, and by what its regular expression was found to match."""
        found = self.patterns.get(member.pattern) if member.pattern else None
        return member.topics | found.topics if found is not None else member.topics

    def subscribed_topics(self, members: Mapping[str, ConsumerMember] | None = None) -> set[str]:
        found: set[str] = set()
        for member in (self.members if members is None else members).values():
            found |= self.topics_of(member)
        return found

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(member) for member in self.members.values())

    def subscriber_count(self, pattern: str) -> int:
        return sum(member.pattern == pattern for member in self.members.values())

    def assignor(self, default: str, members: Mapping[str, ConsumerMember] | None = None) -> str:
        """The one that most members ask for."""
        members = self.members if members is None else members
        votes = Counter(each.assignor for each in members.values() if each.assignor is not None)
        return votes.most_common(1)[0][0] if votes else default

    # -- telling ------------------------------------------------------------------------------

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, CONSUMER, self.state.value, CONSUMER)

    # -- records ------------------------------------------------------------------------------

    def tombstones(self) -> list[CoordinatorRecord]:
        """Of everything, in Kafka's order: the group last."""
        group_id = self.group_id
        found = [tombstone(CURRENT_KEY, group_id, each) for each in self.members]
        found += [tombstone(TARGET_KEY, group_id, each) for each in self.targets]
        found.append(tombstone(TARGET_EPOCH_KEY, group_id))
        found += [tombstone(MEMBER_KEY, group_id, each) for each in self.members]
        found += [tombstone(PATTERN_KEY, group_id, each) for each in self.patterns]
        if self.has_partition_metadata:
            found.append(tombstone(PARTITION_METADATA_KEY, group_id))
        found.append(tombstone(EPOCH_KEY, group_id))
        return found

    def replacing(self, old: ConsumerMember, new: ConsumerMember) -> list[CoordinatorRecord]:
        """A static member's new id in the place of its old one."""
        target = self.targets.get(old.member_id, NOTHING_ASSIGNED)
        return [
            member_record(self.group_id, new),
            target_record(self.group_id, new.member_id, target),
            current_record(self.group_id, new),
        ]

    def raised(self, metadata_hash: int) -> CoordinatorRecord:
        """The group's epoch, one higher."""
        return epoch_record(self.group_id, self.group_epoch + 1, metadata_hash)

    # -- replay -------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None) -> None:
        """A record of this group; the group's own tombstone is the shard's matter. Raises
        ``MalformedRecord``."""
        kind = key_type(key)
        if kind == EPOCH_KEY:
            if value is not None:
                self.group_epoch, self.metadata_hash = read_epoch(value)
        elif kind == PARTITION_METADATA_KEY:
            self.has_partition_metadata = value is not None
        elif kind == TARGET_EPOCH_KEY:
            read = (FIRST_EPOCH, 0) if value is None else read_target_epoch(value)
            self.assignment_epoch, self.assignment_ms = read
        else:
            _, text = read_second_text(key)
            self._replay_second(kind, text, value)

    def _replay_second(self, kind: int, text: str, value: bytes | None) -> None:
        if kind == MEMBER_KEY:
            if value is None:
                self._remove(text)
            else:
                self._put(read_member(text, value, self.members.get(text)))
        elif kind == TARGET_KEY:
            if value is None:
                self.targets.pop(text, None)
            else:
                self.targets[text] = read_target(value)
        elif kind == CURRENT_KEY:
            self._replay_current(text, value)
        elif value is None:
            self.patterns.pop(text, None)
        else:
            self.patterns[text] = read_pattern(value)

    def _replay_current(self, member_id: str, value: bytes | None) -> None:
        known = self.members.get(member_id)
        if value is not None:
            self._put(read_current(value, known or ConsumerMember(member_id)))
        elif known is not None:
            self._put(
                known._replace(
                    member_epoch=LEAVES,
                    previous_member_epoch=LEAVES,
                    state=MemberState.STABLE,
                    assigned=NOTHING_OWNED,
                    revoking=NOTHING_OWNED,
                )
            )

    def _put(self, member: ConsumerMember) -> None:
        known = self.members.get(member.member_id)
        if known is not None:
            self._release(known)
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self._static_members[member.group_instance_id] = member.member_id
        for slot in _slots(member):
            self._holders[slot] = member.member_id

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        instance_id = member.group_instance_id
        if instance_id is not None and self._static_members.get(instance_id) == member_id:
            del self._static_members[instance_id]

    def _release(self, member: ConsumerMember) -> None:
        for slot in _slots(member):
            if self._holders.get(slot) == member.member_id:
                del self._holders[slot]


def _slots(member: ConsumerMember) -> list[tuple[TopicId, int]]:
    both: tuple[Owned, ...] = (member.assigned, member.revoking)
    return [
        (topic_id, partition)
        for owned in both
        for topic_id, partitions in owned.items()
        for partition in partitions
    ]
