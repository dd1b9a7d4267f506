"""How a consumer group (KIP-848) moves: its members' heartbeats, and what happens when time runs out.

The rules are those of Apache Kafka 4.4. Each heartbeat notes what the member asks for, raises the
group's epoch if that matters, computes a target where there is none for that epoch, and takes the
member one step towards it. Nothing is remembered here but by ``ConsumerGroup.replay``. Timers of a
member:

* session: moved on by each heartbeat; when it runs out the member is removed;
* rebalance: while it is to give up partitions; the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.config.group_keys import GroupConfig, resolve_group_config
from broker.coordinator.group.assigning import Question, late_records, records_of
from broker.coordinator.group.assignors import ASSIGNORS, Candidate, Targets
from broker.coordinator.group.classic import ClassicGroup
from broker.coordinator.group.consumer import ConsumerGroup
from broker.coordinator.group.consumer_member import (
    JOINS,
    LEAVES,
    LEAVES_FOR_NOW,
    NOTHING_ASSIGNED,
    NOTHING_OWNED,
    Assignment,
    ConsumerMember,
    MemberState,
    partitions_of,
)
from broker.coordinator.group.consumer_records import (
    PARTITION_METADATA_KEY,
    PATTERN_KEY,
    ResolvedPattern,
    TargetEpoch,
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    pattern_record,
    target_epoch_record,
    tombstone,
)
from broker.coordinator.group.reconcile import Reported, reconcile
from broker.coordinator.group.requests import (
    DescribedConsumer,
    DescribedConsumerGroup,
    HeartbeatAnswer,
    HeartbeatRequest,
)
from broker.coordinator.ports import KnownTopics, PatternMatcher, ShardTimers
from broker.coordinator.result import CoordinatorRecord, CoordinatorResult, nothing
from broker.log_limit import caused_by
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import TopicId

logger = logging.getLogger(__name__)

#: Regular expressions of a group are not matched again sooner.
MATCH_INTERVAL_MS: Final = 10_000

NO_OVERRIDES: Final[Mapping[str, str]] = {}

Records = list[CoordinatorRecord]
R = TypeVar("R")


class ConsumerGroups:
    """See the module's docstring. ``find`` gives a shard's group by its id; ``upgrade`` makes a
    consumer group of a classic one that has members."""

    def __init__(
        self,
        find: Callable[[str], ClassicGroup | ConsumerGroup | None],
        timers: ShardTimers,
        clock: Clock,
        config: Callable[[], BrokerConfig],
        topics: Callable[[], KnownTopics],
        matcher: PatternMatcher,
    ) -> None:
        self._find = find
        self._timers = timers
        self._clock = clock
        self._config = config
        self._topics = topics
        self._matcher = matcher
        #: Groups whose regular expressions are being matched.
        self._matching: set[str] = set()
        #: Groups whose targets are being computed beside the loop.
        self._assigning: set[str] = set()
        #: Group to the topics with which they were matched last.
        self._matched_with: dict[str, Mapping[str, object]] = {}

    def find(self, group_id: str) -> ConsumerGroup | None:
        group = self._find(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def _group_config(self, group_id: str) -> GroupConfig:
        overrides = self._topics().group_configs.get(group_id, NO_OVERRIDES)
        return resolve_group_config(overrides, self._config())

    # -- heartbeats ---------------------------------------------------------------------------

    def heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest, records: Records
    ) -> CoordinatorResult[HeartbeatAnswer]:
        """Of a member that stays. ``records`` come before those of the heartbeat itself; ``group``
        is as they leave it."""
        self._check_size(group, request.member_id, request.group_instance_id)
        before = self._member(group, request, records)
        after = _updated(before, request)
        has_new_topics = self.note(group.group_id, before, after, records)
        has_new_pattern, is_resolved = self._note_pattern(group, before, after, records, request)
        must_raise = has_new_topics or is_resolved or self._prefers_another(group, after)
        after = self.advance(
            group, after, must_raise, has_new_topics or has_new_pattern, request.owned, records
        )
        self.set_session(group.group_id, after)
        is_told = (
            request.member_epoch == JOINS
            or request.is_full
            or partitions_of(after.assigned) != partitions_of(before.assigned)
        )
        answer = HeartbeatAnswer(
            ErrorCode.NONE,
            None,
            after.member_id,
            after.member_epoch,
            self._group_config(group.group_id).heartbeat_interval_ms,
            _listed(partitions_of(after.assigned)) if is_told else None,
        )
        return CoordinatorResult(answer, records)

    def _check_size(
        self, group: ConsumerGroup, member_id: str, group_instance_id: str | None
    ) -> None:
        most = self._config().group_consumer_max_size
        if group.static_member(group_instance_id) is not None or member_id in group.members:
            return
        if len(group.members) >= most:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )

    def _member(
        self, group: ConsumerGroup, request: HeartbeatRequest, records: Records
    ) -> ConsumerMember:
        """The member as it was, or a new one that the request makes."""
        is_joining = request.member_epoch == JOINS
        if request.group_instance_id is not None:
            known = group.static_member(request.group_instance_id)
            if is_joining:
                return self._static(group, known, request, records)
            member = self.static_or_raise(known, request.group_instance_id, request.member_id)
        elif is_joining:
            member_id = request.member_id
            return group.members.get(member_id) or ConsumerMember(member_id)
        else:
            member = group.member_or_raise(request.member_id)
        _check_epoch(member, request)
        return member

    def _static(
        self,
        group: ConsumerGroup,
        known: ConsumerMember | None,
        request: HeartbeatRequest,
        records: Records,
    ) -> ConsumerMember:
        """A static member joins, perhaps in the place of one that went."""
        member_id = request.member_id
        if known is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if not known.is_classic and not known.is_away:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {request.group_instance_id} cannot"
                f" join the group because the instance id is owned by {known.member_id} member.",
            )
        return self.replace(group, known, member_id, records)

    def replace(
        self, group: ConsumerGroup, known: ConsumerMember, member_id: str, records: Records
    ) -> ConsumerMember:
        new = known._replace(member_id=member_id, member_epoch=0, previous_member_epoch=0)
        records += member_tombstones(group.group_id, known.member_id)
        records += group.replacing(known, new)
        return new

    def static_or_raise(
        self, known: ConsumerMember | None, group_instance_id: str, member_id: str
    ) -> ConsumerMember:
        if known is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {group_instance_id} is unknown."
            )
        if known.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {group_instance_id} was fenced by"
                f" member {known.member_id}.",
            )
        return known

    def note(
        self, group_id: str, before: ConsumerMember, after: ConsumerMember, records: Records
    ) -> bool:
        """Whether it asks for other topics by name."""
        if after.subscription() == before.subscription():
            return False
        records.append(member_record(group_id, after))
        return after.topics != before.topics

    def _prefers_another(self, group: ConsumerGroup, after: ConsumerMember) -> bool:
        default = self._default_assignor
        if after.assignor is None and all(each.assignor is None for each in group.members.values()):
            return False
        return group.assignor(default, group.members_with(after)) != group.assignor(default)

    @property
    def _default_assignor(self) -> str:
        return self._config().group_consumer_assignors[0]

    # -- one step for a member ----------------------------------------------------------------

    def advance(
        self,
        group: ConsumerGroup,
        after: ConsumerMember,
        must_raise: bool,
        has_new_subscription: bool,
        reported: Reported,
        records: Records,
    ) -> ConsumerMember:
        """The member as its heartbeat leaves it."""
        known = self._topics()
        group_epoch = self.raise_epoch(group, after, must_raise, records)
        target_epoch, target = group.assignment_epoch, group.target_of(after)
        if group_epoch > group.assignment_epoch and self._may_assign(group):
            targets = self._assign(group, after, group_epoch, known, records)
            if targets is not None:
                target_epoch = group_epoch
                target = targets.get(after.member_id, NOTHING_ASSIGNED)
        return self._reconciled(
            group, after, target_epoch, target, has_new_subscription, reported, records
        )

    def raise_epoch(
        self, group: ConsumerGroup, after: ConsumerMember, must_raise: bool, records: Records
    ) -> int:
        """The group's epoch, one higher if the member or the topics changed."""
        known = self._topics()
        if not must_raise and group.seen_topics is known.topics:
            return group.group_epoch
        members = group.members_with(after)
        metadata_hash = _hash_of(known, group.subscribed_topics(members))
        if not must_raise and metadata_hash == group.metadata_hash:
            group.seen_topics = known.topics
            return group.group_epoch
        group_epoch = group.group_epoch + 1
        records.append(epoch_record(group.group_id, group_epoch, metadata_hash))
        if group.has_partition_metadata:
            records.append(tombstone(PARTITION_METADATA_KEY, group.group_id))
        return group_epoch

    def _may_assign(self, group: ConsumerGroup) -> bool:
        """Not for every single one of many members that come together."""
        interval_ms = self._group_config(group.group_id).assignment_interval_ms
        passed_ms = self._clock.wall_ms() - group.assignment_ms
        # A clock that was set back holds nothing up.
        return group.assignment_ms == 0 or not 0 <= passed_ms < interval_ms

    def _assign(
        self,
        group: ConsumerGroup,
        after: ConsumerMember,
        group_epoch: int,
        known: KnownTopics,
        records: Records,
    ) -> Targets | None:
        """None: they come later."""
        if group.group_id in self._assigning:
            return None
        members = group.members_with(after)
        topics = {
            name: known.topics[name]
            for name in sorted(group.subscribed_topics(members))
            if name in known.topics
        }
        counts = {topic.topic_id: len(topic.partitions) for topic in topics.values()}
        ids = _IdsOfTopics(known)
        candidates = {
            member_id: Candidate(
                member.group_instance_id, ids.of(group.topics_of(member)), group.target_of(member)
            )
            for member_id, member in members.items()
        }
        name = group.assignor(self._default_assignor, members)
        assign = ASSIGNORS.get(name, ASSIGNORS["uniform"])
        question = Question(group_epoch, assign, candidates, counts)
        if question.is_big:
            self._assign_later(group.group_id, question)
            return None
        targets = question.answer()
        records += records_of(group, group_epoch, targets, self._clock.wall_ms())
        return targets

    def _assign_later(self, group_id: str, question: Question) -> None:
        self._assigning.add(group_id)

        def done(targets: Targets | None) -> None:
            self._assigning.discard(group_id)
            if targets is not None:
                self._timers.perform(partial(self._on_assigned, group_id, question, targets))

        self._matcher.compute(question.answer, done)

    def _on_assigned(
        self, group_id: str, question: Question, targets: Targets
    ) -> CoordinatorResult[None]:
        group = self.find(group_id)
        if group is None:
            return nothing()
        return CoordinatorResult(
            None, late_records(group, question, targets, self._clock.wall_ms())
        )

    def _reconciled(
        self,
        group: ConsumerGroup,
        after: ConsumerMember,
        target_epoch: int,
        target: Assignment,
        has_new_subscription: bool,
        reported: Reported,
        records: Records,
    ) -> ConsumerMember:
        if not has_new_subscription and after.is_reconciled_to(target_epoch):
            return after
        subscribed = _IdsOfTopics(self._topics()).of(group.topics_of(after))
        done = reconcile(
            after, target_epoch, target, subscribed, has_new_subscription, reported, group.is_held
        )
        if done == after:
            return after
        records.append(current_record(group.group_id, done))
        if not done.is_classic:
            if done.state is MemberState.UNREVOKED_PARTITIONS:
                self._set_rebalance(group.group_id, done)
            else:
                self._timers.cancel(_rebalance(group.group_id, done.member_id))
        return done

    # -- regular expressions ------------------------------------------------------------------

    def _note_pattern(
        self,
        group: ConsumerGroup,
        before: ConsumerMember,
        after: ConsumerMember,
        records: Records,
        request: HeartbeatRequest,
    ) -> tuple[bool, bool]:
        """Whether the member's pattern is another, and whether all of its topics are known."""
        is_other = bool(after.pattern) and after.pattern != before.pattern
        if is_other and request.pattern_fault and not group.subscriber_count(after.pattern or ""):
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, request.pattern_fault)
        changed = self.note_pattern(group, before, after, records)
        wanted = {each.pattern for each in group.members.values() if each.pattern}
        if before.pattern and group.subscriber_count(before.pattern) <= 1:
            wanted.discard(before.pattern)
        if after.pattern:
            wanted.add(after.pattern)
        if wanted and self._must_match(group, wanted, changed[0]):
            self._match(group.group_id, frozenset(wanted))
        return changed

    def note_pattern(
        self,
        group: ConsumerGroup,
        before: ConsumerMember,
        after: ConsumerMember,
        records: Records,
    ) -> tuple[bool, bool]:
        old, new = before.pattern or "", after.pattern or ""
        if old == new:
            return False, False
        if old in group.patterns and group.subscriber_count(old) == 1:
            records.append(tombstone(PATTERN_KEY, group.group_id, old))
        return True, not new or new in group.patterns

    def _must_match(self, group: ConsumerGroup, wanted: Iterable[str], is_new: bool) -> bool:
        if group.group_id in self._matching:
            return False
        known_ms = max((each.timestamp_ms for each in group.patterns.values()), default=0)
        passed_ms = self._clock.wall_ms() - known_ms
        if 0 <= passed_ms <= MATCH_INTERVAL_MS:
            return False
        if any(pattern not in group.patterns for pattern in wanted):
            return True
        if not 0 <= passed_ms <= self._config().group_consumer_regex_refresh_interval_ms:
            return True
        now, then = self._topics().topics, self._matched_with.get(group.group_id)
        if now is then:
            return False
        if then is not None and now.keys() == then.keys():
            self._matched_with[group.group_id] = now
            return False
        return True

    def _match(self, group_id: str, patterns: frozenset[str]) -> None:
        topics = self._topics().topics
        self._matching.add(group_id)

        def done(matches: Mapping[str, frozenset[str]] | None) -> None:
            self._matching.discard(group_id)
            if matches is not None:
                self._matched_with[group_id] = topics
                self._timers.perform(partial(self._on_matched, group_id, matches))

        self._matcher.match(patterns, topics, done)

    def _on_matched(
        self, group_id: str, matches: Mapping[str, frozenset[str]]
    ) -> CoordinatorResult[None]:
        group = self.find(group_id)
        if group is None:
            return nothing()
        now_ms = self._clock.wall_ms()
        records: Records = []
        has_changed = False
        found = dict(group.patterns)
        for pattern, topics in matches.items():
            if not group.subscriber_count(pattern):
                continue
            known = group.patterns.get(pattern)
            has_changed |= topics != (known.topics if known is not None else frozenset())
            found[pattern] = ResolvedPattern(topics, 0, now_ms)
            records.append(pattern_record(group_id, pattern, found[pattern]))
        names: set[str] = set()
        for member in group.members.values():
            names |= member.topics
            if member.pattern in found:
                names |= found[member.pattern].topics
        metadata_hash = _hash_of(self._topics(), names)
        if has_changed or metadata_hash != group.metadata_hash:
            records.append(group.raised(metadata_hash))
        return CoordinatorResult(None, records)

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._matched_with.pop(group_id, None)

    # -- leaving ------------------------------------------------------------------------------

    def leave(
        self,
        group: ConsumerGroup,
        request: HeartbeatRequest,
        dismiss: Callable[
            [ConsumerGroup, Sequence[ConsumerMember], HeartbeatAnswer],
            CoordinatorResult[HeartbeatAnswer],
        ],
    ) -> CoordinatorResult[HeartbeatAnswer]:
        answer = HeartbeatAnswer(ErrorCode.NONE, None, request.member_id, request.member_epoch, 0)
        instance_id = request.group_instance_id
        if instance_id is None:
            return dismiss(group, [group.member_or_raise(request.member_id)], answer)
        known = group.static_member(instance_id)
        member = self.static_or_raise(known, instance_id, request.member_id)
        if request.member_epoch != LEAVES_FOR_NOW:
            return dismiss(group, [member], answer)
        away = member._replace(member_epoch=LEAVES_FOR_NOW, revoking=NOTHING_OWNED)
        return CoordinatorResult(answer, [current_record(group.group_id, away)])

    def remove(
        self, group: ConsumerGroup, leaving: Sequence[ConsumerMember], answer: R
    ) -> CoordinatorResult[R]:
        """Take out members; who is left gets their partitions with the next target."""
        group_id = group.group_id
        records: Records = []
        left = dict(group.members)
        for member in leaving:
            del left[member.member_id]
            records += member_tombstones(group_id, member.member_id)
        patterns = {member.pattern for member in left.values()}
        for pattern in group.patterns:
            if pattern not in patterns:
                records.append(tombstone(PATTERN_KEY, group_id, pattern))
        records.append(group.raised(_hash_of(self._topics(), group.subscribed_topics(left))))
        if not left:  # nobody has nothing to wait for: who comes next is assigned to at once
            records.append(target_epoch_record(group_id, TargetEpoch(group.group_epoch + 1)))
        for member in leaving:
            self.cancel_timers(group_id, member.member_id)
        return CoordinatorResult(answer, records)

    # -- timers -------------------------------------------------------------------------------

    #: What removes a member whose time is up; the shard's, for it may mean a downgrade.
    on_silent: Callable[[ConsumerGroup, ConsumerMember], CoordinatorResult[None]]

    def set_session(self, group_id: str, member: ConsumerMember) -> None:
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self._group_config(group_id).session_timeout_ms
        self.set_timer(_session(group_id, member.member_id), timeout_ms, group_id, member.member_id)

    def set_timer(
        self, key: tuple[str, ...], timeout_ms: int, group_id: str, member_id: str
    ) -> None:
        """The member is removed when it runs out."""
        self._timers.set(key, timeout_ms, partial(self._on_silent, group_id, member_id, key[0]))

    def _on_silent(self, group_id: str, member_id: str, why: str) -> CoordinatorResult[None]:
        group = self.find(group_id)
        member = group.members.get(member_id) if group is not None else None
        if group is None or member is None:
            return nothing()
        logger.info(
            "group %s: %s is removed, its %s time is over",
            group_id,
            member_id,
            why,
            extra=caused_by("groups"),
        )
        return self.on_silent(group, member)

    def _set_rebalance(self, group_id: str, member: ConsumerMember) -> None:
        self._timers.set(
            _rebalance(group_id, member.member_id),
            member.rebalance_timeout_ms,
            partial(self._on_rebalance_over, group_id, member.member_id, member.member_epoch),
        )

    def _on_rebalance_over(
        self, group_id: str, member_id: str, member_epoch: int
    ) -> CoordinatorResult[None]:
        group = self.find(group_id)
        member = group.members.get(member_id) if group is not None else None
        if group is None or member is None or member.member_epoch != member_epoch:
            return nothing()
        logger.info(
            "group %s: %s did not give up partitions in time",
            group_id,
            member_id,
            extra=caused_by("groups"),
        )
        return self.on_silent(group, member)

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        self._timers.cancel(_session(group_id, member_id))
        self._timers.cancel(_rebalance(group_id, member_id))
        self._timers.cancel(join_timer(group_id, member_id))
        self._timers.cancel(sync_timer(group_id, member_id))

    def on_loaded(self, group: ConsumerGroup) -> None:
        """After a restart members get their whole times."""
        for member in group.members.values():
            self.set_session(group.group_id, member)
            if member.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
                self._set_rebalance(group.group_id, member)

    def end(self, group: ConsumerGroup) -> None:
        for member_id in group.members:
            self.cancel_timers(group.group_id, member_id)
        self.forget(group.group_id)

    # -- telling ------------------------------------------------------------------------------

    def described(self, group: ConsumerGroup) -> DescribedConsumerGroup:
        return DescribedConsumerGroup(
            group.group_id,
            ErrorCode.NONE,
            None,
            group.state.value,
            group.group_epoch,
            group.assignment_epoch,
            group.assignor(self._default_assignor),
            [_described(group, member) for member in group.members.values()],
        )


