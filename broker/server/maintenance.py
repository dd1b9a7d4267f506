"""Timers of the broker: ticks, checkpoints, retention, periodic flushes.

The intervals are Kafka's settings, read anew each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.log_limit import LOG_LIMIT
from broker.model.errors import StorageError
from broker.replication.partition import Partition
from broker.server.cleaning import Cleaning
from broker.server.retention import Retention

if TYPE_CHECKING:
    from broker.server.app import Broker

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
NOTHING_CHECKPOINTED: Final = (-1, -1, -1, -1, -1)
#: Distinct faults that are remembered, so that each is logged once.
MAX_REPORTED: Final = 10_000


class Maintenance:
    """See the module's docstring."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.retention = Retention(broker)
        self.cleaning = Cleaning(broker)
        self._timer: asyncio.TimerHandle | None = None
        self._reported: set[str] = set()
        self._is_checkpointing = False
        self._next_checkpoint_ms = 0
        self._checkpointed_activity = NOTHING_CHECKPOINTED
        self._next_expiry_ms = 0

    def start(self) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        self._next_checkpoint_ms = now_ms + self._checkpoint_interval_ms
        self.retention.start(now_ms)
        self._next_expiry_ms = now_ms + self._expiry_interval_ms
        self._timer = self._broker.loop.call_later(TICK_SECONDS, self._on_tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _checkpoint_interval_ms(self) -> int:
        config = self._broker.config
        return min(
            config.log_flush_offset_checkpoint_interval_ms,
            config.replica_high_watermark_checkpoint_interval_ms,
        )

    def _expire_producers(self) -> None:
        """Forget producers idle for ``producer.id.expiration.ms``."""
        now_ms = self._broker.clock.wall_ms()
        for log in self._broker.logs.logs.values():
            if log.producers.entries:
                log.expire_producers(now_ms)

    @property
    def _expiry_interval_ms(self) -> int:
        return self._broker.config.producer_id_expiration_check_interval_ms

    def _on_tick(self) -> None:
        """Each part by itself: one that fails is logged, counted and tried again a second later."""
        broker = self._broker
        self._timer = broker.loop.call_later(TICK_SECONDS, self._on_tick)
        broker.replicas.traffic.now += 1
        LOG_LIMIT.tick()
        now_ms = broker.clock.monotonic_ms()
        for part, name in (
            (self._tick_listeners, "looking for idle connections"),
            (self._tick_logs, "the tick of logs"),
            (self._flush_due, "flushing by the clock"),
            (self._maybe_checkpoint, "beginning a checkpoint"),
            (self.retention.tick, "the tick of retention"),
            (self.cleaning.tick, "the tick of compaction"),
            (broker.coordination.tick, "the tick of groups"),
            (broker.transactions.tick, "the tick of transactions"),
            (self._maybe_expire_producers, "forgetting idle producers"),
        ):
            broker.tasks.attempt(partial(part, now_ms), name)

    def _tick_listeners(self, now_ms: int) -> None:
        for listener in self._broker.listeners:
            listener.tick(now_ms)

    def _tick_logs(self, now_ms: int) -> None:
        broker = self._broker
        try:
            for work in broker.logs.tick(now_ms):
                broker.threads.disk(work.run, self._on_removed)
        except StorageError as error:
            broker.replicas.take_offline(error)

    def _flush_due(self, _now_ms: int) -> None:
        self._broker.replicas.flush_due(self._broker.clock.wall_ms())

    def _maybe_checkpoint(self, now_ms: int) -> None:
        if now_ms >= self._next_checkpoint_ms and not self._is_checkpointing:
            self._next_checkpoint_ms = now_ms + self._checkpoint_interval_ms
            activity = self._activity()
            if activity != self._checkpointed_activity:
                self._checkpointed_activity = activity
                self._broker.tasks.spawn(self._checkpoint(), "checkpoint")

    def _maybe_expire_producers(self, now_ms: int) -> None:
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + self._expiry_interval_ms
            self._expire_producers()

    def _activity(self) -> tuple[int, int, int, int, int]:
        """Differs whenever an offset that is checkpointed can have changed since the last look."""
        broker = self._broker
        return (
            sum(broker.dispatcher.request_counts.values()),
            broker.replicas.flush_count,
            broker.replicas.followed_answers,
            broker.image.version,
            self.retention.deleted_segments,
        )

    async def _checkpoint(self) -> None:
        self._is_checkpointing = True
        try:
            for work in self._broker.logs.checkpoint_work():
                await self._broker.threads.call(work.run)
        except BaseException:
            self._checkpointed_activity = NOTHING_CHECKPOINTED
            raise
        finally:
            self._is_checkpointing = False

    def _on_removed(self, _: None, error: Exception | None) -> None:
        if error is not None:
            self.report_once(f"removing files failed: {error}")

    async def flushes_done(self, partitions: Iterable[Partition]) -> int:
        """Returns once what these partitions held when asked is on disk, or will not be for now (no
        room, their disk failed, the broker stops); gives how many of them found no room."""
        ends = {partition: partition.log.log_end_offset for partition in partitions}
        replicas = self._broker.replicas
        without_room = 0
        for partition, end in ends.items():
            while partition.log.flushed_offset < end and not partition.is_closed:
                if self._broker.stop_requested.is_set():
                    return without_room
                if not replicas.is_flushing(partition):
                    without_room += 1
                    break
                await asyncio.sleep(0.001)
        return without_room

    def report_once(self, message: str) -> None:
        if message not in self._reported and len(self._reported) < MAX_REPORTED:
            self._reported.add(message)
            logger.error("%s", message)
