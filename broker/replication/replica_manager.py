"""All partitions of this broker, and the way of a batch from a checked frame into a log.

``ReplicaManager`` knows the topics that the cluster's metadata places here (the server tells it by
``host_topic``, ``drop_topic``, ``set_topic_config``) and creates a partition's log when it is
first used. It owns nothing of the network, and hands what would block to ``Background``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from broker.clock import Clock
from broker.config.topic_config import TopicConfig
from broker.model.error_code import ErrorCode
from broker.model.errors import DiskFullError, KafkaError, StorageError
from broker.model.ids import TopicId, TopicPartition
from broker.records.header import BatchHeader, peek_header
from broker.records.validation import (
    ProduceRules,
    needs_walk,
    walk,
    walks_in_thread,
)
from broker.replication.background import Background, FlushScheduler
from broker.replication.partition import NEVER, Partition
from broker.replication.traffic import BrokerTraffic, TopicTraffic
from broker.storage.append_info import AppendInfo
from broker.storage.flush import FlushNeeded
from broker.storage.log import Log
from broker.storage.log_manager import LogManager

logger: Final = logging.getLogger(__name__)

AppendOutcome = AppendInfo | Exception

#: In place of a leader epoch: another broker leads the partition, or nobody.
NOT_LED: Final = -1


class HostedTopic:
    """A topic of which this broker leads partitions. ``partitions[i]`` is None until first used."""

    __slots__ = ("config", "leader_epochs", "name", "partitions", "rules", "topic_id", "traffic")

    def __init__(
        self,
        name: str,
        topic_id: TopicId,
        leader_epochs: Sequence[int],
        config: TopicConfig,
        rules: ProduceRules,
        traffic: TopicTraffic,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.leader_epochs = list(leader_epochs)
        self.config = config
        self.rules = rules
        self.traffic = traffic
        self.partitions: list[Partition | None] = [None] * len(leader_epochs)


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

    def __init__(self, logs: LogManager, clock: Clock, background: Background) -> None:
        self._logs = logs
        self._clock = clock
        self._background = background
        self._flushes = FlushScheduler(background, self.take_offline)
        self.traffic = BrokerTraffic()
        self.topics: dict[str, HostedTopic] = {}
        self.topics_by_id: dict[TopicId, HostedTopic] = {}
        self._synced_rolls = 0
        #: Topics with a ``flush.ms``: the only ones that the clock has to look at.
        self._timed_flushes: dict[str, HostedTopic] = {}

    # -- what exists --------------------------------------------------------------------------

    def host_topic(
        self,
        name: str,
        topic_id: TopicId,
        leader_epochs: Sequence[int],
        config: TopicConfig,
        rules: ProduceRules,
    ) -> None:
        """A topic was created, grew, or its leaders changed."""
        topic = self.topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            topic = HostedTopic(
                name, topic_id, leader_epochs, config, rules, TopicTraffic(self.traffic)
            )
            self.topics[name] = topic
            self.topics_by_id[topic_id] = topic
            self._note_flush_interval(topic)
            return
        topic.leader_epochs = list(leader_epochs)
        topic.traffic.touch()
        for index, (partition, epoch) in enumerate(
            zip(topic.partitions, leader_epochs, strict=False)
        ):
            if partition is None or partition.leader_epoch == epoch:
                continue
            if epoch == NOT_LED:
                topic.partitions[index] = None
                self._close(partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                partition.leader_epoch = epoch
                partition.touch()
        topic.partitions.extend([None] * (len(leader_epochs) - len(topic.partitions)))

    def drop_topic(self, name: str) -> list[TopicPartition]:
        """The topic is deleted: nobody finds it from here on. Returns the partitions that it had."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return []
        self.topics_by_id.pop(topic.topic_id, None)
        self.traffic.deleted_topics += 1
        self._timed_flushes.pop(name, None)
        for partition in topic.partitions:
            if partition is not None:
                self._close(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
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

    def traffic_of(self, key: str | TopicId) -> TopicTraffic | None:
        """The counters of a topic, if there is one."""
        topic = self.topics.get(key) if isinstance(key, str) else self.topics_by_id.get(key)
        return None if topic is None else topic.traffic

    def materialise(self, name: str, index: int) -> None:
        """Create the partition's log if it is not there yet (a new topic gets its directories)."""
        topic = self.topics.get(name)
        if topic is not None and index < len(topic.partitions) and topic.partitions[index] is None:
            self._materialise(topic, index)

    def partitions(self) -> Iterator[Partition]:
        """Every partition that has been used or opened so far."""
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition is not None:
                    yield partition

    def partition_of(self, log: Log) -> Partition | None:
        """Whose log this is, if it is in use; never a partition that took the name since."""
        topic = self.topics.get(log.topic_partition.topic)
        if topic is None or log.topic_partition.partition >= len(topic.partitions):
            return None
        partition = topic.partitions[log.topic_partition.partition]
        return partition if partition is not None and partition.log is log else None

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
        if topic.leader_epochs[index] == NOT_LED:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        topic_partition = TopicPartition(topic.name, index)
        try:
            log = self._logs.get_or_create(topic_partition, topic.topic_id, topic.config)
        except StorageError as error:
            self.take_offline(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except (DiskFullError, OSError) as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        partition = Partition(
            topic_partition,
            topic.topic_id,
            log,
            topic.leader_epochs[index],
            topic.rules,
            topic.traffic,
        )
        topic.partitions[index] = partition
        topic.traffic.touch()
        if partition.is_flush_bound and log.flushed_offset < log.log_end_offset:
            # After a crash: what was acknowledged becomes visible again once it is known synced.
            self._flushes.request(partition)
        return partition

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
            logger.error("appending to %s failed", partition.topic_partition, exc_info=error)
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
        if info.rolled is not None:
            self.sync_rolled(partition, info.rolled)
        if partition.is_flushed_by_rule and (
            partition.is_flush_bound or partition.log.is_flush_due(now_ms)
        ):
            self._flushes.request(partition)
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

    @property
    def flush_count(self) -> int:
        """Syncs that have come back: each may have moved a recovery point."""
        return self._flushes.finished_count + self._synced_rolls

    def is_flushing(self, partition: Partition) -> bool:
        """Whether a sync that was asked for has no outcome yet."""
        return self._flushes.is_under_way(partition)

    def request_flush(self, partition: Partition) -> None:
        self._flushes.request(partition)

    def sync_rolled(self, partition: Partition, rolled: FlushNeeded) -> None:
        """A segment was sealed: sync it, so that the recovery point can pass it."""
        self._background.disk(rolled.run, partial(self._on_rolled, partition, rolled))

    def _on_rolled(
        self, partition: Partition, rolled: FlushNeeded, _: None, error: Exception | None
    ) -> None:
        self._synced_rolls += 1
        try:
            partition.log.on_flushed(rolled, error)
        except StorageError as failure:
            self.take_offline(failure)
        else:
            partition.advance_high_watermark()

    def take_offline(self, error: StorageError) -> None:
        """A log directory failed: its partitions answer KAFKA_STORAGE_ERROR from here on."""
        for topic_partition in self._logs.on_storage_error(error):
            topic = self.topics.get(topic_partition.topic)
            if topic is None or topic_partition.partition >= len(topic.partitions):
                continue
            partition = topic.partitions[topic_partition.partition]
            topic.partitions[topic_partition.partition] = None
            topic.traffic.touch()
            if partition is not None:
                self._close(partition, ErrorCode.KAFKA_STORAGE_ERROR)
