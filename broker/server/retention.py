"""Retention: asked for by the appliance's scheduler, done here; and done unasked when it must be.

The broker runs it by itself every ``RETENTION_INTERVAL_MS`` unless it was told that a scheduler asks
for it (``odradek.retention.scheduled``); then after ``SCHEDULER_SILENCE_MS`` without a request for
all topics, and as often for as long as nobody asks. Below the free-space floor it runs at once.
What stands in the way of one log's retention stands in no other's.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.model.errors import CorruptLogError, DiskFullError, StorageError
from broker.server.tasks import Turn
from broker.server.warming import looked_up
from broker.storage.log import Log, RetentionOutcome
from broker.storage.log_manager import RetentionStep
from broker.storage.retention import Doomed, RetentionReason

if TYPE_CHECKING:
    from broker.server.app import Broker

#: Retention runs at least this often, whatever ``log.retention.check.interval.ms`` says.
RETENTION_INTERVAL_MS: Final = 60_000
#: The same while a disk has less room than its floor.
URGENT_RETENTION_INTERVAL_MS: Final = 10_000
#: Logs that are looked through before what was chosen of them goes, behind one checkpoint.
LOGS_AT_ONCE: Final = 500
#: A scheduler that has not asked for so long is silent.
SCHEDULER_SILENCE_MS: Final = 120_000
#: Unasked runs that deleted something, kept until the scheduler is there again and asks for them.
MAX_UNASKED: Final = 60
#: Of one of them.
MAX_UNASKED_RESULTS: Final = 200
#: Partitions and reasons told of in one answer; the sums tell the rest.
MAX_RESULTS: Final = 5000


class RetentionResult(NamedTuple):
    """What went, or would go, of one partition for one reason."""

    topic: str
    partition: int
    reason: RetentionReason
    segments: int
    size: int
    #: Of the log, when all of it is gone.
    log_start_offset: int


class Retention:
    """See the module's docstring."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        #: One run at a time: a request waits for the one that is under way.
        self._running = asyncio.Lock()
        self._next_ms = 0
        #: Monotonic: the last request for all topics, or the start.
        self._asked_ms = 0
        self._was_short_of_room = False
        #: Since the start.
        self.deleted_segments = 0
        self.deleted_bytes = 0
        #: Wall time, 0 for never; of the last run over all topics, and of the last request for one.
        self.last_run_ms = 0
        self.last_request_ms = 0
        #: ``request``, ``timer`` or ``floor``; empty for never.
        self.last_run_by = ""
        #: As ``answer`` tells them, with ``number``, ``by``, ``started_ms`` and ``took_ms``.
        self.unasked: deque[dict[str, Any]] = deque(maxlen=MAX_UNASKED)
        self._unasked_count = 0

    def start(self, now_ms: int) -> None:
        self._asked_ms = now_ms
        self._next_ms = now_ms + self._interval_ms

    # When ------------------------------------------------------------------------------------

    @property
    def _interval_ms(self) -> int:
        if self._broker.logs.is_short_of_room:
            return URGENT_RETENTION_INTERVAL_MS
        return min(RETENTION_INTERVAL_MS, self._broker.config.log_retention_check_interval_ms)

    @property
    def is_scheduler_silent(self) -> bool:
        """Somebody should ask for retention, and has not for long."""
        silence_ms = self._broker.clock.monotonic_ms() - self._asked_ms
        return self._broker.config.retention_scheduled and silence_ms >= SCHEDULER_SILENCE_MS

    def tick(self, now_ms: int) -> None:
        """Once a second: runs when it is due and nobody else sees to it."""
        logs = self._broker.logs
        is_short = logs.is_short_of_room
        if is_short and not self._was_short_of_room:
            self._next_ms = now_ms
        self._was_short_of_room = is_short
        is_ours = (
            is_short or self.is_scheduler_silent or not self._broker.config.retention_scheduled
        )
        if now_ms < self._next_ms or not is_ours or self._running.locked():
            return
        self._next_ms = now_ms + self._interval_ms
        self._broker.tasks.spawn(self._run_unasked("floor" if is_short else "timer"), "retention")

    async def _run_unasked(self, who: str) -> None:
        clock = self._broker.clock
        started_ms, began_ms = clock.wall_ms(), clock.monotonic_ms()
        results = await self._run(self._logs(None))
        self._note_run(who)
        if results:
            self._unasked_count += 1
            self.unasked.append(
                {
                    "number": self._unasked_count,
                    "by": who,
                    "started_ms": started_ms,
                    "took_ms": clock.monotonic_ms() - began_ms,
                    **answer(results, MAX_UNASKED_RESULTS),
                }
            )

    def _note_run(self, who: str) -> None:
        self.last_run_ms, self.last_run_by = self._broker.clock.wall_ms(), who

    # What ------------------------------------------------------------------------------------

    async def run(self, topics: Collection[str] | None) -> list[RetentionResult]:
        """Somebody asks: delete what each topic's policy allows; tells what went and why.

        ``topics``: their names; None for all.
        """
        if topics is None:
            now_ms = self._broker.clock.monotonic_ms()
            self._asked_ms = now_ms
            self._next_ms = now_ms + self._interval_ms
            self.last_request_ms = self._broker.clock.wall_ms()
        results = await self._run(self._logs(topics))
        if topics is None:
            self._note_run("request")
        return results

    async def _run(self, logs: list[Log]) -> list[RetentionResult]:
        results: list[RetentionResult] = []
        async with self._running:
            for first in range(0, len(logs), LOGS_AT_ONCE):
                results += await self._run_some(logs[first : first + LOGS_AT_ONCE])
        return results

    async def _run_some(self, logs: list[Log]) -> list[RetentionResult]:
        """Choose; write the new starts down; only then take, which is when others see them."""
        logs_of = self._broker.logs
        turn = Turn()
        condemned = []
        for log in logs:
            if await self._go_on(log, logs_of.condemn(log)):
                condemned.append(log)
            if turn.is_over:
                await turn.pass_on()
        results: list[RetentionResult] = []
        if condemned and await self._write_starts():
            for log in condemned:
                doomed = await self._go_on(log, logs_of.delete_condemned(log), takes=True)
                results += _summed(log, doomed, log.log_start_offset)
                if turn.is_over:
                    await turn.pass_on()
        return results

    async def _write_starts(self) -> bool:
        broker = self._broker
        try:
            for work in broker.logs.log_start_work():
                await broker.threads.call(work.run)
        except StorageError as error:
            broker.replicas.take_offline(error)
            return False
        return True

    def _logs(self, topics: Collection[str] | None) -> list[Log]:
        logs = self._broker.logs.logs.values()
        if topics is None:
            return list(logs)
        return [log for log in logs if log.topic_partition.topic in topics]

    async def _go_on(
        self, log: Log, steps: Iterator[RetentionStep], *, takes: bool = False
    ) -> list[Doomed]:
        """One log's steps, to their end; gives what was chosen, or what went if these take it."""
        broker = self._broker
        doomed: list[Doomed] = []
        try:
            for step in steps:
                if step.wait is not None:
                    await broker.threads.call(step.wait)
                if step.outcome is not None:
                    self._note_flush(log, step.outcome)
                    doomed += step.outcome.doomed
                    if takes:
                        self._note_taken(log, step.outcome.doomed)
        except StorageError as error:
            broker.replicas.take_offline(error)
        except (CorruptLogError, DiskFullError, OSError) as error:
            broker.maintenance.report_once(f"retention of {log.topic_partition}: {error}")
        return doomed

    def _note_flush(self, log: Log, outcome: RetentionOutcome) -> None:
        if outcome.flush is None:
            return
        replicas = self._broker.replicas
        here = replicas.partition_of(log) or replicas.followed_of(log)
        if here is not None:
            replicas.sync_rolled(here, outcome.flush)
        else:
            outcome.flush.release()  # its partition is not used yet; a later flush takes it along

    def _note_taken(self, log: Log, doomed: list[Doomed]) -> None:
        self.deleted_segments += len(doomed)
        self.deleted_bytes += sum(gone.segment.size for gone in doomed)
        replicas = self._broker.replicas
        partition, followed = replicas.partition_of(log), replicas.followed_of(log)
        if partition is not None:
            partition.touch()
        if followed is not None:
            followed.tell_changed()

    async def rehearse(self, topics: Collection[str] | None) -> list[RetentionResult]:
        """What ``run`` would delete now. Nothing is changed, and it counts as no request."""
        results: list[RetentionResult] = []
        now_ms = self._broker.clock.wall_ms()
        turn = Turn()
        for log in self._logs(topics):
            results += await self._rehearse(log, now_ms)
            if turn.is_over:
                await turn.pass_on()
        return results

    async def _rehearse(self, log: Log, now_ms: int) -> list[RetentionResult]:
        try:
            found = await looked_up(self._broker.threads, log, partial(log.old_segments, now_ms))
        except (CorruptLogError, OSError) as error:
            self._broker.maintenance.report_once(f"retention of {log.topic_partition}: {error}")
            return []
        if not found:
            return []
        start_offset = found[-1].segment.end_offset
        return _summed(log, found, max(log.log_start_offset, start_offset))

    def describe(self) -> dict[str, Any]:
        """For ``node``: when it last ran, by whom, and whether somebody should have asked for it."""
        return {
            "last_run_ms": self.last_run_ms,
            "last_run_by": self.last_run_by,
            "last_request_ms": self.last_request_ms,
            "is_scheduled": self._broker.config.retention_scheduled,
            "is_scheduler_silent": self.is_scheduler_silent,
            "deleted_segments": self.deleted_segments,
            "deleted_bytes": self.deleted_bytes,
        }


def _summed(log: Log, doomed: list[Doomed], log_start_offset: int) -> list[RetentionResult]:
    """One result a reason."""
    results = []
    for reason in RetentionReason:
        sizes = [gone.segment.size for gone in doomed if gone.reason is reason]
        if sizes:
            topic, partition = log.topic_partition
            results.append(
                RetentionResult(topic, partition, reason, len(sizes), sum(sizes), log_start_offset)
            )
    return results


def answer(results: list[RetentionResult], most: int = MAX_RESULTS) -> dict[str, Any]:
    """For the control socket: the first ``most``, and the sums of all."""
    return {
        "results": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "reason": each.reason.value,
                "segments": each.segments,
                "bytes": each.size,
                "log_start_offset": each.log_start_offset,
            }
            for each in results[:most]
        ],
        "left_out": max(0, len(results) - most),
        "segments": sum(each.segments for each in results),
        "bytes": sum(each.size for each in results),
    }
