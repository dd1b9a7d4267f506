"""How a member of a consumer group comes from what it has to what it is to have.

First it gives up what is another's in its target; in the meantime it stays in its epoch. Then it
goes on to the target's epoch and takes what is free; what others have not given up yet it gets with
a later heartbeat. Pure: a member in, the member as it shall be out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from broker.coordinator.group.consumer_member import (
    NOTHING_OWNED,
    Assignment,
    ConsumerMember,
    MemberState,
    Owned,
)
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicId

#: What a heartbeat says that the member owns; None: it says nothing.
Reported = Mapping[TopicId, Collection[int]] | None


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    subscribed: Collection[TopicId],
    has_new_subscription: bool,
    reported: Reported,
    is_owned: Callable[[TopicId, int], bool],
) -> ConsumerMember:
    """``is_owned``: whether any member still holds the partition. ``subscribed``: the topics that
    the member asks for now; whatever the target says, it keeps no others."""
    step = _Step(member, target_epoch, target, subscribed, reported, is_owned)
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch != target_epoch:
                return step.towards_target()
            return step.within_subscription() if has_new_subscription else member
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(reported, member.revoking):
                return step.within_subscription() if has_new_subscription else member
            return step.towards_target()
        case MemberState.UNRELEASED_PARTITIONS:
            return step.towards_target()
        case MemberState.UNKNOWN:
            # Nobody knows what a later Kafka meant: begin again, with nothing.
            if reported is None or reported:
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state."
                    " The member must abandon all its partitions and rejoin.",
                )
            return step.towards_target()


class _Step:
    def __init__(
        self,
        member: ConsumerMember,
        target_epoch: int,
        target: Assignment,
        subscribed: Collection[TopicId],
        reported: Reported,
        is_owned: Callable[[TopicId, int], bool],
    ) -> None:
        self._member = member
        self._target_epoch = target_epoch
        self._target = target
        self._subscribed = subscribed
        self._reported = reported
        self._is_owned = is_owned

    def towards_target(self) -> ConsumerMember:
        member, nobody = self._member, frozenset[int]()
        kept: dict[TopicId, dict[int, int]] = {}
        revoked: dict[TopicId, dict[int, int]] = {}
        added: dict[TopicId, list[int]] = {}
        is_waiting = False
        for topic_id in dict.fromkeys((*self._target, *member.assigned)):
            wanted = self._target.get(topic_id, nobody)
            if topic_id not in self._subscribed:
                wanted = nobody
            for partition, epoch in member.assigned.get(topic_id, {}).items():
                into = kept if partition in wanted else revoked
                into.setdefault(topic_id, {})[partition] = epoch
            for partition in sorted(wanted - kept.get(topic_id, {}).keys()):
                if self._is_owned(topic_id, partition):
                    is_waiting = True
                else:
                    added.setdefault(topic_id, []).append(partition)
        if revoked and _still_owns(self._reported, revoked):
            return self._unrevoked(kept, revoked)
        for topic_id, partitions in added.items():
            mine = kept.setdefault(topic_id, {})
            mine.update(dict.fromkeys(partitions, self._target_epoch))
        return member.at_epoch(self._target_epoch)._replace(
            state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
            assigned=kept,
            revoking=NOTHING_OWNED,
        )

    def within_subscription(self) -> ConsumerMember:
        """Take away what the member does not ask for any more, before a new target is there."""
        member = self._member
        kept: dict[TopicId, Mapping[int, int]] = {}
        revoked: dict[TopicId, Mapping[int, int]] = dict(member.revoking)
        has_lost = False
        for topic_id, partitions in member.assigned.items():
            if topic_id in self._subscribed:
                kept[topic_id] = partitions
            else:
                has_lost = True
                revoked[topic_id] = {**revoked.get(topic_id, {}), **partitions}
        if not has_lost:
            return member
        if _still_owns(self._reported, revoked):
            return self._unrevoked(kept, revoked)
        return member.at_epoch(member.member_epoch)._replace(assigned=kept)

    def _unrevoked(self, kept: Owned, revoked: Owned) -> ConsumerMember:
        member = self._member
        return member.at_epoch(member.member_epoch)._replace(
            state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=revoked
        )


def _still_owns(reported: Reported, revoked: Owned) -> bool:
    if reported is None:
        return True
    return any(
        partition in revoked.get(topic_id, ())
        for topic_id, partitions in reported.items()
        for partition in partitions
    )
