"""Timers of the broker: ticks, checkpoints, retention, periodic flushes.

The intervals are Kafka's settings, read anew each time. Retention is normally asked for by the
appliance's scheduler; this timer stands behind it: it runs when nobody has asked for
``SCHEDULER_SILENCE_MS``, and on its own when the broker was started alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from broker.model.errors import CorruptLogError, DiskFullError, StorageError
from broker.replication.partition import Partition
from broker.server.tasks import Turn
from broker.storage.log import Log, RetentionOutcome

if TYPE_CHECKING:
    from broker.server.app import Broker

logger = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
#: Retention is looked after at least this often, whatever ``log.retention.check.interval.ms`` says.
RETENTION_INTERVAL_MS: Final = 60_000
#: The same while a disk has less room than its floor.
URGENT_RETENTION_INTERVAL_MS: Final = 10_000
#: Distinct faults that are remembered, so that each is logged once.
MAX_REPORTED: Final = 10_000


class Maintenance:
    """See the module's docstring."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._timer: asyncio.TimerHandle | None = None
        self._reported: set[str] = set()
        self._is_checkpointing = False
        self._is_cleaning = False
        self._next_checkpoint_ms = 0
        self._checkpointed_activity = (-1, -1, -1, -1)
        self._deleted_segments = 0
        self._next_retention_ms = 0
        self._next_expiry_ms = 0
        self._was_short_of_room = False

    def start(self) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        self._next_checkpoint_ms = now_ms + self._checkpoint_interval_ms
        self._next_retention_ms = now_ms + self._retention_interval_ms
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

    @property
    def _retention_interval_ms(self) -> int:
        if self._broker.logs.is_short_of_room:
            return URGENT_RETENTION_INTERVAL_MS
        return min(RETENTION_INTERVAL_MS, self._broker.config.log_retention_check_interval_ms)

    def _on_tick(self) -> None:
        broker = self._broker
        self._timer = broker.loop.call_later(TICK_SECONDS, self._on_tick)
        now_ms = broker.clock.monotonic_ms()
        for listener in broker.listeners:
            listener.tick(now_ms)
        try:
            for work in broker.logs.tick(now_ms):
                broker.threads.disk(work.run, self._on_removed)
        except StorageError as error:
            broker.replicas.take_offline(error)
        self._look_at_room(now_ms)
        broker.replicas.flush_due(broker.clock.wall_ms())
        if now_ms >= self._next_checkpoint_ms and not self._is_checkpointing:
            self._next_checkpoint_ms = now_ms + self._checkpoint_interval_ms
            activity = self._activity()
            if activity != self._checkpointed_activity:
                self._checkpointed_activity = activity
                broker.tasks.spawn(self._checkpoint(), "checkpoint")
        if now_ms >= self._next_retention_ms and not self._is_cleaning:
            self._next_retention_ms = now_ms + self._retention_interval_ms
            broker.tasks.spawn(self._retain(), "retention")
        broker.coordination.tick(now_ms)
        if now_ms >= self._next_expiry_ms:
            self._next_expiry_ms = now_ms + self._expiry_interval_ms
            self._expire_producers()

    def _look_at_room(self, now_ms: int) -> None:
        """Below the floor retention runs at once."""
        is_short = self._broker.logs.is_short_of_room
        if is_short and not self._was_short_of_room:
            self._next_retention_ms = now_ms
        self._was_short_of_room = is_short

    def _activity(self) -> tuple[int, int, int, int]:
        """Differs whenever an offset that is checkpointed can have changed since the last look."""
        broker = self._broker
        return (
            sum(broker.dispatcher.request_counts.values()),
            broker.replicas.flush_count,
            broker.image.version,
            self._deleted_segments,
        )

    async def _checkpoint(self) -> None:
        self._is_checkpointing = True
        try:
            for work in self._broker.logs.checkpoint_work():
                await self._broker.threads.call(work.run)
        finally:
            self._is_checkpointing = False

    async def _retain(self) -> None:
        await self.run_retention()

    async def run_retention(self) -> list[dict[str, Any]]:
        """Delete what each topic's policy allows; tells what went and why."""
        if self._is_cleaning:
            return []
        self._is_cleaning = True
        deleted: list[dict[str, Any]] = []
        turn = Turn()
        try:
            for log in list(self._broker.logs.logs.values()):
                deleted += await self._clean(log)
                if turn.is_over:
                    await turn.pass_on()
        finally:
            self._is_cleaning = False
        now_ms = self._broker.clock.monotonic_ms()
        self._next_retention_ms = now_ms + self._retention_interval_ms
        return deleted

    async def _clean(self, log: Log) -> list[dict[str, Any]]:
        """One log's retention; what stands in its way stands in no other log's."""
        broker = self._broker
        deleted: list[dict[str, Any]] = []
        try:
            for step in broker.logs.retention_of(log):
                if step.cold is not None:
                    await broker.threads.call(step.cold.pull)
                if step.outcome is not None:
                    deleted += self._note_retention(log, step.outcome)
        except StorageError as error:
            broker.replicas.take_offline(error)
        except (CorruptLogError, DiskFullError, OSError) as error:
            self.report_once(f"retention of {log.topic_partition}: {error}")
        return deleted

    def _note_retention(self, log: Log, outcome: RetentionOutcome) -> list[dict[str, Any]]:
        self._deleted_segments += len(outcome.doomed)
        partition = self._broker.replicas.partition_of(log)
        if partition is not None:
            if outcome.flush is not None:
                self._broker.replicas.sync_rolled(partition, outcome.flush)
            if outcome.doomed:
                partition.touch()
        elif outcome.flush is not None:
            outcome.flush.release()  # its partition is not used yet; a later flush takes it along
        return [
            {
                "partition": str(log.topic_partition),
                "base_offset": gone.segment.base_offset,
                "bytes": gone.segment.size,
                "reason": gone.reason.value,
            }
            for gone in outcome.doomed
        ]

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
