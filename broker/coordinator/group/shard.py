"""All groups of one partition of ``__consumer_offsets``.

Requests come in as plain values and go out as records and responses; ``replay`` takes the records
back, at append and at loading alike. A group is of the classic or of the consumer protocol (KIP-848),
and may change from one to the other (``migration``). What the log says of group protocols that are
not served here (share, streams) is remembered by its keys only: when such a group, which has no
members any more, is joined by others, or deleted, those keys are deleted with it. Otherwise a Kafka
that gets this log back would find one group under two protocols.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.coordinator.group import consumer_records
from broker.coordinator.group.classic import ClassicGroup
from broker.coordinator.group.consumer import ConsumerGroup
from broker.coordinator.group.consumer_member import JOINS, ConsumerMember
from broker.coordinator.group.heartbeat import ConsumerGroups, R
from broker.coordinator.group.migration import Migration
from broker.coordinator.group.offsets import OffsetTable
from broker.coordinator.group.rebalance import Rebalance
from broker.coordinator.group.records import (
    GROUP_KEY,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    OFFSET_KEY,
    CommittedOffset,
    StoredGroup,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
    read_group_id,
    read_group_value,
    read_offset_key,
    read_offset_value,
)
from broker.coordinator.group.requests import (
    UNKNOWN_MEMBER_ID,
    AnswerJoin,
    AnswerSync,
    AskedTopic,
    CommitRequest,
    CommittedPartition,
    DescribedConsumerGroup,
    DescribedGroup,
    FetchedOffset,
    FetchedTopic,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncRequest,
)
from broker.coordinator.group.states import GroupState
from broker.coordinator.ports import KnownTopics, PatternMatcher, ShardTimers
from broker.coordinator.record_codec import key_type
from broker.coordinator.result import CoordinatorRecord, CoordinatorResult, Producer, nothing
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import ZERO_TOPIC_ID, TopicId

logger = logging.getLogger(__name__)

NO_PRODUCER_ID: Final = -1
_MINUTE_MS: Final = 60_000
#: Keys of share groups, which classic members may not join.
_SHARE_KEYS: Final = frozenset(range(10, 16))
#: Keys of the groups themselves, of share and streams groups: a Kafka that reads the log wants to
#: see them deleted after everything that belongs to the group.
_FOREIGN_GROUP_KEYS: Final = frozenset({11, 17})

Group = ClassicGroup | ConsumerGroup


class GroupShard:
    """See the module's docstring."""

    def __init__(
        self,
        timers: ShardTimers,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        new_id: Callable[[], str],
        topics: Callable[[], KnownTopics],
        matcher: PatternMatcher,
    ) -> None:
        self._clock = clock
        self._config = config
        self._new_id = new_id
        self._topics = topics
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetTable()
        #: Group to keys of its records that other group protocols left.
        self._foreign: dict[str, set[bytes]] = {}
        self._rebalance = Rebalance(self._find_classic, timers, clock, config, new_id)
        self._consumers = ConsumerGroups(self.groups.get, timers, clock, config, topics, matcher)
        self._migration = Migration(self._consumers, timers, clock, config, topics, new_id)
        self._consumers.on_silent = self._remove_silent
        self._migration.on_downgraded = self._on_downgraded

    def _find_classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # -- members ------------------------------------------------------------------------------

    def found(self, request: JoinRequest) -> CoordinatorResult[ErrorCode]:
        """Make the group that a first member is about to join. It is in the log before anybody
        hears of it."""
        group_id = request.group_id
        group = self.groups.get(group_id)
        if self._is_share(group_id):
            return CoordinatorResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return CoordinatorResult(ErrorCode.NONE)
        is_known = isinstance(group, ClassicGroup)
        if request.member_id != UNKNOWN_MEMBER_ID and not is_known:
            return CoordinatorResult(ErrorCode.UNKNOWN_MEMBER_ID)
        records = list(self._foreign_tombstones(group_id))
        if isinstance(group, ConsumerGroup):
            records += group.tombstones()
        if not is_known:
            now_ms = self._clock.wall_ms()
            records.append(group_record(group_id, StoredGroup("", 0, None, None, now_ms, ())))
        return CoordinatorResult(ErrorCode.NONE, records)

    def join(self, request: JoinRequest, answer: AnswerJoin) -> CoordinatorResult[None]:
        group = self.groups.get(request.group_id)
        if group is None:
            answer(JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            return nothing()
        if isinstance(group, ConsumerGroup):
            return self._migration.join(group, request, answer)
        return self._rebalance.join(group, request, answer)

    def sync(self, request: SyncRequest, answer: AnswerSync) -> CoordinatorResult[None]:
        group = self._group_of_member(request.group_id)
        if isinstance(group, ConsumerGroup):
            answer(self._migration.sync(group, request))
            return nothing()
        return self._rebalance.sync(group, request, answer)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int
    ) -> CoordinatorResult[ErrorCode]:
        group = self._group_of_member(group_id)
        machine = self._migration if isinstance(group, ConsumerGroup) else self._rebalance
        return CoordinatorResult(
            machine.heartbeat(group, member_id, instance_id, generation_id)  # type: ignore[arg-type]
        )

    def leave(
        self, group_id: str, leaving: Sequence[LeavingMember]
    ) -> CoordinatorResult[list[ErrorCode]]:
        group = self._group_of_member(group_id)
        if not isinstance(group, ConsumerGroup):
            return self._rebalance.leave(group, leaving)
        codes, members = self._migration.leaving(group, leaving)
        if not members:
            return CoordinatorResult(codes)
        return self._consumers.remove(group, members, codes)

    def _is_share(self, group_id: str) -> bool:
        return any(key_type(key) in _SHARE_KEYS for key in self._foreign.get(group_id, ()))

    def _group_of_member(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # -- members of consumer groups (KIP-848) -------------------------------------------------

    def consumer_heartbeat(self, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatAnswer]:
        try:
            return self._consumer_heartbeat(request)
        except KafkaError as error:
            return CoordinatorResult(HeartbeatAnswer(error.code, error.message or None))

    def _consumer_heartbeat(self, request: HeartbeatRequest) -> CoordinatorResult[HeartbeatAnswer]:
        if request.member_epoch < JOINS:
            group = self._consumer_or_raise(request.group_id)
            return self._consumers.leave(group, request, self._dismiss)
        if not request.member_id:
            request = request._replace(member_id=self._new_id())
        records: list[CoordinatorRecord] = []
        group = self._consumer_group(request, records)
        return self._consumers.heartbeat(group, request, records)

    def _consumer_or_raise(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if group is not None or group_id in self._foreign:
            message = f"Group {group_id} is not a consumer group."
        else:
            message = f"Group {group_id} not found."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)

    def _consumer_group(
        self, request: HeartbeatRequest, records: list[CoordinatorRecord]
    ) -> ConsumerGroup:
        """The group as ``records`` make it: a new one, or one that was a classic one."""
        group_id = request.group_id
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if request.member_epoch != JOINS or self._is_share(group_id):
            if group is None and group_id not in self._foreign:
                raise KafkaError(
                    ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found."
                )
            return self._consumer_or_raise(group_id)
        if group is not None and not group.is_empty:
            self._migration.check_upgrade(group)
        records += self._foreign_tombstones(group_id)
        if group is None:
            return ConsumerGroup(group_id)
        if group.is_empty:
            records.append(group_tombstone(group_id))
            return ConsumerGroup(group_id)
        upgraded = self._migration.upgraded(group, records)
        # Whoever waits for the others of a classic generation shall join again, in the new group.
        self._rebalance.release(group, ErrorCode.REBALANCE_IN_PROGRESS)
        return upgraded

    def _dismiss(
        self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], answer: R
    ) -> CoordinatorResult[R]:
        if not self._migration.can_downgrade(group, leaving):
            return self._consumers.remove(group, leaving, answer)
        records = self._migration.downgraded(group, leaving)

        def written(error: ErrorCode) -> CoordinatorResult[None] | None:
            if error is not ErrorCode.NONE:
                return None
            return self._on_downgraded(group.group_id, True)

        return CoordinatorResult(answer, records, on_written=written)

    def _remove_silent(
        self, group: ConsumerGroup, member: ConsumerMember
    ) -> CoordinatorResult[None]:
        return self._dismiss(group, [member], None)

    def _on_downgraded(self, group_id: str, must_rebalance: bool) -> CoordinatorResult[None]:
        group = self._find_classic(group_id)
        if group is None:
            return nothing()
        result = self._rebalance.on_loaded(group)
        if must_rebalance and group.can_rebalance:
            return self._rebalance.prepare(group)
        return result

    # -- offsets ------------------------------------------------------------------------------

    def commit(self, request: CommitRequest) -> CoordinatorResult[list[ErrorCode]]:
        """One code for each of the request's partitions."""
        self._check_commit(request)
        return self._committing(request, None)

    def commit_in_transaction(
        self, request: CommitRequest, producer: Producer
    ) -> CoordinatorResult[list[ErrorCode]]:
        """The offsets take effect when the producer's transaction is committed. The caller has
        verified that the group is part of it."""
        self._check_transactional_commit(request)
        return self._committing(request, producer)

    def _committing(
        self, request: CommitRequest, producer: Producer | None
    ) -> CoordinatorResult[list[ErrorCode]]:
        config = self._config()
        now_ms = self._clock.wall_ms()
        expire_ms = NO_TIMESTAMP
        if request.retention_ms is not None:
            expire_ms = now_ms + request.retention_ms
        codes: list[ErrorCode] = []
        records: list[CoordinatorRecord] = []
        for asked in request.partitions:
            if _is_too_long(asked.metadata, config.offset_metadata_max_bytes):
                codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            codes.append(ErrorCode.NONE)
            committed = _committed(asked, now_ms, expire_ms)
            records.append(offset_record(request.group_id, asked.topic, asked.partition, committed))
        return CoordinatorResult(codes, records, producer=producer)

    def _check_transactional_commit(self, request: CommitRequest) -> None:
        """Kafka's rules: clients of old name no member, and a rebalance in progress is no matter."""
        group = self.groups.get(request.group_id)
        generation_id = request.generation_id
        if group is None:
            if generation_id >= 0:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            return
        if isinstance(group, ConsumerGroup):
            _check_commit_of_consumer(group, request, True)
            return
        if generation_id < 0 and group.is_empty:
            return
        names_member = request.member_id != UNKNOWN_MEMBER_ID
        if generation_id < 0 and not names_member and request.group_instance_id is None:
            return
        group.member_or_raise(request.member_id, request.group_instance_id)
        if generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    def _check_commit(self, request: CommitRequest) -> None:
        group = self.groups.get(request.group_id)
        generation_id = request.generation_id
        if group is None:
            if generation_id < 0:
                return  # a consumer of its own, which only keeps offsets here
            missing = ErrorCode.GROUP_ID_NOT_FOUND
            raise KafkaError(
                missing if request.knows_missing_groups else ErrorCode.ILLEGAL_GENERATION
            )
        if isinstance(group, ConsumerGroup):
            _check_commit_of_consumer(group, request, False)
            return
        if generation_id < 0 and group.is_empty:
            return
        names_member = request.member_id != UNKNOWN_MEMBER_ID
        if generation_id < 0 and not names_member and request.group_instance_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.member_or_raise(request.member_id, request.group_instance_id)
        if generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if group.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalance.keep_alive(group, member)

    def fetch(
        self,
        group_id: str,
        topics: Iterable[AskedTopic] | None,
        must_be_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> list[FetchedTopic]:
        """``topics`` None: everything that the group has."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and (member_id is not None or member_epoch >= 0):
            member = group.member_or_raise(member_id or "")
            if member_epoch != member.member_epoch:
                raise KafkaError(_wrong_epoch(member))
        if topics is None:
            if group_id not in self.groups:
                return []
            return [
                FetchedTopic(
                    topic,
                    [
                        self._fetched(group_id, topic, partition, committed, must_be_stable)
                        for partition, committed in list(partitions.items())
                    ],
                )
                for topic, partitions in list(self.offsets.of_group(group_id).items())
            ]
        found = []
        for topic, topic_id, partitions in topics:
            offsets = []
            for partition in partitions:
                committed = None
                if group_id in self.groups:
                    committed = self.offsets.get(group_id, topic, partition)
                if committed is not None and _is_other_topic(committed.topic_id, topic_id):
                    committed = None
                offsets.append(self._fetched(group_id, topic, partition, committed, must_be_stable))
            found.append(FetchedTopic(topic, offsets, topic_id))
        return found

    def _fetched(
        self,
        group_id: str,
        topic: str,
        partition: int,
        committed: CommittedOffset | None,
        must_be_stable: bool,
    ) -> FetchedOffset:
        if must_be_stable and self.offsets.has_pending(group_id, topic, partition):
            return FetchedOffset(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        if committed is None:
            return FetchedOffset(partition)
        return FetchedOffset(
            partition,
            ErrorCode.NONE,
            committed.offset,
            committed.leader_epoch,
            committed.metadata,
        )

    def delete_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]]
    ) -> CoordinatorResult[list[ErrorCode]]:
        """One code for each of ``partitions``."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if isinstance(group, ClassicGroup) and not group.is_empty and not group.has_consumers:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        codes: list[ErrorCode] = []
        records: list[CoordinatorRecord] = []
        for topic, partition in partitions:
            if group.is_subscribed_to(topic):
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            codes.append(ErrorCode.NONE)
            if self._has_offset(group_id, topic, partition):
                records.append(offset_tombstone(group_id, topic, partition))
        return CoordinatorResult(codes, records)

    def _has_offset(self, group_id: str, topic: str, partition: int) -> bool:
        return self.offsets.get(group_id, topic, partition) is not None or self.offsets.has_pending(
            group_id, topic, partition
        )

    # -- administration -----------------------------------------------------------------------

    def describe(self, group_id: str) -> DescribedGroup:
        """By DescribeGroups, which knows classic groups only."""
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return group.described()
        is_other = isinstance(group, ConsumerGroup)
        message = f"Group {group_id} {'is not a classic group' if is_other else 'not found'}."
        dead = GroupState.DEAD.value
        return DescribedGroup(group_id, dead, ErrorCode.GROUP_ID_NOT_FOUND, message)

    def describe_consumer(self, group_id: str) -> DescribedConsumerGroup:
        try:
            return self._consumers.described(self._consumer_or_raise(group_id))
        except KafkaError as error:
            return DescribedConsumerGroup(group_id, error.code, error.message)

    def delete(self, group_id: str) -> CoordinatorResult[ErrorCode]:
        group = self.groups.get(group_id)
        if group is None:
            return CoordinatorResult(ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty:
            return CoordinatorResult(ErrorCode.NON_EMPTY_GROUP)
        return CoordinatorResult(
            ErrorCode.NONE, list(self._tombstones(group_id)), may_be_split=True
        )

    def _tombstones(self, group_id: str) -> Iterator[CoordinatorRecord]:
        """Offsets first: were the rest lost, the group would still be there to be deleted again."""
        partitions = {
            (topic, partition)
            for topic, of_topic in self.offsets.of_group(group_id).items()
            for partition in of_topic
        }
        partitions.update(each[:2] for each in self.offsets.pending(group_id))
        for topic, partition in sorted(partitions):
            yield offset_tombstone(group_id, topic, partition)
        yield from self._group_tombstones(group_id)

    def _group_tombstones(self, group_id: str) -> Iterator[CoordinatorRecord]:
        yield from self._foreign_tombstones(group_id)
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            yield from group.tombstones()
        else:
            yield group_tombstone(group_id)

    def _foreign_tombstones(self, group_id: str) -> Iterator[CoordinatorRecord]:
        """In Kafka's order: a member's assignments before the member, the group last."""

        def place(key: bytes) -> tuple[bool, int]:
            kind = key_type(key)
            return kind in _FOREIGN_GROUP_KEYS, -kind

        for key in sorted(self._foreign.get(group_id, ()), key=place):
            yield CoordinatorRecord(key, None)

    # -- the passing of time, and of topics ---------------------------------------------------

    def expire(self, group_id: str) -> CoordinatorResult[None]:
        """Delete what the group's offsets retention has passed (KIP-211), and the group with its
        last offset, if nobody is in it."""
        group = self.groups.get(group_id)
        if group is None:
            return nothing()
        now_ms = self._clock.wall_ms()
        retention_ms = self._config().offsets_retention_minutes * _MINUTE_MS
        records: list[CoordinatorRecord] = []
        is_anything_left = self.offsets.has_open_transactions(group_id)
        for topic, partitions in self.offsets.of_group(group_id).items():
            is_read = group.is_subscribed_to(topic)
            for partition, committed in partitions.items():
                if (
                    is_read
                    or not _is_expired(group, committed, now_ms, retention_ms)
                    or self.offsets.has_pending(group_id, topic, partition)
                ):
                    is_anything_left = True
                else:
                    records.append(offset_tombstone(group_id, topic, partition))
        if not is_anything_left and group.is_empty:
            records.extend(self._group_tombstones(group_id))
        return CoordinatorResult(None, records, may_be_split=True)

    def forget_topics(
        self, group_id: str, is_gone: Callable[[str, TopicId], bool]
    ) -> CoordinatorResult[None]:
        """Topics were deleted: so are the group's offsets on them, those of open transactions too."""
        committed = [
            (topic, partition, offset)
            for topic, partitions in self.offsets.of_group(group_id).items()
            for partition, offset in partitions.items()
        ]
        gone = {
            (topic, partition)
            for topic, partition, offset in (*committed, *self.offsets.pending(group_id))
            if is_gone(topic, offset.topic_id)
        }
        records = [offset_tombstone(group_id, *each) for each in sorted(gone)]
        return CoordinatorResult(None, records, may_be_split=True)

    def on_loaded(self, group_id: str) -> CoordinatorResult[None]:
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            self._consumers.on_loaded(group)
        elif group is not None:
            return self._rebalance.on_loaded(group)
        return nothing()

    def on_unloaded(self, error: ErrorCode) -> None:
        """Everybody who waits is told, and looks for the coordinator anew."""
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                self._rebalance.end(group, error)

    # -- replay -------------------------------------------------------------------------------

    def replay(
        self, offset: int, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """A record at ``offset``, within a transaction if it has a producer. Raises
        ``MalformedRecord``."""
        kind = key_type(key)
        if kind <= OFFSET_KEY:
            self._replay_offset(offset, key, value, producer_id)
        elif kind == GROUP_KEY:
            group_id = read_group_id(key)
            if value is None:
                self._replay_group_deletion(group_id)
            else:
                self.groups[group_id] = ClassicGroup.restored(group_id, read_group_value(value))
        elif kind in consumer_records.KEYS:
            self._replay_consumer(read_group_id(key), key, value)
        else:
            self._replay_foreign(read_group_id(key), key, value)

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        self.offsets.replay_marker(producer_id, is_commit)

    def _replay_offset(
        self, offset: int, key: bytes, value: bytes | None, producer_id: int
    ) -> None:
        group_id, topic, partition = read_offset_key(key)
        if value is None:
            self.offsets.replay_deletion(group_id, topic, partition)
            return
        committed = read_offset_value(value, offset)
        if group_id not in self.groups:
            self.groups[group_id] = ClassicGroup(group_id, self._clock.wall_ms())
        if producer_id == NO_PRODUCER_ID:
            self.offsets.replay_commit(group_id, topic, partition, committed)
        else:
            self.offsets.replay_pending_commit(producer_id, group_id, topic, partition, committed)

    def _replay_group_deletion(self, group_id: str) -> None:
        group = self.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            del self.groups[group_id]
            self._rebalance.end(group, ErrorCode.UNKNOWN_MEMBER_ID)

    def _replay_consumer(self, group_id: str, key: bytes, value: bytes | None) -> None:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            # A classic group that nobody ever joined only kept offsets, which stay.
            if value is None or (group is not None and group.protocol_type is not None):
                return
            group = self.groups[group_id] = ConsumerGroup(group_id)
        group.replay(key, value)
        if value is None and key_type(key) == consumer_records.EPOCH_KEY:
            del self.groups[group_id]
            self._consumers.end(group)
            if self.offsets.has_any(group_id):
                self.groups[group_id] = ClassicGroup(group_id, self._clock.wall_ms())

    def _replay_foreign(self, group_id: str, key: bytes, value: bytes | None) -> None:
        keys = self._foreign.setdefault(group_id, set())
        if value is None:
            keys.discard(key)
        else:
            keys.add(key)
        if not keys:
            del self._foreign[group_id]


def _committed(asked: CommittedPartition, now_ms: int, expire_ms: int) -> CommittedOffset:
    leader_epoch = asked.leader_epoch
    return CommittedOffset(
        asked.offset,
        leader_epoch if leader_epoch >= 0 else NO_LEADER_EPOCH,
        asked.metadata or "",
        now_ms,
        expire_ms,
        asked.topic_id,
    )


def _is_too_long(metadata: str | None, limit: int) -> bool:
    """Kafka counts UTF-16 units."""
    if metadata is None or len(metadata) * 2 <= limit:
        return False
    return len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > limit


def _is_other_topic(committed: TopicId, asked: TopicId) -> bool:
    """The offset belongs to an earlier topic of this name."""
    return ZERO_TOPIC_ID not in (committed, asked) and committed != asked


def _check_commit_of_consumer(
    group: ConsumerGroup, request: CommitRequest, is_transactional: bool
) -> None:
    """A member may commit for partitions that it got in the epoch that it names, or earlier, and
    has not given up since."""
    member_epoch = request.generation_id
    if member_epoch < 0 and group.is_empty:
        return
    names_nobody = not request.member_id and request.group_instance_id is None
    if is_transactional and member_epoch == -1 and names_nobody:
        return
    member = group.member_or_raise(request.member_id)
    if not is_transactional and not member.is_classic and not request.knows_missing_groups:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if member_epoch == member.member_epoch:
        return
    if member_epoch > member.member_epoch:
        raise KafkaError(_wrong_epoch(member))
    for asked in request.partitions:
        since = member.given_in(asked.topic_id, asked.partition)
        if since is None or member_epoch < since:
            raise KafkaError(_wrong_epoch(member))


def _wrong_epoch(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH


def _is_expired(group: Group, committed: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
    if isinstance(group, ConsumerGroup):
        if committed.expire_ms != NO_TIMESTAMP:
            return now_ms >= committed.expire_ms
        return now_ms - committed.commit_ms >= retention_ms
    if committed.expire_ms != NO_TIMESTAMP:
        return now_ms >= committed.expire_ms and group.offsets_expire_from(0) is not None
    since_ms = group.offsets_expire_from(committed.commit_ms)
    return since_ms is not None and now_ms - since_ms >= retention_ms
