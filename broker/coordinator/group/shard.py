"""All groups of one partition of ``__consumer_offsets``.

Requests come in as plain values and go out as records and responses; ``replay`` takes the records
back, at append and at loading alike. What the log says of group protocols that are not served here
(KIP-848, share, streams) is remembered by its keys only: when such a group, which has no members
any more, is joined by members of the classic protocol, or deleted, those keys are deleted with it.
Otherwise a Kafka that gets this log back would find one group under two protocols.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.coordinator.group.classic import ClassicGroup
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
    DescribedGroup,
    FetchedOffset,
    FetchedTopic,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncRequest,
)
from broker.coordinator.group.states import GroupState
from broker.coordinator.ports import ShardTimers
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
#: Keys of the groups themselves, of KIP-848, share and streams groups: a Kafka that reads the log
#: wants to see them deleted after everything that belongs to the group.
_FOREIGN_GROUP_KEYS: Final = frozenset({3, 11, 17})


class GroupShard:
    """See the module's docstring."""

    def __init__(
        self,
        timers: ShardTimers,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        new_id: Callable[[], str],
    ) -> None:
        self._clock = clock
        self._config = config
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = OffsetTable()
        #: Group to keys of its records that other group protocols left.
        self._foreign: dict[str, set[bytes]] = {}
        self._rebalance = Rebalance(self.groups.get, timers, clock, config, new_id)

    # -- members ------------------------------------------------------------------------------

    def found(self, request: JoinRequest) -> CoordinatorResult[ErrorCode]:
        """Make the group that a first member is about to join. It is in the log before anybody
        hears of it."""
        group_id = request.group_id
        foreign = self._foreign.get(group_id, ())
        if any(key_type(key) in _SHARE_KEYS for key in foreign):
            return CoordinatorResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_known = group_id in self.groups
        if request.member_id != UNKNOWN_MEMBER_ID and not is_known:
            return CoordinatorResult(ErrorCode.UNKNOWN_MEMBER_ID)
        records = list(self._foreign_tombstones(group_id))
        if not is_known:
            now_ms = self._clock.wall_ms()
            records.append(group_record(group_id, StoredGroup("", 0, None, None, now_ms, ())))
        return CoordinatorResult(ErrorCode.NONE, records)

    def join(self, request: JoinRequest, answer: AnswerJoin) -> CoordinatorResult[None]:
        group = self.groups.get(request.group_id)
        if group is None:
            answer(JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            return nothing()
        return self._rebalance.join(group, request, answer)

    def sync(self, request: SyncRequest, answer: AnswerSync) -> CoordinatorResult[None]:
        group = self._group_of_member(request.group_id)
        return self._rebalance.sync(group, request, answer)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int
    ) -> CoordinatorResult[ErrorCode]:
        group = self._group_of_member(group_id)
        return CoordinatorResult(
            self._rebalance.heartbeat(group, member_id, instance_id, generation_id)
        )

    def leave(
        self, group_id: str, leaving: Sequence[LeavingMember]
    ) -> CoordinatorResult[list[ErrorCode]]:
        return self._rebalance.leave(self._group_of_member(group_id), leaving)

    def _group_of_member(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

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
        self, group_id: str, topics: Iterable[AskedTopic] | None, must_be_stable: bool
    ) -> list[FetchedTopic]:
        """``topics`` None: everything that the group has."""
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
        if not group.is_empty and not group.has_consumers:
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
        group = self.groups.get(group_id)
        if group is None:
            message = f"Group {group_id} not found."
            dead = GroupState.DEAD.value
            return DescribedGroup(group_id, dead, ErrorCode.GROUP_ID_NOT_FOUND, message)
        return group.described()

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
        partitions.update(self.offsets.pending_partitions(group_id))
        for topic, partition in sorted(partitions):
            yield offset_tombstone(group_id, topic, partition)
        yield from self._group_tombstones(group_id)

    def _group_tombstones(self, group_id: str) -> Iterator[CoordinatorRecord]:
        yield from self._foreign_tombstones(group_id)
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
        """Topics were deleted: so are the group's offsets on them."""
        records = [
            offset_tombstone(group_id, topic, partition)
            for topic, partitions in self.offsets.of_group(group_id).items()
            for partition, committed in partitions.items()
            if is_gone(topic, committed.topic_id)
        ]
        return CoordinatorResult(None, records, may_be_split=True)

    def on_loaded(self, group_id: str) -> CoordinatorResult[None]:
        group = self.groups.get(group_id)
        return nothing() if group is None else self._rebalance.on_loaded(group)

    def on_unloaded(self, error: ErrorCode) -> None:
        """Everybody who waits is told, and looks for the coordinator anew."""
        for group in self.groups.values():
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
        group = self.groups.pop(group_id, None)
        if group is not None:
            self._rebalance.end(group, ErrorCode.UNKNOWN_MEMBER_ID)

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


def _is_expired(
    group: ClassicGroup, committed: CommittedOffset, now_ms: int, retention_ms: int
) -> bool:
    if committed.expire_ms != NO_TIMESTAMP:
        return now_ms >= committed.expire_ms and group.offsets_expire_from(0) is not None
    since_ms = group.offsets_expire_from(committed.commit_ms)
    return since_ms is not None and now_ms - since_ms >= retention_ms
