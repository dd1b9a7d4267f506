"""What every coordinator of this broker has in common: its topic, its loading, its timers.

The internal topic is made when somebody first looks for the coordinator. Each of its partitions that
this broker leads is loaded in the background (after a start, or when the topic appears) and ended when
the topic goes. Timers fire on the loop; a loop that was held up looks at its sockets first, so that
heartbeats that have arrived count before sessions end.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from broker.coordinator.hashing import partition_for
from broker.coordinator.result import CoordinatorResult
from broker.coordinator.runtime import Hosted, HostedState, Runtime, Shard
from broker.metadata.changes import (
    PartitionsAdded,
    PartitionsChanged,
    TopicCreated,
    TopicDeleted,
)
from broker.metadata.image import ClusterImage
from broker.metadata.requests import NewTopic
from broker.model.errors import CorruptLogError, KafkaError, StorageError
from broker.model.ids import NO_BROKER, BrokerId
from broker.server.coordinator_log import CoordinatorLog, LoadingLog
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.replication.partition import Partition
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

#: Of loading one partition, in a row, after which the pause (2 s at first) grows no more: 32 s.
MAX_LOAD_FAILURES: Final = 5

S = TypeVar("S", bound=Shard)


class CoordinatorHost(ABC, Generic[S]):
    """See the module's docstring. ``runtime`` is made by the subclass, with ``_arm`` as its
    ``on_deadline``."""

    runtime: Runtime[S]

    def __init__(self, broker: Broker, topic: str, what: str) -> None:
        self._broker = broker
        self._topic = topic
        #: For the log, and for names of tasks.
        self._what = what
        #: In a row, by partition.
        self._load_failures: dict[int, int] = {}
        self._loaders = asyncio.Semaphore(LOADERS)
        #: Done when the newest partitions of the topic are served or being loaded.
        self._hosted: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for_ms = 0
        self._has_waited = False
        self._is_stopped = False

    # -- what differs -------------------------------------------------------------------------

    @abstractmethod
    def new_topic(self) -> NewTopic:
        """The topic as it is made, whoever asks for it first."""

    @abstractmethod
    def _log_of(self, partition: Partition) -> CoordinatorLog: ...

    @abstractmethod
    def _describe(self, shard: S) -> str:
        """How much was loaded."""

    @abstractmethod
    async def _on_loaded(self, hosted: Hosted[S]) -> None:
        """The shard serves from now on."""

    # -- topic --------------------------------------------------------------------------------

    def partition_count(self) -> int:
        """Of the topic; 0 while there is none."""
        topic = self._broker.image.topics.get(self._topic)
        return 0 if topic is None else len(topic.partitions)

    def leader_of(self, key: str) -> BrokerId:
        """Of the partition that a group's or a transaction's id names."""
        count = self.partition_count()
        topic = self._broker.image.topics.get(self._topic)
        if topic is None:
            return NO_BROKER
        return topic.partitions[partition_for(key, count)].leader_id

    async def ensure_topic(self) -> bool:
        """Create the topic unless it is there. Whether it is there, and served, now."""
        broker = self._broker
        if self._topic not in broker.image.topics:
            await broker.create_topics([self.new_topic()])
        if self._hosted is not None:
            await asyncio.shield(self._hosted)
        return self._topic in broker.image.topics

    # -- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Everything that the first image places here is loaded."""
        self._host_all()

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_image(self, new: ClusterImage) -> None:
        for change in new.changes:
            if isinstance(change, TopicDeleted):
                if change.topic.name == self._topic:
                    self._end_all()
            elif isinstance(change, TopicCreated):
                if change.topic.name == self._topic:
                    self._host_soon()
            elif isinstance(change, PartitionsAdded) and change.topic == self._topic:
                self._host_soon()
            elif isinstance(change, PartitionsChanged) and change.topic == self._topic:
                # Others lead some of them now, or this broker does: what is closed has ended.
                self._end_closed()
                self._host_soon()

    def on_repaired(self) -> None:
        """A partition of the topic that was offline is back."""
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

        self._broker.tasks.spawn(host(), f"host {self._what}")

    def _host(self, index: int) -> None:
        runtime = self.runtime
        if runtime.hosted(index) is not None or not self._broker.leads(self._topic, index):
            return
        try:
            partition = self._broker.replicas.find(self._topic, index)
        except KafkaError as error:
            logger.error("%s-%d is not served: %s", self._topic, index, error)
            return
        log = self._log_of(partition)
        hosted = runtime.begin_loading(index, log)
        if partition.log.log_start_offset == partition.log.log_end_offset:
            runtime.activate(hosted)
        else:
            self._broker.tasks.spawn(self._load(hosted, log), f"load {self._what} {index}")

    def _end_all(self) -> None:
        for hosted in self.runtime.all_hosted():
            self.runtime.end(hosted.index)

    def _end_closed(self) -> None:
        """A log directory failed: shards whose logs went with it end."""
        for hosted in self.runtime.all_hosted():
            if isinstance(hosted.log, CoordinatorLog) and hosted.log.partition.is_closed:
                self.runtime.end(hosted.index)

    def _host_later(self, index: int) -> None:
        """Until it can be loaded, all brokers send its clients here, and here they are sent away."""
        if not self._is_stopped:
            failures = self._load_failures[index] = min(
                self._load_failures.get(index, 0) + 1, MAX_LOAD_FAILURES
            )
            self._broker.loop.call_later(2**failures, self._host_again, index)

    def _host_again(self, index: int) -> None:
        if not self._is_stopped:
            self._host(index)

    async def _load(self, hosted: Hosted[S], log: CoordinatorLog) -> None:
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
            if not is_loaded and self.runtime.hosted(hosted.index) is hosted:
                self.runtime.end(hosted.index)
                self._host_later(hosted.index)
        if hosted.state is not HostedState.LOADING:
            return
        self._load_failures.pop(hosted.index, None)
        self.runtime.activate(hosted)
        logger.info(
            "%s: %d records, %s in %d ms",
            log.partition.topic_partition,
            loading.record_count,
            self._describe(hosted.shard),
            self._broker.clock.monotonic_ms() - began_ms,
        )
        await self._on_loaded(hosted)

    async def _for_each(
        self,
        hosted: Hosted[S],
        keys: Iterable[str],
        operation: Callable[[str], CoordinatorResult[None]],
    ) -> None:
        """In turns of the loop, on what ``keys`` are now."""
        turn = Turn()
        for key in list(keys):
            self.runtime.perform(hosted, lambda _, key=key: operation(key))  # type: ignore[misc]
            if turn.is_over:
                await turn.pass_on()

    # -- timers -------------------------------------------------------------------------------

    def _arm(self) -> None:
        """The earliest timer of all shards is the loop's."""
        deadline_ms = self.runtime.timers.next_deadline_ms
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
        self._broker.tasks.attempt(partial(self._fire, now_ms), f"a timer of {self._what}")
        self._arm()

    def _fire(self, now_ms: int) -> None:
        if self.runtime.timers.fire(now_ms, TIMERS_PER_TURN) < TIMERS_PER_TURN:
            self._has_waited = False
