"""Groups on their way between the classic and the consumer protocol, without a stop.

The first member that speaks the newer protocol makes a consumer group of a classic one; members
that still speak the old one go on in it, by JoinGroup, SyncGroup and Heartbeat, with generations
that are their epochs. When the last member of the newer protocol goes, the group becomes a classic
one again. Both changes are one batch of records.

Timers of a classic member in a consumer group, besides its session: join, while it is expected to
join again; sync, from its join on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.coordinator.group.classic import ClassicGroup
from broker.coordinator.group.consumer import ConsumerGroup
from broker.coordinator.group.consumer_member import (
    NOTHING_ASSIGNED,
    ClassicMembership,
    ConsumerMember,
    MemberState,
    Owned,
    partitions_of,
)
from broker.coordinator.group.consumer_protocol import (
    CONSUMER,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from broker.coordinator.group.consumer_records import (
    TargetEpoch,
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from broker.coordinator.group.heartbeat import ConsumerGroups, join_timer, sync_timer
from broker.coordinator.group.member import Member
from broker.coordinator.group.records import (
    StoredGroup,
    StoredMember,
    group_record,
    group_tombstone,
)
from broker.coordinator.group.requests import (
    UNKNOWN_MEMBER_ID,
    AnswerJoin,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
)
from broker.coordinator.ports import KnownTopics, ShardTimers
from broker.coordinator.record_codec import MalformedRecord
from broker.coordinator.result import CoordinatorRecord, CoordinatorResult, nothing
from broker.log_limit import caused_by
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicId

logger = logging.getLogger(__name__)

DISABLED: Final = "disabled"
BIDIRECTIONAL: Final = "bidirectional"
UPGRADE: Final = "upgrade"
DOWNGRADE: Final = "downgrade"

Records = list[CoordinatorRecord]


class Migration:
    """See the module's docstring."""

    def __init__(
        self,
        consumers: ConsumerGroups,
        timers: ShardTimers,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        topics: Callable[[], KnownTopics],
        new_id: Callable[[], str],
    ) -> None:
        self._consumers = consumers
        self._timers = timers
        self._clock = clock
        self._config = config
        self._topics = topics
        self._new_id = new_id

    @property
    def _policy(self) -> str:
        return self._config().group_consumer_migration_policy.lower()

    # -- from classic to consumer -------------------------------------------------------------

    def check_upgrade(self, group: ClassicGroup) -> None:
        why = None
        if self._policy not in (BIDIRECTIONAL, UPGRADE):
            why = "online upgrade is disabled."
        elif not group.has_consumers:
            why = "the group does not use the consumer embedded protocol."
        elif len(group.members) > self._config().group_consumer_max_size:
            why = "the group size exceeds the consumer group maximum size."
        if why is not None:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group.group_id} to consumer group because {why}",
            )

    def upgraded(self, group: ClassicGroup, records: Records) -> ConsumerGroup:
        """The consumer group that ``records`` make of it: all of its members stand where they are,
        in an epoch that is their generation."""
        group_id, epoch = group.group_id, group.generation_id
        try:
            members = [self._upgraded_member(group, member) for member in group.members.values()]
        except MalformedRecord:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade the classic group {group_id} to consumer group because the"
                " embedded consumer protocol is malformed.",
            ) from None
        made = [member_record(group_id, each) for each in members]
        made.append(epoch_record(group_id, epoch, 0))
        made += [
            target_record(group_id, each.member_id, partitions_of(each.assigned))
            for each in members
        ]
        made.append(target_epoch_record(group_id, TargetEpoch(epoch)))
        made += [current_record(group_id, each) for each in members]
        consumer = ConsumerGroup(group_id)
        for key, value in made:
            consumer.replay(key, value)
        records.append(group_tombstone(group_id))
        records += made
        for member in members:
            self._consumers.set_session(group_id, member)
        logger.info(
            "group %s is upgraded to the consumer protocol", group_id, extra=caused_by("groups")
        )
        return consumer

    def _upgraded_member(self, group: ClassicGroup, member: Member) -> ConsumerMember:
        names = [protocol.name for protocol in member.protocols]
        name = group.protocol_name if group.protocol_name in names else names[0]
        subscription = read_subscription(member.metadata(name or ""))
        assigned: Owned = {
            topic_id: dict.fromkeys(partitions, group.generation_id)
            for topic_id, partitions in self._by_id(read_assignment(member.assignment)).items()
        }
        return ConsumerMember(
            member.member_id,
            member.group_instance_id,
            subscription.rack_id,
            member.client_id,
            member.client_host,
            frozenset(subscription.topics),
            "",
            member.rebalance_timeout_ms,
            None,
            ClassicMembership(member.session_timeout_ms, member.protocols),
            group.generation_id,
            group.generation_id,
            MemberState.STABLE,
            assigned,
        )

    def _by_id(self, partitions: Mapping[str, Sequence[int]]) -> dict[TopicId, Sequence[int]]:
        topics = self._topics().topics
        return {
            topics[name].topic_id: indexes for name, indexes in partitions.items() if name in topics
        }

    # -- from consumer to classic -------------------------------------------------------------

    def can_downgrade(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> bool:
        left = len(group.members) - len(leaving)
        return (
            0 < left <= self._config().group_max_size
            and self._policy in (BIDIRECTIONAL, DOWNGRADE)
            and group.are_all_classic_but(leaving)
        )

    def downgraded(
        self,
        group: ConsumerGroup,
        leaving: Sequence[ConsumerMember],
        joining: ConsumerMember | None = None,
    ) -> Records:
        """The records that make a classic group of it. ``joining`` takes the one leaving's place."""
        gone = {member.member_id for member in leaving}
        members = [each for each in group.members.values() if each.member_id not in gone]
        targets = {each.member_id: group.targets.get(each.member_id) for each in members}
        if joining is not None:
            members.append(joining)
            targets[joining.member_id] = group.targets.get(leaving[0].member_id)
        name = _protocol_of_all(members)
        stored = [
            StoredMember(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                each.rebalance_timeout_ms,
                _classic(each).session_timeout_ms,
                _metadata(each, name),
                self._assignment_of(each, name, targets[each.member_id] or NOTHING_ASSIGNED),
            )
            for each in members
        ]
        records = group.tombstones()
        for each in group.members:
            self._consumers.cancel_timers(group.group_id, each)
        now_ms = self._clock.wall_ms()
        leader_id = members[0].member_id
        made = StoredGroup(CONSUMER, group.group_epoch, name, leader_id, now_ms, tuple(stored))
        records.append(group_record(group.group_id, made))
        logger.info(
            "group %s is downgraded to the classic protocol",
            group.group_id,
            extra=caused_by("groups"),
        )
        return records

    def _assignment_of(
        self, member: ConsumerMember, protocol: str, partitions: Mapping[TopicId, object]
    ) -> bytes:
        version = read_subscription(_metadata(member, protocol)).version
        return write_assignment(version, self._by_name(partitions))

    def _by_name(self, partitions: Mapping[TopicId, object]) -> dict[str, list[int]]:
        topics = self._topics().topics_by_id
        return {
            topics[topic_id].name: sorted(indexes)  # type: ignore[call-overload]
            for topic_id, indexes in partitions.items()
            if topic_id in topics
        }

    # -- classic members of a consumer group --------------------------------------------------

    def join(
        self, group: ConsumerGroup, request: JoinRequest, answer: AnswerJoin
    ) -> CoordinatorResult[None]:
        """JoinGroup. Answered at once: nobody waits for anybody."""
        subscription = self._check_join(group, request)
        member_id = request.member_id or self._new_id()
        is_new = not request.member_id and request.group_instance_id is None
        if is_new and request.must_know_member_id:
            answer(JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return nothing()
        records: Records = []
        known = group.static_member(request.group_instance_id)
        before = self._joining(group, request, member_id, known, records)
        after = before._replace(
            group_instance_id=request.group_instance_id,
            rack_id=subscription.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topics=frozenset(subscription.topics),
            pattern="",
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            classic=ClassicMembership(request.session_timeout_ms, request.protocols),
        )
        consumers = self._consumers
        has_changed = consumers.note(group.group_id, before, after, records)
        has_changed |= consumers.note_pattern(group, before, after, records)[0]
        if known is not None and self._can_take_over(group, known):
            return self._take_over(group, known, after, answer)
        after = consumers.advance(
            group, after, has_changed, has_changed, self._by_id(subscription.owned), records
        )
        joined = _joined(after)

        def written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                answer(JoinAnswer(error, request.member_id))
                return
            group_id = group.group_id
            self._timers.cancel(join_timer(group_id, member_id))
            consumers.set_session(group_id, after)
            key = sync_timer(group_id, member_id)
            consumers.set_timer(key, request.rebalance_timeout_ms, group_id, member_id)
            answer(joined)

        return CoordinatorResult(None, records, on_written=written)

    def _check_join(self, group: ConsumerGroup, request: JoinRequest) -> Subscription:
        most = self._config().group_consumer_max_size
        is_known = (
            request.member_id in group.members
            or group.static_member(request.group_instance_id) is not None
        )
        if len(group.members) >= most and not is_known:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        names = [protocol.name for protocol in request.protocols]
        if self._policy == DISABLED or not group.supports_classic(request.protocol_type, names):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        try:
            return read_subscription(request.protocols[0].metadata)
        except MalformedRecord as error:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None

    def _joining(
        self,
        group: ConsumerGroup,
        request: JoinRequest,
        member_id: str,
        known: ConsumerMember | None,
        records: Records,
    ) -> ConsumerMember:
        instance_id = request.group_instance_id
        if instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if request.member_id != UNKNOWN_MEMBER_ID:
            return self._consumers.static_or_raise(known, instance_id, member_id)
        if known is None:
            return ConsumerMember(member_id)
        return self._consumers.replace(group, known, member_id, records)

    def _can_take_over(self, group: ConsumerGroup, known: ConsumerMember) -> bool:
        return (
            not known.is_classic
            and self._policy in (BIDIRECTIONAL, DOWNGRADE)
            and len(group.members) <= self._config().group_max_size
            and group.are_all_classic_but([known])
        )

    def _take_over(
        self,
        group: ConsumerGroup,
        known: ConsumerMember,
        after: ConsumerMember,
        answer: AnswerJoin,
    ) -> CoordinatorResult[None]:
        """A static member comes back with the classic protocol, and was the last of the newer one."""
        after = after.at_epoch(group.group_epoch)
        records = self.downgraded(group, [known], after)

        def written(error: ErrorCode) -> CoordinatorResult[None] | None:
            if error is not ErrorCode.NONE:
                answer(JoinAnswer(error))
                return None
            answer(_joined(after))
            return self.on_downgraded(group.group_id, after.topics != known.topics)

        return CoordinatorResult(None, records, on_written=written)

    #: What the shard does with a group that has just become a classic one; True: rebalance it.
    on_downgraded: Callable[[str, bool], CoordinatorResult[None]]

    def sync(self, group: ConsumerGroup, request: SyncRequest) -> SyncAnswer:
        member = self._member(
            group, request.member_id, request.group_instance_id, request.generation_id
        )
        name = _classic(member).protocols[0].name
        if request.protocol_type not in (None, CONSUMER) or request.protocol_name not in (
            None,
            name,
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        group_id, member_id = group.group_id, member.member_id
        if (
            group.assignment_epoch > member.member_epoch
            and member.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            self._expect_join(group_id, member)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._timers.cancel(sync_timer(group_id, member_id))
        self._consumers.set_session(group_id, member)
        assignment = self._assignment_of(member, name, partitions_of(member.assigned))
        return SyncAnswer(ErrorCode.NONE, request.protocol_type, request.protocol_name, assignment)

    def heartbeat(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        member = self._member(group, member_id, instance_id, generation_id)
        self._consumers.set_session(group.group_id, member)
        if (
            member.member_epoch < group.group_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (
                member.state is MemberState.UNRELEASED_PARTITIONS
                and not _waits_for_others(group, member)
            )
        ):
            self._expect_join(group.group_id, member)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leaving(
        self, group: ConsumerGroup, asked: Sequence[LeavingMember]
    ) -> tuple[list[ErrorCode], list[ConsumerMember]]:
        """A code for each that asks to leave, and the members that do."""
        codes: list[ErrorCode] = []
        found: dict[str, ConsumerMember] = {}
        for member_id, instance_id in asked:
            try:
                member = self._named(group, member_id, instance_id)
            except KafkaError as error:
                codes.append(error.code)
            else:
                codes.append(ErrorCode.NONE)
                found[member.member_id] = member
        return codes, list(found.values())

    def _named(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> ConsumerMember:
        if instance_id is None:
            member = group.member_or_raise(member_id)
        else:
            known = group.static_member(instance_id)
            if known is not None and member_id == UNKNOWN_MEMBER_ID:
                member_id = known.member_id  # an administrator removes it
            member = self._consumers.static_or_raise(known, instance_id, member_id)
        if not member.is_classic:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def _member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
    ) -> ConsumerMember:
        if instance_id is None:
            member = group.member_or_raise(member_id)
        else:
            known = group.static_member(instance_id)
            member = self._consumers.static_or_raise(known, instance_id, member_id)
        if not member.is_classic:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if generation_id != member.member_epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        return member

    def _expect_join(self, group_id: str, member: ConsumerMember) -> None:
        key = join_timer(group_id, member.member_id)
        if not self._timers.is_set(key):
            self._consumers.set_timer(key, member.rebalance_timeout_ms, group_id, member.member_id)


def _joined(member: ConsumerMember) -> JoinAnswer:
    return JoinAnswer(
        ErrorCode.NONE,
        member.member_id,
        member.member_epoch,
        CONSUMER,
        _classic(member).protocols[0].name,
    )


def _classic(member: ConsumerMember) -> ClassicMembership:
    assert member.classic is not None, member.member_id
    return member.classic


def _metadata(member: ConsumerMember, protocol: str) -> bytes:
    for each in _classic(member).protocols:
        if each.name == protocol:
            return each.metadata
    raise AssertionError(f"{member.member_id} does not offer {protocol}")


def _protocol_of_all(members: Sequence[ConsumerMember]) -> str:
    """That which everybody offers, as the first of them likes it best; joins saw to it that there
    is one."""
    for protocol in _classic(members[0]).protocols:
        if all(
            any(each.name == protocol.name for each in _classic(member).protocols)
            for member in members
        ):
            return protocol.name
    raise AssertionError("no protocol in common")


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return any(
        partition not in member.assigned.get(topic_id, ()) and group.is_held(topic_id, partition)
        for topic_id, partitions in group.target_of(member).items()
        for partition in partitions
    )
