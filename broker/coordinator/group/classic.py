"""A group of the classic protocol: who is in it, in what state, in which generation.

What the log keeps of it (generation, protocol, leader, members with their assignments) is written
when it becomes stable or empty. The rest lives in memory only, as in Apache Kafka: a join that is
under way, ids that were handed out, who has not synced yet. A restart forgets those, and their
owners join again.

This module holds the group and its arithmetic; ``rebalance`` moves it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from broker.coordinator.group.consumer_protocol import CONSUMER, subscribed_topics
from broker.coordinator.group.member import NO_ASSIGNMENT, Member
from broker.coordinator.group.records import NO_TIMESTAMP, StoredGroup
from broker.coordinator.group.requests import (
    AnswerJoin,
    DescribedGroup,
    JoinAnswer,
    JoinedMember,
    ListedGroup,
    Protocol,
    SyncAnswer,
)
from broker.coordinator.group.states import ENTERED_FROM, GroupState
from broker.coordinator.hashing import hash_map_order
from broker.coordinator.record_codec import MalformedRecord
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError


class ClassicGroup:
    """See the module's docstring."""

    __slots__ = (
        "_static_members",
        "_votes",
        "awaiting_join_count",
        "generation_id",
        "group_id",
        "has_new_member",
        "leader_id",
        "members",
        "pending_join",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_ms",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, state_ms: int) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        #: When the state was entered, by the wall clock; -1 when a restart does not know.
        self.state_ms = state_ms
        self.generation_id = 0
        #: None: nobody ever joined, the group only keeps offsets.
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        #: Of the member that assigns.
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        #: Group instance id to member id.
        self._static_members: dict[str, str] = {}
        #: How many members offer a protocol.
        self._votes: Counter[str] = Counter()
        self.awaiting_join_count = 0
        #: Ids that were handed out, with which nobody has joined yet (values mean nothing).
        self.pending_join: dict[str, None] = {}
        #: Members that were told the new generation and have not synced yet.
        self.pending_sync: dict[str, None] = {}
        #: Topics that any member reads; None where that cannot be told.
        self.subscribed_topics: set[str] | None = None
        #: While the first rebalance is delayed: whether somebody came since the last look.
        self.has_new_member = False

    @classmethod
    def restored(cls, group_id: str, stored: StoredGroup) -> ClassicGroup:
        group = cls(group_id, stored.state_ms)
        group.generation_id = stored.generation_id
        group.protocol_type = stored.protocol_type or None
        group.protocol_name = stored.protocol_name
        group.leader_id = stored.leader_id
        instance_ids = [m.group_instance_id for m in stored.members if m.group_instance_id]
        member_ids = [m.member_id for m in stored.members]
        if len({*instance_ids}) < len(instance_ids) or len({*member_ids}) < len(member_ids):
            raise MalformedRecord(f"group {group_id} has a member twice")
        for member in stored.members:
            group.add(Member.restored(member, stored.protocol_name or ""), stored.protocol_type)
        if group.members:
            group.state = GroupState.STABLE
        group.subscribed_topics = group._find_subscribed_topics()
        return group

    def stored(self, assignments: dict[str, bytes]) -> StoredGroup:
        """What the log shall keep, with each member's assignment as given."""
        name = self.protocol_name
        members = tuple(
            member.stored(name or "", assignments.get(member.member_id, NO_ASSIGNMENT))
            for member in self.members.values()
        )
        return StoredGroup(
            self.protocol_type or "",
            self.generation_id,
            name,
            self.leader_id,
            self.state_ms,
            members,
        )

    # -- state --------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def can_rebalance(self) -> bool:
        return self.state in ENTERED_FROM[GroupState.PREPARING_REBALANCE]

    def move_to(self, state: GroupState, now_ms: int) -> None:
        assert self.state in ENTERED_FROM[state], f"{self.group_id}: {self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.state_ms = now_ms

    def begin_generation(self, now_ms: int) -> None:
        """Everybody who is going to join has joined."""
        self.generation_id += 1
        self.protocol_name = self.choose_protocol() if self.members else None
        self.subscribed_topics = self._find_subscribed_topics()
        is_empty = not self.members
        self.move_to(GroupState.EMPTY if is_empty else GroupState.COMPLETING_REBALANCE, now_ms)
        self.pending_sync.clear()

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # -- members ------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self._static_members, member.group_instance_id
            self._static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        self.awaiting_join_count += member.is_awaiting_join
        self.pending_join.pop(member.member_id, None)

    def remove(self, member_id: str) -> None:
        """Take out a member, or an id that was handed out."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            self.awaiting_join_count -= member.is_awaiting_join
            if member.group_instance_id is not None:
                self._static_members.pop(member.group_instance_id, None)
        if member_id == self.leader_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)

    def update(
        self,
        member: Member,
        protocols: tuple[Protocol, ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """The member has joined anew."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static(self, group_instance_id: str, old_id: str, new_id: str) -> Member:
        """The static member came back under a new id; whoever still uses the old one is fenced."""
        old = self.members.pop(old_id)
        self.awaiting_join_count -= old.is_awaiting_join
        fenced = ErrorCode.FENCED_INSTANCE_ID
        if old.answer_join is not None:
            old.answer_join(JoinAnswer(fenced, old_id))
        if old.answer_sync is not None:
            old.answer_sync(SyncAnswer(fenced))
        new = Member(
            new_id,
            old.group_instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.members[new_id] = new
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.pending_sync:
            del self.pending_sync[old_id]
            self.pending_sync[new_id] = None
        self._static_members[group_instance_id] = new_id
        return new

    def static_member_id(self, group_instance_id: str) -> str | None:
        return self._static_members.get(group_instance_id)

    def member_or_raise(self, member_id: str, group_instance_id: str | None) -> Member:
        """The member that a request names; static ones must name themselves rightly."""
        if group_instance_id is not None:
            known = self._static_members.get(group_instance_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    # -- joining ------------------------------------------------------------------------------

    @property
    def have_all_joined(self) -> bool:
        return self.awaiting_join_count == len(self.members) and not self.pending_join

    def not_joined(self) -> list[Member]:
        return [member for member in self.members.values() if not member.is_awaiting_join]

    def await_join(self, member: Member, answer: AnswerJoin) -> None:
        """``answer`` is called when the join phase ends. An earlier request of the same member
        gets no answer any more."""
        if member.answer_join is None:
            self.awaiting_join_count += 1
        member.answer_join = answer

    def answer_join(self, member: Member, answer: JoinAnswer) -> bool:
        callback, member.answer_join = member.answer_join, None
        if callback is None:
            return False
        self.awaiting_join_count -= 1
        callback(answer)
        return True

    def answer_sync(self, member: Member, answer: SyncAnswer) -> bool:
        callback, member.answer_sync = member.answer_sync, None
        if callback is None:
            return False
        callback(answer)
        return True

    def elect_joined_leader(self) -> bool:
        """If the leader has not joined, one that has takes its place. False: nobody has."""
        leader = self.members.get(self.leader_id or "")
        if leader is None:
            return False
        if leader.is_awaiting_join:
            return True
        for member in self.members.values():
            if member.is_awaiting_join:
                self.leader_id = member.member_id
                return True
        return False

    def joined_members(self) -> list[JoinedMember]:
        """What the leader needs in order to assign."""
        name = self.protocol_name or ""
        return [
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(name))
            for member in self.members.values()
        ]

    # -- protocols ----------------------------------------------------------------------------

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols may join those that are here."""
        names = tuple(names)
        if self.is_empty:
            return bool(protocol_type) and bool(names)
        return protocol_type == self.protocol_type and any(
            self._votes[name] == len(self.members) for name in names
        )

    def choose_protocol(self) -> str:
        """The one that most members like best, of those that all have."""
        everybody = len(self.members)
        candidates = {name for name, count in self._votes.items() if count == everybody}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        most = max(votes.values())
        return next(name for name in hash_map_order(list(votes)) if votes[name] == most)

    @property
    def has_consumers(self) -> bool:
        return self.protocol_type == CONSUMER

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.has_consumers

    def _find_subscribed_topics(self) -> set[str] | None:
        if not self.has_consumers:
            return None
        found: set[str] = set()
        for member in self.members.values():
            if self.protocol_name is None:
                return None
            topics = subscribed_topics(member.metadata(self.protocol_name))
            if topics is None:
                return None
            found |= topics
        return found

    def _count(self, member: Member, change: int) -> None:
        for name in {protocol.name for protocol in member.protocols}:
            self._votes[name] += change
            if not self._votes[name]:
                del self._votes[name]

    # -- telling ------------------------------------------------------------------------------

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.protocol_type or "", self.state.value)

    def described(self) -> DescribedGroup:
        is_stable = self.state is GroupState.STABLE
        name = self.protocol_name or "" if is_stable else ""
        return DescribedGroup(
            self.group_id,
            self.state.value,
            protocol_type=self.protocol_type or "",
            protocol_name=name,
            members=[
                member.described(member.metadata(name) if is_stable else b"")
                for member in self.members.values()
            ],
        )

    def offsets_expire_from(self, commit_ms: int) -> int | None:
        """When an offset's retention begins (KIP-211); None while it must be kept."""
        if self.protocol_type is None:
            return commit_ms
        if self.is_empty:
            return commit_ms if self.state_ms == NO_TIMESTAMP else self.state_ms
        if (
            self.has_consumers
            and self.subscribed_topics is not None
            and self.state is GroupState.STABLE
        ):
            return commit_ms
        return None

    def waiting(self) -> Iterator[Member]:
        """Members that wait for an answer."""
        for member in self.members.values():
            if member.answer_join is not None or member.answer_sync is not None:
                yield member
