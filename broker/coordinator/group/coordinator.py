"""What handlers ask about groups: finds the shard, checks what concerns no group in particular.

Answers come by callback, once each, inside the call or later: later while members join or the
disk is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.coordinator.group.heartbeat import check_request
from broker.coordinator.group.requests import (
    AnswerHeartbeat,
    AnswerJoin,
    AnswerSync,
    AskedTopic,
    CommitRequest,
    DescribedConsumerGroup,
    DescribedGroup,
    FetchedTopic,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    ListedGroup,
    SyncAnswer,
    SyncRequest,
)
from broker.coordinator.group.shard import GroupShard
from broker.coordinator.hashing import partition_for
from broker.coordinator.ports import KnownTopics, PartitionLog, PatternMatcher, ShardTimers
from broker.coordinator.result import CoordinatorResult, Producer
from broker.coordinator.runtime import HostedState, Runtime
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError

#: The group's error, and one code for each thing asked (empty if the group's is not NONE).
Codes = Callable[[ErrorCode, Sequence[ErrorCode]], None]


class GroupCoordinator:
    """See the module's docstring."""

    def __init__(
        self,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        new_id: Callable[[], str],
        partition_count: Callable[[], int],
        on_deadline: Callable[[], None],
        topics: Callable[[], KnownTopics],
        matcher: PatternMatcher,
    ) -> None:
        self._config = config
        #: Of ``__consumer_offsets``; 0 while there is no such topic.
        self._partition_count = partition_count

        def new_shard(timers: ShardTimers, _log: PartitionLog) -> GroupShard:
            return GroupShard(timers, clock, config, new_id, topics, matcher)

        self.runtime: Runtime[GroupShard] = Runtime(clock, new_shard, on_deadline)

    def index_of(self, group_id: str) -> int:
        """The partition that holds the group; one that nobody hosts while there is no topic."""
        count = self._partition_count()
        return partition_for(group_id, count) if count else -1

    # -- members ------------------------------------------------------------------------------

    def join(self, request: JoinRequest, answer: AnswerJoin) -> None:
        config = self._config()
        timeout_ms = request.session_timeout_ms
        if not request.group_id:
            answer(JoinAnswer(ErrorCode.INVALID_GROUP_ID, request.member_id))
            return
        if not (
            config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms
        ):
            answer(JoinAnswer(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
            return

        has_run = False

        def operation(shard: GroupShard) -> CoordinatorResult[None]:
            nonlocal has_run
            result = shard.join(request, answer)
            has_run = True
            return result

        def failed(error: ErrorCode) -> None:
            if not has_run:  # else the machine answers, also where its records are refused
                answer(JoinAnswer(error, request.member_id))

        def found(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self.runtime.write(index, operation, _ignore, failed)
            else:
                failed(error)

        index = self.index_of(request.group_id)
        self.runtime.write(index, lambda shard: shard.found(request), found, failed)

    def sync(self, request: SyncRequest, answer: AnswerSync) -> None:
        if not request.group_id:
            answer(SyncAnswer(ErrorCode.INVALID_GROUP_ID))
            return
        has_run = False

        def operation(shard: GroupShard) -> CoordinatorResult[None]:
            nonlocal has_run
            result = shard.sync(request, answer)
            has_run = True
            return result

        def failed(error: ErrorCode) -> None:
            if not has_run:
                answer(SyncAnswer(error))

        index = self.index_of(request.group_id)
        self.runtime.write(index, operation, _ignore, failed)

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        done: Callable[[ErrorCode], None],
    ) -> None:
        if not group_id:
            done(ErrorCode.INVALID_GROUP_ID)
            return

        def failed(error: ErrorCode) -> None:
            # While its group is being loaded a member does well to go on.
            is_loading = error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            done(ErrorCode.NONE if is_loading else error)

        self.runtime.write(
            self.index_of(group_id),
            lambda shard: shard.heartbeat(group_id, member_id, group_instance_id, generation_id),
            done,
            failed,
        )

    def leave(self, group_id: str, leaving: Sequence[LeavingMember], done: Codes) -> None:
        if not group_id:
            done(ErrorCode.INVALID_GROUP_ID, ())
            return

        def failed(error: ErrorCode) -> None:
            if error is ErrorCode.UNKNOWN_MEMBER_ID:  # there is no such group
                done(ErrorCode.NONE, [error] * len(leaving))
            else:
                done(error, ())

        self.runtime.write(
            self.index_of(group_id),
            lambda shard: shard.leave(group_id, leaving),
            partial(done, ErrorCode.NONE),
            failed,
        )

    def consumer_heartbeat(self, request: HeartbeatRequest, done: AnswerHeartbeat) -> None:
        try:
            check_request(request, self._config().group_consumer_assignors)
        except KafkaError as error:
            done(HeartbeatAnswer(error.code, error.message))
            return
        self.runtime.write(
            self.index_of(request.group_id),
            lambda shard: shard.consumer_heartbeat(request),
            done,
            lambda error: done(HeartbeatAnswer(error)),
        )

    # -- offsets ------------------------------------------------------------------------------

    def commit(self, request: CommitRequest, done: Codes) -> None:
        self.runtime.write(
            self.index_of(request.group_id),
            lambda shard: shard.commit(request),
            partial(done, ErrorCode.NONE),
            lambda error: done(error, ()),
        )

    def commit_in_transaction(
        self, request: CommitRequest, producer: Producer, done: Codes
    ) -> None:
        """The caller has verified that the group is part of the producer's transaction."""
        if not request.group_id:
            done(ErrorCode.INVALID_GROUP_ID, ())
            return
        self.runtime.write(
            self.index_of(request.group_id),
            lambda shard: shard.commit_in_transaction(request, producer),
            partial(done, ErrorCode.NONE),
            lambda error: done(error, ()),
        )

    def fetch(
        self,
        group_id: str,
        topics: Iterable[AskedTopic] | None,
        must_be_stable: bool,
        done: Callable[[ErrorCode, Sequence[FetchedTopic]], None],
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> None:
        self.runtime.read(
            self.index_of(group_id),
            lambda shard: shard.fetch(group_id, topics, must_be_stable, member_id, member_epoch),
            partial(done, ErrorCode.NONE),
            lambda error: done(error, ()),
        )

    def delete_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]], done: Codes
    ) -> None:
        if not group_id:
            done(ErrorCode.INVALID_GROUP_ID, ())
            return
        self.runtime.write(
            self.index_of(group_id),
            lambda shard: shard.delete_offsets(group_id, partitions),
            partial(done, ErrorCode.NONE),
            lambda error: done(error, ()),
        )

    # -- administration -----------------------------------------------------------------------

    def group_ids(self) -> list[tuple[int, str]]:
        """(shard, group) of all groups. Raises while a shard is being loaded: a list that is not
        whole would look as if the rest were gone."""
        found: list[tuple[int, str]] = []
        for hosted in self.runtime.all_hosted():
            if hosted.state is HostedState.LOADING:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            found += [(hosted.index, group_id) for group_id in hosted.shard.groups]
        return found

    def listed(self, index: int, group_id: str) -> ListedGroup | None:
        """None: it has gone since."""
        hosted = self.runtime.hosted(index)
        group = hosted.shard.groups.get(group_id) if hosted is not None else None
        return group.listed() if group is not None else None

    def describe(self, group_id: str, done: Callable[[DescribedGroup], None]) -> None:
        def failed(error: ErrorCode) -> None:
            done(DescribedGroup(group_id, "", error))

        self.runtime.read(
            self.index_of(group_id), lambda shard: shard.describe(group_id), done, failed
        )

    def describe_consumer(
        self, group_id: str, done: Callable[[DescribedConsumerGroup], None]
    ) -> None:
        def failed(error: ErrorCode) -> None:
            done(DescribedConsumerGroup(group_id, error))

        self.runtime.read(
            self.index_of(group_id), lambda shard: shard.describe_consumer(group_id), done, failed
        )

    def delete(self, group_id: str, done: Callable[[ErrorCode], None]) -> None:
        self.runtime.write(
            self.index_of(group_id), lambda shard: shard.delete(group_id), done, done
        )


def _ignore(_: object) -> None:
    pass
