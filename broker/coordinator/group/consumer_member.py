"""A member of a consumer group (KIP-848): what it wants, and where it stands.

Values that are never changed: the machine makes a new one, and the records written for it make the
group remember it. The first half lives in one record (``MEMBER``), the second in another
(``CURRENT``), as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.coordinator.group.requests import Protocol
from broker.model.ids import TopicId

#: In a heartbeat: the member leaves; the static member leaves and will be back.
LEAVES: Final = -1
LEAVES_FOR_NOW: Final = -2
JOINS: Final = 0

#: Topic to partitions, of a target.
Assignment = Mapping[TopicId, frozenset[int]]
#: Topic to partition to the epoch in which the member was given it.
Owned = Mapping[TopicId, Mapping[int, int]]

NOTHING_ASSIGNED: Final[Assignment] = MappingProxyType({})
NOTHING_OWNED: Final[Owned] = MappingProxyType({})


class MemberState(IntEnum):
    """Numbers are those of the records."""

    STABLE = 0
    #: It was asked to give up partitions, and has not said that it did.
    UNREVOKED_PARTITIONS = 1
    #: Partitions of its target are still others'.
    UNRELEASED_PARTITIONS = 2
    #: Of a Kafka to come.
    UNKNOWN = 127


class ClassicMembership(NamedTuple):
    """Of a member that speaks the classic protocol, in a group that has been upgraded."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]


class ConsumerMember(NamedTuple):
    """See the module's docstring."""

    member_id: str
    group_instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    #: Subscribed by name.
    topics: frozenset[str] = frozenset()
    #: Subscribed by a regular expression; empty: by none.
    pattern: str | None = ""
    rebalance_timeout_ms: int = -1
    #: What shall share out the partitions; None: whatever the broker prefers.
    assignor: str | None = None
    classic: ClassicMembership | None = None

    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = NOTHING_OWNED
    #: What it has to give up before it goes on to the next epoch.
    revoking: Owned = NOTHING_OWNED

    @property
    def is_classic(self) -> bool:
        return self.classic is not None

    @property
    def is_away(self) -> bool:
        """A static member that said that it would be back."""
        return self.member_epoch == LEAVES_FOR_NOW

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def given_in(self, topic_id: TopicId, partition: int) -> int | None:
        """The epoch in which it got the partition; None: it has it not."""
        since = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if since is None else since

    def at_epoch(self, member_epoch: int) -> ConsumerMember:
        return self._replace(member_epoch=member_epoch, previous_member_epoch=self.member_epoch)

    def subscription(self) -> tuple[object, ...]:
        """What the member's record says."""
        return self[:10]

    def standing(self) -> tuple[object, ...]:
        """What the record of its current assignment says."""
        return self[10:]


def partitions_of(owned: Owned) -> dict[TopicId, frozenset[int]]:
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}
