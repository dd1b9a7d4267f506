"""The group coordinator in this broker: ``__consumer_offsets``, and what the passing of time and of
topics does to groups and offsets.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.coordinator.group.coordinator import GroupCoordinator
from broker.coordinator.group.shard import GroupShard
from broker.coordinator.result import CoordinatorResult
from broker.coordinator.runtime import Hosted
from broker.metadata.changes import TopicDeleted
from broker.metadata.image import ClusterImage
from broker.metadata.requests import NewTopic
from broker.model.ids import ZERO_TOPIC_ID, TopicId
from broker.model.internal_topics import CONSUMER_OFFSETS
from broker.records.compression import Codec
from broker.server.coordinator_host import CoordinatorHost
from broker.server.coordinator_log import CoordinatorLog
from broker.server.patterns import PatternMatching

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from broker.server.app import Broker


class Coordination(CoordinatorHost[GroupShard]):
    """See the module's docstring."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, CONSUMER_OFFSETS, "groups")
        self.groups = GroupCoordinator(
            broker.clock,
            lambda: broker.config,
            lambda: str(uuid.uuid4()),
            self.partition_count,
            self._arm,
            lambda: broker.image,
            PatternMatching(broker.threads),
        )
        self.runtime = self.groups.runtime
        self._next_expiry_ms = 0
        self._is_expiring = False

    def new_topic(self) -> NewTopic:
        config = self._broker.config
        return NewTopic(
            CONSUMER_OFFSETS,
            partition_count=config.offsets_topic_num_partitions,
            replication_factor=min(
                config.offsets_topic_replication_factor, self._broker.most_replicas
            ),
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config.offsets_topic_segment_bytes)),
            ),
        )

    def _log_of(self, partition: Partition) -> CoordinatorLog:
        broker = self._broker
        return CoordinatorLog(
            broker,
            partition,
            codec=lambda: Codec(broker.config.offsets_topic_compression_codec),
            timeout_ms=lambda: broker.config.offsets_commit_timeout_ms,
        )

    def _describe(self, shard: GroupShard) -> str:
        return f"{len(shard.groups)} groups, {shard.offsets.count} offsets"

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._next_expiry_ms = self._broker.clock.monotonic_ms() + self._expiry_interval_ms
        super().start()

    def on_image(self, new: ClusterImage) -> None:
        super().on_image(new)
        deleted = {
            change.topic.topic_id: change.topic.name
            for change in new.changes
            if isinstance(change, TopicDeleted) and change.topic.name != CONSUMER_OFFSETS
        }
        if deleted:
            self._spawn_forgetting(deleted)

    async def _on_loaded(self, hosted: Hosted[GroupShard]) -> None:
        await self._for_each_group(hosted, hosted.shard.on_loaded)
        # A topic may have been deleted and the broker stopped before its offsets were.
        await self._forget(hosted, self._is_unknown_topic)

    # -- groups, in turns ---------------------------------------------------------------------

    async def _for_each_group(
        self, hosted: Hosted[GroupShard], operation: Callable[[str], CoordinatorResult[None]]
    ) -> None:
        await self._for_each(hosted, hosted.shard.groups, operation)

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
            for hosted in self.runtime.all_hosted():
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
            await self.expire_offsets()
        finally:
            self._is_expiring = False

    async def expire_offsets(self) -> dict[str, int]:
        """Delete what the offsets' retention has passed; how many records that writes, by group."""
        written: dict[str, int] = {}
        for hosted in self.runtime.all_hosted():
            expire = hosted.shard.expire

            def operation(
                group_id: str, expire: Callable[[str], CoordinatorResult[None]] = expire
            ) -> CoordinatorResult[None]:
                result = expire(group_id)
                if result.records:
                    written[group_id] = len(result.records)
                return result

            await self._for_each_group(hosted, operation)
        return written