def _described(group: ConsumerGroup, member: ConsumerMember) -> DescribedConsumer:
    return DescribedConsumer(
        member.member_id,
        member.group_instance_id,
        member.rack_id,
        member.member_epoch,
        member.client_id,
        member.client_host,
        sorted(member.topics),
        member.pattern,
        _listed(_held(member)),
        _listed(group.targets.get(member.member_id, NOTHING_ASSIGNED)),
        member.is_classic,
    )


def _held(member: ConsumerMember) -> Assignment:
    """What it has to give up is its own until it has."""
    held = partitions_of(member.assigned)
    for topic_id, partitions in member.revoking.items():
        held[topic_id] = held.get(topic_id, frozenset()) | partitions.keys()
    return held


def _listed(assignment: Assignment) -> dict[TopicId, Sequence[int]]:
    return {topic_id: sorted(partitions) for topic_id, partitions in assignment.items()}


def _updated(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    """What the request says; where it says nothing, all stays as it was."""
    timeout_ms = request.rebalance_timeout_ms
    return member._replace(
        group_instance_id=_given(request.group_instance_id, member.group_instance_id),
        rack_id=_given(request.rack_id, member.rack_id),
        client_id=request.client_id,
        client_host=request.client_host,
        topics=member.topics if request.topics is None else request.topics,
        pattern=_given(request.pattern, member.pattern),
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=_given(request.assignor, member.assignor),
        classic=None,
    )


def _given(asked: str | None, known: str | None) -> str | None:
    return known if asked is None else asked


def _check_epoch(member: ConsumerMember, request: HeartbeatRequest) -> None:
    asked, epoch = request.member_epoch, member.member_epoch
    if asked == epoch:
        return
    # The answer that told it of its new epoch may have been lost.
    is_repeated = asked == member.previous_member_epoch and _is_part_of(request.owned, member)
    if asked < epoch and is_repeated:
        return
    word = "greater" if asked > epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {word} member epoch ({asked}) than the one known by the"
        f" group coordinator ({epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_part_of(owned: Reported, member: ConsumerMember) -> bool:
    return owned is not None and all(
        member.assigned.get(topic_id, {}).keys() >= set(partitions) and topic_id in member.assigned
        for topic_id, partitions in owned.items()
    )


class _IdsOfTopics:
    """Nearly all members of a group ask for the same topics."""

    def __init__(self, known: KnownTopics) -> None:
        self._topics = known.topics
        self._ids: dict[frozenset[str], frozenset[TopicId]] = {}

    def of(self, names: frozenset[str]) -> frozenset[TopicId]:
        found = self._ids.get(names)
        if found is None:
            topics = self._topics
            found = frozenset(topics[name].topic_id for name in names if name in topics)
            self._ids[names] = found
        return found


def _hash_of(known: KnownTopics, names: Iterable[str]) -> int:
    """Differs as soon as one of these topics comes, goes, or gets more partitions. 0: none is there."""
    import hashlib  # not at the start, which is mostly imports

    digest = hashlib.blake2b(digest_size=8)
    is_any = False
    for name in sorted(names):
        topic = known.topics.get(name)
        if topic is not None:
            is_any = True
            digest.update(topic.topic_id.bytes + len(topic.partitions).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if is_any else 0


def _session(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("consumer session", group_id, member_id)


def _rebalance(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("consumer rebalance", group_id, member_id)


def join_timer(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("consumer join", group_id, member_id)


def sync_timer(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("consumer sync", group_id, member_id)


def check_request(request: HeartbeatRequest, assignors: Sequence[str]) -> None:
    """What is wrong with a request, whatever the group. Raises ``KafkaError``."""

    def refuse(message: str) -> None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)

    epoch = request.member_epoch
    is_named = request.must_know_member_id or epoch > JOINS or epoch == LEAVES
    if is_named and not request.member_id.strip():
        refuse("MemberId can't be empty.")
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.group_instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            refuse(f"{name} can't be empty.")
    if epoch == JOINS:
        _check_joining(request)
    elif epoch == LEAVES_FOR_NOW:
        if request.group_instance_id is None:
            refuse("InstanceId can't be null.")
    elif epoch < LEAVES_FOR_NOW:
        refuse("MemberEpoch is invalid.")
    if request.assignor is not None and request.assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.assignor} is not supported."
            f" Supported assignors: {', '.join(assignors)}.",
        )


def _check_joining(request: HeartbeatRequest) -> None:
    message = None
    if request.rebalance_timeout_ms == -1:
        message = "RebalanceTimeoutMs must be provided in first request."
    elif request.owned is None or request.owned:
        message = "TopicPartitions must be empty when (re-)joining."
    elif request.topics is None and request.pattern is None:
        message = (
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
            " (re-)joining."
        )
    if message is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
