"""From the cluster's image to what this broker hosts.

The controller publishes images in order; ``Hosting`` tells the replica manager of new, grown,
changed and deleted topics at once. What takes its time is queued and done in turns of the loop: the
directories of new partitions are made, those of deleted topics renamed and synced (``settled``
returns after that; they are unlinked later), topics take over new defaults of the broker.

A topic that is created while directories of its predecessor wait to be renamed has them renamed
first: it never meets them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from broker.config.broker_config import BrokerConfig
from broker.config.topic_config import TopicConfig, resolve_topic_config
from broker.metadata.changes import (
    BrokerConfigsChanged,
    BrokerGone,
    BrokerRegistered,
    PartitionsAdded,
    PartitionsChanged,
    TopicConfigsChanged,
    TopicCreated,
    TopicDeleted,
)
from broker.metadata.image import ClusterImage, PartitionImage, TopicImage
from broker.model.error_code import ErrorCode
from broker.model.errors import DiskFullError, KafkaError, StorageError
from broker.model.ids import TopicPartition
from broker.records.produce_rules import ProduceRules
from broker.server.tasks import Turn
from broker.storage.flush import BlockingWork

if TYPE_CHECKING:
    from broker.server.app import Broker

logger = logging.getLogger(__name__)

produce_rules = lru_cache(maxsize=1024)(ProduceRules.for_topic)


class _Deletion:
    """A deleted topic until its directories are renamed, and that is synced."""

    __slots__ = ("done", "left", "name", "works")

    def __init__(
        self, name: str, partitions: list[TopicPartition], done: asyncio.Future[None]
    ) -> None:
        self.name = name
        self.left = deque(partitions)
        self.works: list[BlockingWork] = []
        self.done = done


class Hosting:
    """See the module's docstring. Everything on the loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._to_materialise: deque[TopicPartition] = deque()
        self._to_reconfigure: deque[str] = deque()
        self._to_delete: deque[_Deletion] = deque()
        self._is_working = False
        self._deletions: set[asyncio.Future[None]] = set()
        self._reconfigured: asyncio.Future[None] | None = None

    # -- images -------------------------------------------------------------------------------

    def load(self, image: ClusterImage, may_delete: bool) -> None:
        """The first image after a start: host everything, clear away directories of what is gone.

        ``may_delete`` False: the metadata store is new, so that it knows nothing of these
        directories does not mean that their topics were deleted. They are set aside.
        """
        self._clear_strays(image, may_delete)
        self._broker.logs.withhold(
            TopicPartition(topic.name, index)
            for topic in image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if self._broker.holds(partition)
        )
        self._tell_brokers(image)
        for topic in image.topics.values():
            self._host(topic)

    def _clear_strays(self, image: ClusterImage, may_delete: bool) -> None:
        for topic_partition, log in list(self._broker.logs.logs.items()):
            found = image.topics_by_id.get(log.topic_id) if log.topic_id is not None else None
            if found is not None and found.name == topic_partition.topic:
                if may_delete and self._is_elsewhere(found, topic_partition.partition):
                    logger.info("deleting the directory of %s: others have it", topic_partition)
                    self._begin_deletion(topic_partition.topic, [topic_partition])
                continue
            if may_delete and log.topic_id is not None:
                logger.info("deleting the directory of %s: its topic is gone", topic_partition)
                self._begin_deletion(topic_partition.topic, [topic_partition])
            else:
                logger.warning("setting %s aside: no topic has its id", topic_partition)
                self._give_up(topic_partition, self._broker.logs.set_aside)
        self._finish_deletions()

    def _is_elsewhere(self, topic: TopicImage, index: int) -> bool:
        """Whether other brokers have all replicas of this partition."""
        return index < len(topic.partitions) and not self._broker.holds(topic.partitions[index])

    def _tell_brokers(self, image: ClusterImage) -> None:
        epochs = {broker_id: each.broker_epoch for broker_id, each in image.brokers.items()}
        self._broker.replicas.on_brokers(epochs)
        self._broker.fragments.on_brokers(epochs)

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        if any(isinstance(change, BrokerGone | BrokerRegistered) for change in new.changes):
            self._tell_brokers(new)
        for change in new.changes:
            if isinstance(change, TopicCreated):
                self._host(change.topic)
            elif isinstance(change, TopicDeleted):
                self._drop(change.topic)
            elif isinstance(change, PartitionsAdded):
                self._host(new.topics[change.topic])
            elif isinstance(change, PartitionsChanged):
                self._host_changed(new.topics[change.topic], change)
            elif isinstance(change, TopicConfigsChanged):
                self._reconfigure(new.topics[change.topic])
            elif isinstance(change, BrokerConfigsChanged):
                self._broker.on_broker_configs(new)

    def reconfigure_all(self) -> None:
        """Broker defaults have changed: every topic's configuration is resolved anew, soon."""
        self._to_reconfigure = deque(self._broker.image.topics)
        if self._reconfigured is None:
            self._reconfigured = self._broker.loop.create_future()
        self._maybe_tell_reconfigured()
        self._work_soon()

    async def reconfigured(self) -> None:
        """Returns once every topic follows the broker's present defaults."""
        if self._reconfigured is not None:
            await asyncio.shield(self._reconfigured)

    async def deletions_done(self) -> None:
        """Returns once every deletion that was begun before is synced."""
        pending = tuple(self._deletions)
        if pending:
            await asyncio.gather(*(asyncio.shield(each) for each in pending))

    def stop(self) -> None:
        """Make no more directories. Deletions go on to their end."""
        self._to_materialise.clear()

    def _config(self, topic: TopicImage) -> TopicConfig:
        return resolve_topic_config(topic.configs, self._broker_config)

    @property
    def _broker_config(self) -> BrokerConfig:
        return self._broker.config

    def _host(self, topic: TopicImage) -> None:
        self._finish_deletions(topic.name)
        config = self._config(topic)
        broker = self._broker
        broker.replicas.host_topic(
            topic.name,
            topic.topic_id,
            [partition.leadership for partition in topic.partitions],
            config,
            produce_rules(config),
        )
        self._materialise(topic, topic.partitions)

    def _host_changed(self, topic: TopicImage, change: PartitionsChanged) -> None:
        """Of thousands as a rule some: they alone are looked at."""
        self._finish_deletions(topic.name)
        # As the image has them: another change of it may have come behind this one.
        changed = [topic.partitions[each.index] for each in change.partitions]
        states = {partition.index: partition.leadership for partition in changed}
        self._broker.replicas.change_states(topic.name, states)
        self._materialise(topic, changed)

    def _materialise(self, topic: TopicImage, partitions: Iterable[PartitionImage]) -> None:
        """Soon, those that have a replica here; what has none any more goes."""
        broker = self._broker
        gone = []
        for partition in partitions:
            topic_partition = TopicPartition(topic.name, partition.index)
            if broker.holds(partition):
                self._to_materialise.append(topic_partition)
            elif self._is_ours(topic, topic_partition):
                logger.info("deleting the directory of %s: others have it now", topic_partition)
                gone.append(topic_partition)
        self._begin_deletion(topic.name, gone)
        self._work_soon()

    def _is_ours(self, topic: TopicImage, topic_partition: TopicPartition) -> bool:
        log = self._broker.logs.logs.get(topic_partition)
        return log is not None and log.topic_id == topic.topic_id

    def _reconfigure(self, topic: TopicImage) -> None:
        config = self._config(topic)
        self._broker.replicas.set_topic_config(topic.name, config, produce_rules(config))

    def _drop(self, topic: TopicImage) -> None:
        self._broker.fragments.forget(topic.name)
        self._begin_deletion(topic.name, self._broker.replicas.drop_topic(topic.name))

    # -- directories --------------------------------------------------------------------------

    def _work_soon(self) -> None:
        if not self._is_working and (
            self._to_delete or self._to_reconfigure or self._to_materialise
        ):
            self._is_working = True
            self._broker.loop.call_soon(self._work)

    def _work(self) -> None:
        """One turn of the loop's worth of what waits; first what somebody is waiting for."""
        self._is_working = False
        try:
            self._work_for_a_turn()
        finally:
            self._work_soon()  # a fault in one is not the others'

    def _work_for_a_turn(self) -> None:
        turn = Turn()
        while True:
            if self._to_delete:
                self._delete_next(self._to_delete[0])
            elif self._to_reconfigure:
                self._reconfigure_next()
            elif self._to_materialise:
                self._materialise_next()
            else:
                return
            if turn.is_over:
                return

    def _materialise_next(self) -> None:
        topic_partition = self._to_materialise.popleft()
        try:
            self._broker.replicas.materialise(topic_partition.topic, topic_partition.partition)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:  # it has moved on meanwhile
                logger.error("cannot make the directory of %s: %s", topic_partition, error)

    def _reconfigure_next(self) -> None:
        topic = self._broker.image.topics.get(self._to_reconfigure.popleft())
        if topic is not None:
            self._reconfigure(topic)
        self._maybe_tell_reconfigured()

    def _maybe_tell_reconfigured(self) -> None:
        if not self._to_reconfigure and self._reconfigured is not None:
            self._reconfigured.set_result(None)
            self._reconfigured = None

    def _begin_deletion(self, name: str, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        done: asyncio.Future[None] = self._broker.loop.create_future()
        self._deletions.add(done)
        self._to_delete.append(_Deletion(name, partitions, done))
        self._work_soon()

    def _finish_deletions(self, name: str | None = None) -> None:
        """Rename what is left of topics of this name (None: of all) at once."""
        for deletion in tuple(self._to_delete):
            while name in (None, deletion.name) and deletion.left:
                self._delete_next(deletion)

    def _delete_next(self, deletion: _Deletion) -> None:
        try:
            work = self._give_up(deletion.left.popleft(), self._broker.logs.delete)
            if work is not None:
                deletion.works.append(work)
        finally:
            if not deletion.left:
                self._to_delete.remove(deletion)
                self._sync(deletion)

    def _give_up(
        self,
        topic_partition: TopicPartition,
        give_up: Callable[[TopicPartition], BlockingWork | None],
    ) -> BlockingWork | None:
        """Rename a directory, by a method of the log manager; never raises into the controller."""
        try:
            return give_up(topic_partition)
        except StorageError as error:
            self._broker.replicas.take_offline(error)
        except DiskFullError as error:
            logger.error("the directory of %s keeps its name: %s", topic_partition, error)
        return None

    def _sync(self, deletion: _Deletion) -> None:
        works = deletion.works
        if len(self._broker.logs.directories) == 1:
            works = works[-1:]  # all have changed the same directory
        self._broker.threads.disk(partial(_run_all, works), partial(self._on_synced, deletion))

    def _on_synced(self, deletion: _Deletion, _: None, error: Exception | None) -> None:
        if error is not None:
            logger.error("deleting the directories of %s: %s", deletion.name, error)
        self._deletions.discard(deletion.done)
        deletion.done.set_result(None)


def _run_all(works: list[BlockingWork]) -> None:
    for work in works:
        work.run()
