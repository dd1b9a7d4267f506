"""From the cluster's image to what this broker hosts.

The controller publishes images in order; ``Hosting`` tells the replica manager of new, grown,
changed and deleted topics, creates the directories of new partitions in small slices, and deletes
the directories of deleted ones: renamed and synced first (``deletions_done``), unlinked later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from broker.config.broker_config import BrokerConfig
from broker.config.topic_config import TopicConfig, resolve_topic_config
from broker.metadata.changes import (
    BrokerConfigsChanged,
    PartitionsAdded,
    PartitionsChanged,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from broker.metadata.image import ClusterImage, TopicImage
from broker.model.errors import KafkaError
from broker.model.ids import TopicPartition
from broker.records.compression import Codec
from broker.records.validation import ProduceRules

if TYPE_CHECKING:
    from broker.server.app import Broker

logger = logging.getLogger(__name__)

#: Partitions whose directories are made in one turn of the loop (about 0.1 ms each).
MATERIALISE_PER_TURN: Final = 16
_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@lru_cache(maxsize=1024)
def produce_rules(config: TopicConfig) -> ProduceRules:
    """What a topic of this configuration asks of its batches."""
    codec = _CODECS.get(config.compression_type)  # "producer": keep what was sent
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return ProduceRules(
        max_message_bytes=config.max_message_bytes,
        is_compacted=config.is_compacted,
        codec=codec,
        codec_level=levels.get(codec) if codec is not None else None,
        log_append_time=config.is_log_append_time,
        before_max_ms=config.message_timestamp_before_max_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
        strict=config.validation_strict,
        max_decompressed_bytes=config.max_decompressed_message_bytes,
    )


class Hosting:
    """See the module's docstring. Everything on the loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._to_materialise: deque[TopicPartition] = deque()
        self._is_materialising = False
        self._deletions: set[asyncio.Future[None]] = set()

    # -- images -------------------------------------------------------------------------------

    def load(self, image: ClusterImage, may_delete: bool) -> None:
        """The first image after a start: host everything, clear away directories of what is gone.

        ``may_delete`` False: the metadata store is new, so that it knows nothing of these
        directories does not mean that their topics were deleted. They are set aside.
        """
        self._clear_strays(image, may_delete)
        for topic in image.topics.values():
            self._host(topic)

    def _clear_strays(self, image: ClusterImage, may_delete: bool) -> None:
        for topic_partition, log in list(self._broker.logs.logs.items()):
            found = image.topics_by_id.get(log.topic_id) if log.topic_id is not None else None
            if found is not None and found.name == topic_partition.topic:
                continue
            if may_delete and log.topic_id is not None:
                logger.info("deleting the directory of %s: its topic is gone", topic_partition)
                self._delete_directory(topic_partition)
            else:
                logger.warning("setting %s aside: no topic has its id", topic_partition)
                self._broker.logs.set_aside(topic_partition)

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        for change in new.changes:
            if isinstance(change, TopicCreated):
                self._host(change.topic)
            elif isinstance(change, TopicDeleted):
                self._drop(change.topic)
            elif isinstance(change, PartitionsAdded | PartitionsChanged):
                self._host(new.topics[change.topic])
            elif isinstance(change, TopicConfigsChanged):
                self._reconfigure(new.topics[change.topic])
            elif isinstance(change, BrokerConfigsChanged):
                self._broker.on_broker_configs(new)

    def reconfigure_all(self) -> None:
        """Broker defaults have changed: every topic's configuration is resolved anew."""
        for topic in self._broker.image.topics.values():
            self._reconfigure(topic)

    def _config(self, topic: TopicImage) -> TopicConfig:
        return resolve_topic_config(topic.configs, self._broker_config)

    @property
    def _broker_config(self) -> BrokerConfig:
        return self._broker.config

    def _host(self, topic: TopicImage) -> None:
        config = self._config(topic)
        epochs = [partition.leader_epoch for partition in topic.partitions]
        self._broker.replicas.host_topic(
            topic.name, topic.topic_id, epochs, config, produce_rules(config)
        )
        for index in range(len(topic.partitions)):
            self._to_materialise.append(TopicPartition(topic.name, index))
        self._materialise_soon()

    def _reconfigure(self, topic: TopicImage) -> None:
        config = self._config(topic)
        self._broker.replicas.set_topic_config(topic.name, config, produce_rules(config))

    def _drop(self, topic: TopicImage) -> None:
        self._broker.fragments.forget(topic.name)
        for topic_partition in self._broker.replicas.drop_topic(topic.name):
            self._delete_directory(topic_partition)

    # -- directories --------------------------------------------------------------------------

    def _materialise_soon(self) -> None:
        if self._to_materialise and not self._is_materialising:
            self._is_materialising = True
            self._broker.loop.call_soon(self._materialise_some)

    def _materialise_some(self) -> None:
        self._is_materialising = False
        queue = self._to_materialise
        for _ in range(MATERIALISE_PER_TURN):
            if not queue:
                return
            topic_partition = queue.popleft()
            try:
                self._broker.replicas.materialise(topic_partition.topic, topic_partition.partition)
            except KafkaError as error:
                logger.error("cannot make the directory of %s: %s", topic_partition, error)
        self._materialise_soon()

    def _delete_directory(self, topic_partition: TopicPartition) -> None:
        work = self._broker.logs.delete(topic_partition)
        if work is None:
            return
        future: asyncio.Future[None] = self._broker.loop.create_future()
        self._deletions.add(future)

        def done(_: None, error: Exception | None) -> None:
            if error is not None:
                logger.error("deleting the directory of %s: %s", topic_partition, error)
            self._deletions.discard(future)
            future.set_result(None)

        self._broker.threads.disk(work.run, done)

    async def deletions_done(self) -> None:
        """Returns once every deletion that was begun before is synced."""
        pending = tuple(self._deletions)
        if pending:
            await asyncio.gather(*pending)
