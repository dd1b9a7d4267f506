"""The group coordinator in this broker: its topic, its loading, its timers.

``__consumer_offsets`` is made when somebody first looks for a coordinator. Each of its partitions
that this broker leads is loaded in the background (after a start, or when the topic appears) and
ended when the topic goes. Timers of groups fire on the loop; a loop that was held up looks at its
sockets first, so that heartbeats that have arrived count before sessions end.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.coordinator.group.coordinator import GroupCoordinator
from broker.coordinator.group.shard import GroupShard
from broker.coordinator.result import CoordinatorResult
from broker.coordinator.runtime import Hosted, HostedState
from broker.metadata.changes import PartitionsAdded, TopicCreated, TopicDeleted
from broker.metadata.image import ClusterImage
from broker.metadata.requests import NewTopic
from broker.model.errors import CorruptLogError, KafkaError, StorageError
from broker.model.ids import ZERO_TOPIC_ID, TopicId
from broker.model.internal_topics import CONSUMER_OFFSETS
from broker.server.coordinator_log import CoordinatorLog, LoadingLog
from broker.server.tasks import Turn, called_back

if TYPE_CHECKING:
    from broker.server.app import Broker

logger = logging.getLogger(__name__)

#: Partitions that are loaded at the same time.
LOADERS: Final = 4
#: A timer that fires later than this finds a loop that was held up.
LATE_MS: Final = 500
#: What the sockets get then before sessions end.
LATE_GRACE_SECONDS: Final = 0.2
#: Timers fired in one turn of the loop.
TIMERS_PER_TURN: Final = 16


class Coordination:
    """See the module's docstring."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.groups = GroupCoordinator(
            broker.clock,
            lambda: broker.config,
            lambda: str(uuid.uuid4()),
            self.partition_count,
            self._arm,
        )
        self._loaders = asyncio.Semaphore(LOADERS)
        #: Done when the newest partitions of the topic are served or being loaded.
        self._hosted: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for_ms = 0
        self._has_waited = False
        self._next_expiry_ms = 0
        self._is_expiring = False
        self._is_stopped = False

    # -- topic --------------------------------------------------------------------------------

    def partition_count(self) -> int:
        """Of the offsets topic; 0 while there is none."""
        topic = self._broker.image.topics.get(CONSUMER_OFFSETS)
        return 0 if topic is None else len(topic.partitions)

    async def ensure_topic(self) -> bool:
        """Create the offsets topic unless it is there. Whether it is there, and served, now."""
        broker = self._broker
        if CONSUMER_OFFSETS not in broker.image.topics:
            config = broker.config
            topic = NewTopic(
                CONSUMER_OFFSETS,
                partition_count=config.offsets_topic_num_partitions,
                replication_factor=min(
                    config.offsets_topic_replication_factor, len(broker.image.brokers)
                ),
                configs=(
                    ("cleanup.policy", "compact"),
                    ("compression.type", "producer"),
                    ("segment.bytes", str(config.offsets_topic_segment_bytes)),
                ),
            )
            await called_back(broker.controller.create_topics, [topic], False)
        if self._hosted is not None:
            await asyncio.shield(self._hosted)
        return CONSUMER_OFFSETS in broker.image.topics

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Everything that the first image places here is loaded."""
        self._next_expiry_ms = self._broker.clock.monotonic_ms() + self._expiry_interval_ms
        self._host_all()

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_image(self, new: ClusterImage) -> None:
        deleted: dict[TopicId, str] = {}
        for change in new.changes:
            if isinstance(change, TopicDeleted):
                if change.topic.name == CONSUMER_OFFSETS:
                    self._end_all()
                else:
                    deleted[change.topic.topic_id] = change.topic.name
            elif isinstance(change, TopicCreated):
                if change.topic.name == CONSUMER_OFFSETS:
                    self._host_soon()
            elif isinstance(change, PartitionsAdded) and change.topic == CONSUMER_OFFSETS:
                self._host_soon()
        if deleted:
            self._spawn_forgetting(deleted)

    def on_repaired(self) -> None:
        """A partition of the offsets topic that was offline is back."""
        self._end_closed()  # the shard of the log that went, if no tick has come since
        self._host_all()

    def _host_all(self) -> None:
        for index in range(self.partition_count()):
            self._host(index)

    def _host_soon(self) -> None:
        """A new topic's logs are made in turns of the loop."""
        done = self._hosted = self._broker.loop.create_future()

        async def host() -> None:
            turn = Turn()
            try:
                index = 0
                while index < self.partition_count():
                    self._host(index)
                    index += 1
                    if turn.is_over:
                        await turn.pass_on()
            finally:
                done.set_result(None)

        self._broker.tasks.spawn(host(), "host groups")

    def _host(self, index: int) -> None:
        runtime = self.groups.runtime
        if runtime.hosted(index) is not None:
            return
        try:
            partition = self._broker.replicas.find(CONSUMER_OFFSETS, index)
        except KafkaError as error:
            logger.error("%s-%d is not served: %s", CONSUMER_OFFSETS, index, error)
            return
        log = CoordinatorLog(self._broker, partition)
        hosted = runtime.begin_loading(index, log)
        if partition.log.log_start_offset == partition.log.log_end_offset:
            runtime.activate(hosted)
        else:
            self._broker.tasks.spawn(self._load(hosted, log), f"load groups {index}")

    def _end_all(self) -> None:
        for hosted in self.groups.runtime.all_hosted():
            self.groups.runtime.end(hosted.index)

    def _end_closed(self) -> None:
        """A log directory failed: shards whose logs went with it end."""
        for hosted in self.groups.runtime.all_hosted():
            if isinstance(hosted.log, CoordinatorLog) and hosted.log.partition.is_closed:
                self.groups.runtime.end(hosted.index)

    async def _load(self, hosted: Hosted[GroupShard], log: CoordinatorLog) -> None:
        began_ms = self._broker.clock.monotonic_ms()
        loading = LoadingLog(self._broker, log.partition, hosted.shard)
        is_loaded = False
        try:
            async with self._loaders:
                await loading.load()
            is_loaded = True
        except (KafkaError, StorageError, CorruptLogError, OSError) as error:
            logger.error("%s cannot be loaded: %s", log.partition.topic_partition, error)
            return
        finally:
            if not is_loaded and self.groups.runtime.hosted(hosted.index) is hosted:
                self.groups.runtime.end(hosted.index)
        if hosted.state is not HostedState.LOADING:
            return
        self.groups.runtime.activate(hosted)
        logger.info(
            "%s: %d records, %d groups, %d offsets in %d ms",
            log.partition.topic_partition,
            loading.record_count,
            len(hosted.shard.groups),
            hosted.shard.offsets.count,
            self._broker.clock.monotonic_ms() - began_ms,
        )
        await self._for_each_group(hosted, hosted.shard.on_loaded)
        # A topic may have been deleted and the broker stopped before its offsets were.
        await self._forget(hosted, self._is_unknown_topic)

    # -- groups, in turns ---------------------------------------------------------------------

    async def _for_each_group(
        self, hosted: Hosted[GroupShard], operation: Callable[[str], CoordinatorResult[None]]
    ) -> None:
        runtime = self.groups.runtime
        turn = Turn()
        for group_id in list(hosted.shard.groups):
            runtime.perform(hosted, lambda _, group_id=group_id: operation(group_id))  # type: ignore[misc]
            if turn.is_over:
                await turn.pass_on()

    def _is_unknown_topic(self, _name: str, topic_id: TopicId) -> bool:
        return topic_id != ZERO_TOPIC_ID and topic_id not in self._broker.image.topics_by_id

    async def _forget(
        self, hosted: Hosted[GroupShard], is_gone: Callable[[str, TopicId], bool]
    ) -> None:
        def operation(group_id: str) -> CoordinatorResult[None]:
            return hosted.shard.forget_topics(group_id, is_gone)

        await self._for_each_group(hosted, operation)

    def _spawn_forgetting(self, deleted: dict[TopicId, str]) -> None:
        names = frozenset(deleted.values())

        def is_gone(name: str, topic_id: TopicId) -> bool:
            return name in names and (topic_id == ZERO_TOPIC_ID or topic_id in deleted)

        async def forget() -> None:
            for hosted in self.groups.runtime.all_hosted():
                await self._forget(hosted, is_gone)

        self._broker.tasks.spawn(forget(), "forget offsets of deleted topics")

    @property
    def _expiry_interval_ms(self) -> int:
        return self._broker.config.offsets_retention_check_interval_ms

    def tick(self, now_ms: int) -> None:
        """Once a second."""
        self._end_closed()
        if now_ms >= self._next_expiry_ms and not self._is_expiring:
            self._next_expiry_ms = now_ms + self._expiry_interval_ms
            self._is_expiring = True
            self._broker.tasks.spawn(self._expire(), "expire offsets")

    async def _expire(self) -> None:
        try:
            for hosted in self.groups.runtime.all_hosted():
                await self._for_each_group(hosted, hosted.shard.expire)
        finally:
            self._is_expiring = False

    # -- timers -------------------------------------------------------------------------------

    def _arm(self) -> None:
        """The earliest timer of all groups is the loop's."""
        deadline_ms = self.groups.runtime.timers.next_deadline_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms is None or self._is_stopped:
            return
        self._armed_for_ms = deadline_ms
        delay_ms = max(deadline_ms - self._broker.clock.monotonic_ms(), 0)
        # One more: the loop counts finer than our clock, and must not come too early.
        self._timer = self._broker.loop.call_later((delay_ms + 1) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._broker.clock.monotonic_ms()
        if now_ms - self._armed_for_ms > LATE_MS and not self._has_waited:
            self._has_waited = True
            self._timer = self._broker.loop.call_later(LATE_GRACE_SECONDS, self._on_timer)
            return
        try:
            if self.groups.runtime.timers.fire(now_ms, TIMERS_PER_TURN) < TIMERS_PER_TURN:
                self._has_waited = False
        finally:
            self._arm()  # a fault in one group's timer stops no other's
