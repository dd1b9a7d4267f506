"""A group coordinator over a log in memory, with time moved by hand: a conversation reads as one.

``Member`` is a client in the small: it joins, syncs, beats and leaves, and keeps what it was told.
"""

from __future__ import annotations

import itertools
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple

from broker.config.broker_config import resolve_broker_config
from broker.coordinator.group.coordinator import GroupCoordinator
from broker.coordinator.group.requests import (
    AskedTopic,
    CommitRequest,
    CommittedPartition,
    FetchedTopic,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    Protocol,
    SyncAnswer,
    SyncRequest,
)
from broker.coordinator.result import CoordinatorRecord, Producer
from broker.coordinator.runtime import Shard
from broker.coordinator.timers import Timers
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import ZERO_TOPIC_ID, TopicId
from broker.model.transaction_marker import TransactionMarker
from tests.support.by_hand import ManualScheduler

NONE = ErrorCode.NONE
SESSION_MS = 10_000
REBALANCE_MS = 60_000
#: ``group.initial.rebalance.delay.ms`` by default.
DELAY_MS = 3_000


class MemoryLog:
    """Appends are committed at once, or (``holds``) when the test says so; or refused."""

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        #: What a load shows a shard: offset to the record's producer, and markers by offset.
        self.producers: dict[int, int] = {}
        self.markers: list[tuple[int, TransactionMarker]] = []
        self.leader_epoch = 0
        self.batches: list[int] = []
        self.refusal: ErrorCode | None = None
        self.holds = False
        self.max_batch_bytes = 1_048_588
        self.may_answer = True
        self._waiting: list[Callable[[ErrorCode], None]] = []

    def append(self, records: Sequence[CoordinatorRecord], producer: Producer | None = None) -> int:
        if self.refusal is not None:
            raise KafkaError(self.refusal)
        first = len(self.records)
        if producer is not None:
            for number in range(len(records)):
                self.producers[first + number] = producer.producer_id
        self.records.extend(records)
        self.batches.append(len(records))
        return first

    def append_marker(self, marker: TransactionMarker) -> None:
        if self.refusal is not None:
            raise KafkaError(self.refusal)
        self.markers.append((len(self.records), marker))

    def replay_into(self, shard: Shard) -> None:
        """As a load does."""
        markers = list(self.markers)
        for offset, (key, value) in enumerate(self.records):
            while markers and markers[0][0] <= offset:
                marker = markers.pop(0)[1]
                shard.replay_marker(marker.producer_id, marker.is_commit)
            shard.replay(offset, key, value, self.producers.get(offset, -1))
        for _, marker in markers:
            shard.replay_marker(marker.producer_id, marker.is_commit)

    def when_committed(self, done: Callable[[ErrorCode], None]) -> None:
        if self.holds:
            self._waiting.append(done)
        else:
            done(NONE)

    def release(self, error: ErrorCode = NONE) -> None:
        """The disk has answered for all that was appended."""
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(error)


class Topic(NamedTuple):
    name: str
    topic_id: TopicId
    partitions: tuple[int, ...]


class Topics(NamedTuple):
    """The cluster's, as an image has them."""

    topics: Mapping[str, Topic] = {}
    topics_by_id: Mapping[TopicId, Topic] = {}
    group_configs: Mapping[str, Mapping[str, str]] = {}

    def having(self, **counts: int) -> Topics:
        """With these topics, and as many partitions."""
        topics = dict(self.topics)
        for name, count in counts.items():
            topic_id = topics[name].topic_id if name in topics else uuid.uuid4()
            topics[name] = Topic(name, topic_id, tuple(range(count)))
        return self.of(topics)

    def without(self, name: str) -> Topics:
        return self.of({each: topic for each, topic in self.topics.items() if each != name})

    @classmethod
    def of(cls, topics: Mapping[str, Topic]) -> Topics:
        return cls(topics, {topic.topic_id: topic for topic in topics.values()})


