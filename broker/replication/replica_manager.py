"""All partitions of this broker, and the way of a batch from a checked frame into a log.

``ReplicaManager`` knows the topics that the cluster's metadata places here (the server tells it by
``host_topic``, ``drop_topic``, ``set_topic_config``) and creates a partition's log when it is
first used. It owns nothing of the network, and hands what would block to ``Background``.

A partition that has one replica is here when this broker leads it. One that has several has a
``Replica``, which is told of every image: leading it is a ``ReplicatedPartition``, following a
``FollowedPartition``; either closes when the role changes.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from broker.clock import Clock
from broker.config.topic_config import TopicConfig
from broker.log_limit import caused_by
from broker.model.error_code import ErrorCode
from broker.model.errors import DiskFullError, KafkaError, StorageError
from broker.model.ids import BrokerId, TopicId, TopicPartition
from broker.model.leadership import LeaderAndIsr
from broker.records.header import BatchHeader, peek_header
from broker.records.validation import (
    ProduceRules,
    needs_walk,
    walk,
    walks_in_thread,
)
from broker.replication.background import Background, Flushed, FlushScheduler
from broker.replication.followed_partition import FollowedPartition
from broker.replication.follower import FollowerMachine
from broker.replication.follower_reader import FollowerReader
from broker.replication.leader import BrokerEpochs, LeaderMachine, ReplicationRules
from broker.replication.partition import NEVER, Partition
from broker.replication.replica import Replica
from broker.replication.replicated_partition import ReplicatedPartition
from broker.replication.traffic import BrokerTraffic, TopicTraffic
from broker.storage.append_info import AppendInfo
from broker.storage.flush import FlushNeeded
from broker.storage.log import Log
from broker.storage.log_manager import LogManager

logger: Final = logging.getLogger(__name__)

AppendOutcome = AppendInfo | Exception

#: Kafka's default of ``replica.lag.time.max.ms``.
LAG_MAX_MS: Final = 30_000


class HostedTopic:
    """``partitions[i]`` is None until first used, and where this broker does not lead.

    ``replicas`` and ``followed`` are of partitions that have several replicas, one of them here.
    """

    __slots__ = (
        "config",
        "followed",
        "name",
        "partitions",
        "replicas",
        "rules",
        "states",
        "topic_id",
        "traffic",
    )

    def __init__(
        self,
        name: str,
        topic_id: TopicId,
        states: Sequence[LeaderAndIsr],
        config: TopicConfig,
        rules: ProduceRules,
        traffic: TopicTraffic,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.states = list(states)
        self.config = config
        self.rules = rules
        self.traffic = traffic
        self.partitions: list[Partition | None] = [None] * len(states)
        self.replicas: dict[int, Replica] = {}
        self.followed: dict[int, FollowedPartition] = {}


class PendingAppend:
    """A batch whose records are being walked in a thread, or that waits behind such a one."""

    __slots__ = ("batch", "check", "done", "failure", "header", "is_ready")

    def __init__(
        self,
        batch: memoryview | bytearray,
        header: BatchHeader,
        is_ready: bool,
        done: Callable[[AppendOutcome], None],
        check: Callable[[], None] | None,
    ) -> None:
        self.batch = batch
        self.header = header
        self.is_ready = is_ready
        self.failure: Exception | None = None
        self.done = done
        self.check = check


class ReplicaManager:
    """See the module's docstring."""

    def __init__(
        self,
        logs: LogManager,
        clock: Clock,
        background: Background,
        broker_id: BrokerId,
        lag_max_ms: Callable[[], int] = lambda: LAG_MAX_MS,
        lag_max_records: Callable[[], int] = lambda: -1,
    ) -> None:
        self._logs = logs
        self._clock = clock
        self._background = background
        self._broker_id = broker_id
        self._lag_max_ms = lag_max_ms
        self._lag_max_records = lag_max_records
        self._started_ms = clock.monotonic_ms()
        self._flushes = FlushScheduler(background, self.take_offline, self._on_flushed_closed)
        #: Of the registered brokers, as the newest image has them.
        self.broker_epochs: BrokerEpochs = {}
        #: Who fetches for partitions that are followed, and who proposes ISRs.
        self.on_followed: Callable[[FollowedPartition], None] = lambda followed: None
        self.on_isr_wanted: Callable[[ReplicatedPartition], None] = lambda partition: None
        self.on_storage_error: Callable[[StorageError], None] = lambda error: None
        self.traffic = BrokerTraffic()
        self.topics: dict[str, HostedTopic] = {}
        self.topics_by_id: dict[TopicId, HostedTopic] = {}
        self._synced_rolls = 0
        #: Answers of leaders with news: each may have moved a high watermark, or a log.
        self.followed_answers = 0
        #: Topics with a ``flush.ms``: the only ones that the clock has to look at.
        self._timed_flushes: dict[str, HostedTopic] = {}

    # -- what exists --------------------------------------------------------------------------

    def host_topic(
        self,
        name: str,
        topic_id: TopicId,
        states: Sequence[LeaderAndIsr],
        config: TopicConfig,
        rules: ProduceRules,
    ) -> None:
        """A topic was created, grew, or its leaders or replicas changed. Logs of partitions that
        have no replica here any more are the caller's to delete."""
        topic = self.topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            topic = HostedTopic(name, topic_id, states, config, rules, TopicTraffic(self.traffic))
            self.topics[name] = topic
            self.topics_by_id[topic_id] = topic
            self._note_flush_interval(topic)
            return
        before, topic.states = topic.states, list(states)
        topic.traffic.touch()
        for index, (old, new) in enumerate(zip(before, states, strict=False)):
            if old != new:
                self._on_state(topic, index, new)
        topic.partitions.extend([None] * (len(states) - len(topic.partitions)))

    def change_states(self, name: str, states: Mapping[int, LeaderAndIsr]) -> None:
        """Of some partitions of a topic that is hosted."""
        topic = self.topics[name]
        topic.traffic.touch()
        for index, state in states.items():
            if topic.states[index] != state:
                topic.states[index] = state
                self._on_state(topic, index, state)

    def on_brokers(self, epochs: BrokerEpochs) -> None:
        """Brokers came or went: what they acknowledged before counts no more."""
        self.broker_epochs = epochs
        for topic in self.topics.values():
            for index in topic.replicas:
                partition = topic.partitions[index]
                if isinstance(partition, ReplicatedPartition):
                    partition.on_state(topic.states[index], epochs)

    def drop_topic(self, name: str) -> list[TopicPartition]:
        """The topic is deleted: nobody finds it from here on. Returns the partitions that it had."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return []
        self.topics_by_id.pop(topic.topic_id, None)
        self.traffic.deleted_topics += 1
        self._timed_flushes.pop(name, None)
        for index in range(len(topic.partitions)):
            self._give_up(topic, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return [TopicPartition(name, index) for index in range(len(topic.partitions))]

    def set_topic_config(self, name: str, config: TopicConfig, rules: ProduceRules) -> None:
        topic = self.topics.get(name)
        if topic is None:
            return
        topic.config = config
        topic.rules = rules
        topic.traffic.touch()
        self._note_flush_interval(topic)
        for partition in topic.partitions:
            if partition is not None:
                partition.set_config(config, rules)
        for index, replica in topic.replicas.items():
            replica.rules = self._replication_rules(config)
            followed = topic.followed.get(index)
            if followed is not None:
                followed.log.set_config(config)
                followed.machine.is_flush_bound = replica.rules.is_flush_bound

    def find(self, key: str | TopicId, index: int) -> Partition:
        """The partition, its log made ready; ``KafkaError`` when this broker has no such thing."""
        if isinstance(key, str):
            topic = self.topics.get(key)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            topic = self.topics_by_id.get(key)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not 0 <= index < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.partitions[index] or self._materialise(topic, index)

    def find_reader(self, key: str | TopicId, index: int) -> Partition:
        """What is followed here, for consumers (KIP-392); ``KafkaError`` when it is not."""
        topic = self.topics.get(key) if isinstance(key, str) else self.topics_by_id.get(key)
        followed = None if topic is None else topic.followed.get(index)
        if topic is None or followed is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if followed.reader is None:
            followed.reader = FollowerReader(
                followed.topic_partition,
                topic.topic_id,
                followed.log,
                followed.machine.leader_epoch,
                topic.rules,
                topic.traffic,
            )
        return followed.reader

    def traffic_of(self, key: str | TopicId) -> TopicTraffic | None:
        """The counters of a topic, if there is one."""
        topic = self.topics.get(key) if isinstance(key, str) else self.topics_by_id.get(key)
        return None if topic is None else topic.traffic

    def materialise(self, name: str, index: int) -> None:
        """Create the partition's log if it is not there yet (a new topic gets its directories)."""
        topic = self.topics.get(name)
        if (
            topic is not None
            and index < len(topic.partitions)
            and topic.partitions[index] is None
            and index not in topic.replicas
        ):
            state = topic.states[index]
            if len(state.replicas) > 1 and self._broker_id in state.replicas:
                self._open_replica(topic, index)
            else:
                self._materialise(topic, index)

    def partitions(self) -> Iterator[Partition]:
        """Every partition that has been used or opened so far."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition is not None:
                    yield partition

    def replicated_partitions(self) -> Iterator[ReplicatedPartition]:
        """Those that this broker leads and others follow."""
        for topic in self.topics.values():
            for index in topic.replicas:
                partition = topic.partitions[index]
                if isinstance(partition, ReplicatedPartition):
                    yield partition

    def followed_partitions(self) -> Iterator[FollowedPartition]:
        for topic in self.topics.values():
            yield from topic.followed.values()

    def partition_of(self, log: Log) -> Partition | None:
        """Whose log this is, if it is in use; never a partition that took the name since."""
        topic = self.topics.get(log.topic_partition.topic)
        if topic is None or log.topic_partition.partition >= len(topic.partitions):
            return None
        partition = topic.partitions[log.topic_partition.partition]
        return partition if partition is not None and partition.log is log else None

    def followed_of(self, log: Log) -> FollowedPartition | None:
        topic = self.topics.get(log.topic_partition.topic)
        followed = None if topic is None else topic.followed.get(log.topic_partition.partition)
        return followed if followed is not None and followed.log is log else None

    def flush_bound_partitions(self) -> list[Partition]:
        """Partitions with ``flush.messages=1``, made ready: their unsynced ends are being synced."""
        found = []
        for topic in self.topics.values():
            if topic.config.flush_messages == 1:
                for index in range(len(topic.partitions)):
                    with contextlib.suppress(KafkaError):  # offline
                        found.append(self.find(topic.name, index))
        return found

    def _materialise(self, topic: HostedTopic, index: int) -> Partition:
        state = topic.states[index]
        if state.leader_id != self._broker_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if len(state.replicas) > 1:
            if index not in topic.replicas:
                self._open_replica(topic, index)
            opened = topic.partitions[index]
            if opened is None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return opened
        topic_partition = TopicPartition(topic.name, index)
        log = self._open_log(topic, topic_partition)
        partition = Partition(
            topic_partition, topic.topic_id, log, state.leader_epoch, topic.rules, topic.traffic
        )
        topic.partitions[index] = partition
        topic.traffic.touch()
        self._flush_opened(partition, partition.is_flush_bound)
        return partition

    def _open_log(self, topic: HostedTopic, topic_partition: TopicPartition) -> Log:
        try:
            return self._logs.get_or_create(topic_partition, topic.topic_id, topic.config)
        except StorageError as error:
            self.take_offline(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except (DiskFullError, OSError) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _flush_opened(self, partition: Flushed, is_flush_bound: bool) -> None:
        if is_flush_bound and partition.log.flushed_offset < partition.log.log_end_offset:
            # After a crash: what was acknowledged becomes visible again once it is known synced.
            self._flushes.request(partition)

    # -- roles --------------------------------------------------------------------------------

    def _replication_rules(self, config: TopicConfig) -> ReplicationRules:
        return ReplicationRules(
            self._lag_max_ms(),
            config.min_insync_replicas,
            config.flush_messages == 1,
            self._lag_max_records(),
        )

    def _on_state(self, topic: HostedTopic, index: int, state: LeaderAndIsr) -> None:
        """The state of a partition that was known before is another one now."""
        partition = topic.partitions[index]
        if self._broker_id not in state.replicas:
            self._give_up(topic, index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif index in topic.replicas:
            self._tell_replica(topic, index)
        elif partition is None:
            pass  # made when it is first used, or by ``materialise``
        elif state.leader_id != self._broker_id or len(state.replicas) > 1:
            self._give_up(topic, index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif partition.leader_epoch != state.leader_epoch:
            partition.leader_epoch = state.leader_epoch
            partition.touch()

    def _open_replica(self, topic: HostedTopic, index: int) -> None:
        log = self._open_log(topic, TopicPartition(topic.name, index))
        rules = self._replication_rules(topic.config)
        topic.replicas[index] = Replica(self._broker_id, log, rules, self._started_ms)
        self._tell_replica(topic, index)

    def _tell_replica(self, topic: HostedTopic, index: int) -> None:
        replica, state = topic.replicas[index], topic.states[index]
        led = topic.partitions[index]
        if isinstance(led, ReplicatedPartition):
            led.rouse()
        if replica.on_state(state, self.broker_epochs, self._clock.monotonic_ms()):
            self._drop_role(topic, index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._take_role(topic, index, replica)
        elif isinstance(led, ReplicatedPartition):
            led.settle()

    def _take_role(self, topic: HostedTopic, index: int, replica: Replica) -> None:
        topic.traffic.touch()
        topic_partition = TopicPartition(topic.name, index)
        log, role = replica.log, replica.role
        assert isinstance(log, Log)
        if isinstance(role, LeaderMachine):
            partition = ReplicatedPartition(
                topic_partition,
                topic.topic_id,
                log,
                role,
                topic.rules,
                topic.traffic,
                self._clock.monotonic_ms,
                self._isr_wanted,
            )
            topic.partitions[index] = partition
            self._flush_opened(partition, replica.rules.is_flush_bound)
            self._isr_wanted(partition)
        elif isinstance(role, FollowerMachine):
            followed = FollowedPartition(topic_partition, topic.topic_id, log, replica, role)
            topic.followed[index] = followed
            self._flush_opened(followed, replica.rules.is_flush_bound)
            self.on_followed(followed)

    def _isr_wanted(self, partition: ReplicatedPartition) -> None:
        self.on_isr_wanted(partition)

    def _drop_role(self, topic: HostedTopic, index: int, reason: ErrorCode) -> None:
        partition, topic.partitions[index] = topic.partitions[index], None
        if partition is not None:
            self._close(partition, reason)
        followed = topic.followed.pop(index, None)
        if followed is not None:
            followed.close(reason)

    def _give_up(self, topic: HostedTopic, index: int, reason: ErrorCode) -> None:
        """The partition is not here any more, or not as it was."""
        replica = topic.replicas.pop(index, None)
        if replica is not None:
            replica.on_removed()
        self._drop_role(topic, index, reason)

    def _on_flushed_closed(self, log: Log) -> None:
        """A role ended while its log was being synced: that is news for the next one."""
        partition = self.partition_of(log) or self.followed_of(log)
        if partition is not None:
            partition.advance_high_watermark()
            if log.config.flush_messages == 1:
                self._flushes.request(partition)

    def after_follower_append(self, followed: FollowedPartition, info: AppendInfo) -> None:
        """The work that an append from the leader leaves."""
        if info.rolled is not None:
            self.sync_rolled(followed, info.rolled)
        config = followed.log.config
        if config.flush_messages == 1 or followed.log.is_flush_due(self._clock.wall_ms()):
            self._flushes.request(followed)

    # -- write --------------------------------------------------------------------------------

    def append(
        self, partition: Partition, batch: memoryview, header: BatchHeader, now_ms: int
    ) -> AppendInfo | None:
        """Append a batch that passed ``check_header``.

        Done at once for nearly every batch. None means that its records must be looked at in a
        thread first, or that it stands behind one of those: then the caller calls ``append_later``.
        Errors are raised.
        """
        if partition.pending_appends:
            return None
        if needs_walk(header, partition.rules, now_ms):
            if walks_in_thread(header):
                return None
            rewritten = walk(batch, header, partition.rules, now_ms)
            if rewritten is not None:
                batch = memoryview(rewritten)
            header = peek_header(batch)
        return self._append_now(partition, batch, header, now_ms)

    def append_own(
        self, partition: Partition, batch: memoryview, header: BatchHeader, now_ms: int
    ) -> AppendInfo:
        """Append a batch that this broker made itself: its records need no look, and it goes on
        below the free-space floor, which is there to keep room for it. Errors are raised."""
        return self._append_now(partition, batch, header, now_ms, is_own=True)

    def append_later(
        self,
        partition: Partition,
        batch: memoryview,
        header: BatchHeader,
        now_ms: int,
        done: Callable[[AppendOutcome], None],
        check: Callable[[], None] | None = None,
    ) -> None:
        """``done`` is called once the batch is appended or refused; the frame is free at once.

        ``check`` raises ``KafkaError`` when the batch may not be appended any more once it is its turn.
        """
        is_walk_needed = needs_walk(header, partition.rules, now_ms)
        pending = PendingAppend(bytearray(batch), header, not is_walk_needed, done, check)
        if partition.pending_appends is None:
            partition.pending_appends = deque()
        partition.pending_appends.append(pending)
        if is_walk_needed:
            copy = memoryview(pending.batch)
            self._background.compute(
                partial(walk, copy, header, partition.rules, now_ms),
                partial(self._on_walked, partition, pending),
            )

    def _on_walked(
        self,
        partition: Partition,
        pending: PendingAppend,
        rewritten: bytearray | None,
        error: Exception | None,
    ) -> None:
        pending.is_ready = True
        pending.failure = error
        if rewritten is not None:
            pending.batch = rewritten
        if error is None:
            pending.header = peek_header(pending.batch)
        queue = partition.pending_appends
        while queue and queue[0].is_ready:
            self._finish_pending(partition, queue.popleft())

    def _finish_pending(self, partition: Partition, pending: PendingAppend) -> None:
        if pending.failure is not None:
            pending.done(pending.failure)
            return
        try:
            if pending.check is not None:
                pending.check()
            outcome: AppendOutcome = self._append_now(
                partition, pending.batch, pending.header, self._clock.wall_ms()
            )
        except KafkaError as error:
            outcome = error
        except Exception as error:
            logger.error(
                "appending to %s failed",
                partition.topic_partition,
                exc_info=error,
                extra=caused_by("producers"),
            )
            outcome = error
        pending.done(outcome)

    def _close(self, partition: Partition, reason: ErrorCode) -> None:
        queue = partition.pending_appends
        while queue:
            pending = queue.popleft()
            pending.done(KafkaError(reason))
        partition.close(reason)

    def _append_now(
        self,
        partition: Partition,
        batch: memoryview | bytearray,
        header: BatchHeader,
        now_ms: int,
        is_own: bool = False,
    ) -> AppendInfo:
        try:
            if not is_own and self._logs.is_below_floor(partition.topic_partition):
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, "free disk space is below its floor"
                )
            info = partition.append(batch, header, now_ms)
            if not info.is_duplicate:
                partition.traffic.on_appended(len(batch), info.record_count)
        except DiskFullError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except StorageError as error:
            self.take_offline(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._after_append(partition, info, now_ms)
        return info

    def _after_append(self, partition: Partition, info: AppendInfo, now_ms: int) -> None:
        """The work that an append as a leader leaves."""
        if info.rolled is not None:
            self.sync_rolled(partition, info.rolled)
        if partition.is_flushed_by_rule and (
            partition.is_flush_bound or partition.log.is_flush_due(now_ms)
        ):
            self._flushes.request(partition)

    def append_copies(self, partition: Partition, batches: memoryview, now_ms: int) -> AppendInfo:
        """Append batches of an imported topic with the offsets that they have; errors are raised."""
        if self._logs.is_below_floor(partition.topic_partition):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "free disk space is below its floor")
        try:
            info = partition.append_copies(batches, now_ms)
        except DiskFullError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except StorageError as error:
            self.take_offline(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        partition.traffic.on_appended(len(batches), info.record_count)
        self._after_append(partition, info, now_ms)
        return info

    # -- disk ---------------------------------------------------------------------------------

    def _note_flush_interval(self, topic: HostedTopic) -> None:
        if topic.config.flush_ms < NEVER:
            self._timed_flushes[topic.name] = topic
        else:
            self._timed_flushes.pop(topic.name, None)

    def flush_due(self, now_ms: int) -> None:
        """Once a second: logs whose ``flush.ms`` has passed, and those that found no room."""
        self._flushes.retry()
        for topic in self._timed_flushes.values():
            for partition in topic.partitions:
                if partition is not None and partition.log.is_flush_due(now_ms):
                    self._flushes.request(partition)
            for followed in topic.followed.values():
                if followed.log.is_flush_due(now_ms):
                    self._flushes.request(followed)

    @property
    def flush_count(self) -> int:
        """Syncs that have come back: each may have moved a recovery point."""
        return self._flushes.finished_count + self._synced_rolls

    def is_flushing(self, partition: Partition) -> bool:
        """Whether a sync that was asked for has no outcome yet."""
        return self._flushes.is_under_way(partition)

    def request_flush(self, partition: Partition) -> None:
        self._flushes.request(partition)

    def sync_rolled(self, partition: Flushed, rolled: FlushNeeded) -> None:
        """A segment was sealed: sync it, so that the recovery point can pass it."""
        self._background.disk(rolled.run, partial(self._on_rolled, partition, rolled))

    def _on_rolled(
        self, partition: Flushed, rolled: FlushNeeded, _: None, error: Exception | None
    ) -> None:
        self._synced_rolls += 1
        try:
            partition.log.on_flushed(rolled, error)
        except StorageError as failure:
            self.take_offline(failure)
            return
        partition.advance_high_watermark()
        if partition.is_closed:
            self._on_flushed_closed(partition.log)

    def take_offline(self, error: StorageError) -> None:
        """A log directory failed: its partitions answer KAFKA_STORAGE_ERROR from here on."""
        for topic_partition in self._logs.on_storage_error(error):
            topic = self.topics.get(topic_partition.topic)
            if topic is None or topic_partition.partition >= len(topic.partitions):
                continue
            topic.traffic.touch()
            self._give_up(topic, topic_partition.partition, ErrorCode.KAFKA_STORAGE_ERROR)
        self.on_storage_error(error)