class Matcher:
    """Finds topics by pattern, and computes, when the test says so."""

    def __init__(self) -> None:
        self.works: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self.asked: list[tuple[frozenset[str], list[str], Callable[..., None]]] = []

    def compute(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.works.append((work, done))

    def finish(self) -> None:
        works, self.works = self.works, []
        for work, done in works:
            done(work())

    def match(
        self, patterns: frozenset[str], names: Iterable[str], done: Callable[..., None]
    ) -> None:
        self.asked.append((patterns, list(names), done))

    def answer(self) -> None:
        asked, self.asked = self.asked, []
        for patterns, names, done in asked:
            done({each: frozenset(n for n in names if re.fullmatch(each, n)) for each in patterns})


def advance(clock: ManualScheduler, timers: Timers, ms: int) -> None:
    """Time passes, with every timer at its moment."""
    end_ms = clock.now_ms + ms
    while True:
        deadline_ms = timers.next_deadline_ms
        if deadline_ms is None or deadline_ms > end_ms:
            break
        clock.now_ms = max(clock.now_ms, deadline_ms)
        timers.fire(clock.now_ms)
    clock.now_ms = end_ms


class GroupWorld:
    def __init__(self, partitions: int = 1, **settings: str) -> None:
        self.clock = ManualScheduler()
        numbers = itertools.count(1)
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.config = resolve_broker_config({"log.dirs": "/tmp/unused", **given})
        self.new_id: Callable[[], str] = lambda: str(next(numbers))
        self.partitions = partitions
        self.topics = Topics()
        self.matcher = Matcher()
        self.logs = [MemoryLog() for _ in range(partitions)]
        self.groups = self._start()

    @property
    def log(self) -> MemoryLog:
        return self.logs[0]

    def _start(self) -> GroupCoordinator:
        groups = GroupCoordinator(
            self.clock,
            lambda: self.config,
            self.new_id,
            lambda: self.partitions,
            lambda: None,
            lambda: self.topics,
            self.matcher,
        )
        for index, log in enumerate(self.logs):
            hosted = groups.runtime.begin_loading(index, log)
            log.replay_into(hosted.shard)
            groups.runtime.activate(hosted)
            for group_id in list(hosted.shard.groups):
                groups.runtime.perform(hosted, lambda shard, g=group_id: shard.on_loaded(g))
        return groups

    def restart(self) -> None:
        """The process ends, at once, and another one reads the log."""
        self.groups = self._start()

    def advance(self, ms: int) -> None:
        advance(self.clock, self.groups.runtime.timers, ms)

    def member(self, name: str = "c", **options: Any) -> Member:
        return Member(self, name, **options)

    def commit(
        self,
        group_id: str,
        offsets: dict[tuple[str, int], int],
        member_id: str = "",
        generation_id: int = -1,
        instance_id: str | None = None,
        metadata: str | None = "",
        topic_id: TopicId = ZERO_TOPIC_ID,
        retention_ms: int | None = None,
        knows_missing_groups: bool = True,
        leader_epoch: int = -1,
    ) -> ErrorCode | list[ErrorCode] | None:
        """The group's error, or the partitions'; None while there is no answer."""
        answers: list[Any] = []
        request = CommitRequest(
            group_id,
            member_id,
            instance_id,
            generation_id,
            retention_ms,
            [
                CommittedPartition(topic, topic_id, partition, offset, leader_epoch, metadata)
                for (topic, partition), offset in offsets.items()
            ],
            knows_missing_groups,
        )
        self.groups.commit(
            request, lambda error, codes: answers.append(list(codes) if error is NONE else error)
        )
        self.last_commit = answers
        return answers[0] if answers else None

    def commit_in_transaction(
        self,
        group_id: str,
        offsets: dict[tuple[str, int], int],
        producer: Producer,
        member_id: str = "",
        generation_id: int = -1,
    ) -> ErrorCode | list[ErrorCode]:
        answers: list[Any] = []
        partitions = [
            CommittedPartition(topic, ZERO_TOPIC_ID, partition, offset, -1, "")
            for (topic, partition), offset in offsets.items()
        ]
        request = CommitRequest(group_id, member_id, None, generation_id, None, partitions, False)
        self.groups.commit_in_transaction(
            request,
            producer,
            lambda error, codes: answers.append(list(codes) if error is NONE else error),
        )
        found: ErrorCode | list[ErrorCode] = answers[0]
        return found

    def end_transaction(self, producer: Producer, is_commit: bool) -> ErrorCode:
        found: list[ErrorCode] = []
        marker = TransactionMarker(*producer, is_commit, 0)
        self.groups.runtime.write_marker(0, marker, found.append)
        return found[0]

    def fetch(
        self, group_id: str, *partitions: tuple[str, int], topic_id: TopicId = ZERO_TOPIC_ID
    ) -> dict[tuple[str, int], int] | ErrorCode | None:
        """Committed offsets of the partitions, or of all."""
        answers: list[Any] = []
        asked = [AskedTopic(topic, topic_id, [index]) for topic, index in partitions] or None

        def done(error: ErrorCode, topics: Sequence[FetchedTopic]) -> None:
            found = {
                (topic.topic, each.partition): each.offset
                for topic in topics
                for each in topic.offsets
            }
            answers.append(found if error is NONE else error)

        self.groups.fetch(group_id, asked, False, done)
        self.last_fetch = answers
        return answers[0] if answers else None

    def state(self, group_id: str = "g") -> str:
        found: list[str] = []
        self.groups.describe(group_id, lambda group: found.append(group.state))
        return found[0]

    def delete(self, group_id: str = "g") -> ErrorCode:
        found: list[ErrorCode] = []
        self.groups.delete(group_id, found.append)
        return found[0]

    def expire(self) -> None:
        for hosted in self.groups.runtime.all_hosted():
            for group_id in list(hosted.shard.groups):
                self.groups.runtime.perform(hosted, lambda shard, g=group_id: shard.expire(g))

    def stable(self, count: int, group_id: str = "g", **options: Any) -> list[Member]:
        """A group of ``count`` members that have their assignments."""
        members = [self.member(f"c{n}", group_id=group_id, **options) for n in range(count)]
        for member in members:
            member.join()
        self.advance(DELAY_MS)
        while any(member.joined is None for member in members):
            self.advance(DELAY_MS)
        for member in members:
            member.sync()
        assert all(member.synced.error is NONE for member in members)
        return members


class Member:
    def __init__(
        self,
        world: GroupWorld,
        name: str = "c",
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocols: Sequence[str] = ("range",),
        topics: Sequence[str] = ("t",),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
    ) -> None:
        self.world = world
        self.name = name
        self.group_id = group_id
        self.instance_id = instance_id
        self.protocols = tuple(Protocol(each, subscription(*topics)) for each in protocols)
        self.protocol_type = protocol_type
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.version = version
        self.member_id = ""
        self.generation_id = -1
        self.joined: JoinAnswer | None = None
        self.synced: Any = None

    @property
    def is_leader(self) -> bool:
        return self.joined is not None and self.joined.leader_id == self.member_id

    def send_join(self) -> None:
        """One JoinGroup, as it is."""
        self.joined = self.synced = None
        request = JoinRequest(
            self.group_id,
            self.member_id,
            self.instance_id,
            self.protocol_type,
            self.protocols,
            self.session_ms,
            self.rebalance_ms,
            self.name,
            "/127.0.0.1",
            self.version >= 4,
            self.version >= 9,
        )
        self.world.groups.join(request, self._on_joined)

    def join(self) -> Member:
        """As a client does: with its id, once it has one."""
        self.send_join()
        if self.joined is not None and self.joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.send_join()
        return self

    def _on_joined(self, answer: JoinAnswer) -> None:
        assert self.joined is None, "answered twice"
        self.joined = answer
        if answer.member_id:
            self.member_id = answer.member_id
        if answer.error is NONE:
            self.generation_id = answer.generation_id

    def sync(self, assignments: dict[str, bytes] | None = None) -> Member:
        """The leader assigns each member its own name, if it is not told otherwise."""
        if assignments is None:
            assert self.joined is not None
            assignments = {each.member_id: each.member_id.encode() for each in self.joined.members}
        self.synced = None
        request = SyncRequest(
            self.group_id,
            self.member_id,
            self.instance_id,
            self.generation_id,
            self.protocol_type,
            None if self.joined is None else self.joined.protocol_name,
            list(assignments.items()),
        )

        def done(answer: SyncAnswer) -> None:
            assert self.synced is None, "answered twice"
            self.synced = answer

        self.world.groups.sync(request, done)
        return self

    def beat(self) -> ErrorCode:
        found: list[ErrorCode] = []
        self.world.groups.heartbeat(
            self.group_id, self.member_id, self.instance_id, self.generation_id, found.append
        )
        return found[0]

    def leave(self) -> ErrorCode | None:
        """None: the log takes its time."""
        found: list[Any] = []
        self.world.groups.leave(
            self.group_id,
            [LeavingMember(self.member_id, self.instance_id)],
            lambda error, codes: found.append(codes[0] if error is NONE else error),
        )
        return found[0] if found else None

    def commit(self, offsets: dict[tuple[str, int], int], **options: Any) -> Any:
        return self.world.commit(
            self.group_id,
            offsets,
            self.member_id,
            self.generation_id,
            self.instance_id,
            **options,
        )


def subscription(*topics: str) -> bytes:
    """A consumer's metadata of version 0."""
    parts = [Struct(">hi").pack(0, len(topics))]
    for topic in topics:
        parts.append(Struct(">h").pack(len(topic)) + topic.encode())
    return b"".join(parts) + Struct(">i").pack(-1)
