"""Compaction, seen from the broker: which log is next, what its child did, what failed and when again.

``log.cleaner.threads`` workers take the log with the largest dirty share (or one that somebody asked
for) and let a child process clean it, so that the loop never waits; the swap of segments is done here,
in steps. A child ends when nothing is left to do. An error stops that partition only: it is kept with
its reason and tried again after ``log.cleaner.backoff.ms``, doubled with each failure. A topic that is
deleted, or no longer compacted, stops its cleaning.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.model.errors import CorruptLogError, DiskFullError, StorageError
from broker.model.ids import TopicPartition
from broker.server.cleaning_child import ChildFailed, CleaningChild
from broker.server.cleaning_reports import CleaningReports, Run
from broker.server.tasks import Turn
from broker.server.warming import looked_up
from broker.storage.cleaning.job import CleanedGroup, CleanedSegment
from broker.storage.cleaning.plan import Cleanable, CleanerLimits, cleanable, job_for
from broker.storage.layout import CLEANED_SUFFIX
from broker.storage.log import Log
from broker.storage.producer_state import ProducerEntry
from broker.storage.segment_swap import SegmentSwap, SwapRefused

if TYPE_CHECKING:
    from broker.server.app import Broker

logger = logging.getLogger(__name__)

#: A partition that keeps failing is tried at least this often.
MAX_BACKOFF_MS: Final = 600_000
#: What one worker may need beyond the table: see ``broker/storage/cleaning/cleaner.py``.
MIN_BUFFER_BYTES: Final = 1024 * 1024


class Aborted(Exception):
    """Nobody wants this cleaning any more."""


class Cleaning:
    """See the module's docstring."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.reports = CleaningReports()
        #: Asked for by somebody, in order.
        self._asked: dict[TopicPartition, None] = {}
        self.running: dict[TopicPartition, Run] = {}
        self._children: dict[TopicPartition, CleaningChild] = {}
        #: Places of workers, below ``log.cleaner.threads``: those that are taken, and those whose last
        #: worker failed, with the log that it could start no child for (None: anything else).
        self._workers: set[int] = set()
        self._dead: dict[int, TopicPartition | None] = {}
        self._next_look_ms = 0

    # When ------------------------------------------------------------------------------------

    @property
    def is_enabled(self) -> bool:
        config = self._broker.config
        return config.log_cleaner_enable and config.log_cleaner_threads > 0

    @property
    def dead_worker_count(self) -> int:
        """Workers that failed and whose successors have not got through yet."""
        threads = self._broker.config.log_cleaner_threads if self.is_enabled else 0
        return sum(place < threads for place in self._dead)

    def tick(self, now_ms: int) -> None:
        """Once a second: start workers when there may be something to do, stop what is unwanted."""
        for topic_partition, child in self._children.items():
            run = self.running.get(topic_partition)
            if run is not None and not self._is_wanted(run.log):
                child.kill()
        place = self._free_place() if self.is_enabled else None
        if place is None:
            return
        if now_ms >= self._next_look_ms or self._ready_to_be_asked():
            self._next_look_ms = now_ms + self._broker.config.log_cleaner_backoff_ms
            self._workers.add(place)
            self._broker.tasks.spawn(self._work(place), "cleaning")

    def _free_place(self) -> int | None:
        """Where the next worker goes: first to where one failed."""
        free = set(range(self._broker.config.log_cleaner_threads)) - self._workers
        return min(free, key=lambda place: (place not in self._dead, place), default=None)

    def ask(self, topics: Collection[str] | None) -> list[TopicPartition]:
        """Clean these topics' compacted partitions as soon as possible, however little is dirty."""
        asked = [
            topic_partition
            for topic_partition, log in self._broker.logs.logs.items()
            if log.config.is_compacted and (topics is None or topic_partition.topic in topics)
        ]
        for topic_partition in asked:
            self._asked[topic_partition] = None
            self.reports.forgive(topic_partition)
        return asked

    @property
    def queued(self) -> list[TopicPartition]:
        return list(self._asked)

    def _ready_to_be_asked(self) -> list[TopicPartition]:
        """Asked for, and not waiting after a failure."""
        now_ms = self._broker.clock.monotonic_ms()
        return [each for each in self._asked if not self.reports.is_waiting(each, now_ms)]

    def _is_wanted(self, log: Log) -> bool:
        return not log.is_deleted and log.config.is_compacted and self.is_enabled

    # What ------------------------------------------------------------------------------------

    async def _work(self, place: int) -> None:
        """One worker: cleans until nothing is due."""
        child: CleaningChild | None = None
        try:
            while self.is_enabled and (found := await self._choose()) is not None:
                log, what = found
                if child is None:
                    child = await self._child_for(log, place)
                    if child is None:
                        return
                is_usable = await self._clean(child, log, what)
                self._dead.pop(place, None)
                if not is_usable:
                    await child.close()
                    child = None
            self._note_idle(place)
        except Exception:
            self._dead[place] = None
            raise
        finally:
            self._workers.discard(place)
            if child is not None:
                child.kill()
                await child.close()

    async def _child_for(self, log: Log, place: int) -> CleaningChild | None:
        """None when the system gives no process: another worker will try, a while later."""
        try:
            return await CleaningChild.start()
        except ChildFailed as error:
            self._dead[place] = log.topic_partition
            self._note_failure(log, str(error))
        return None

    def _note_idle(self, place: int) -> None:
        """Nothing is due. Whether a child can be started is not known as long as its log waits."""
        waiting = self._dead.get(place)
        found = self.reports.uncleanable.get(waiting) if waiting is not None else None
        if found is None or found.log.is_deleted:
            self._dead.pop(place, None)

    async def _choose(self) -> tuple[Log, Cleanable] | None:
        """The log to clean next, and what of it; None when nothing is due."""
        logs = self._broker.logs.logs
        for topic_partition in self._ready_to_be_asked():
            if topic_partition not in self._asked:
                continue  # another worker was quicker
            del self._asked[topic_partition]
            log = logs.get(topic_partition)
            if log is not None and self._is_free(log):
                what = await self._look_at(log)
                if what is not None and what.dirty_bytes:
                    return log, what
        best: tuple[Log, Cleanable] | None = None
        turn = Turn()
        dirtiest, delay_ms, seen = 0.0, 0, 0
        for log in list(logs.values()):
            if log.config.is_compacted and self._is_free(log):
                what = await self._look_at(log)
                if what is not None and what.dirty_bytes:
                    dirtiest, delay_ms = (
                        max(dirtiest, what.dirty_ratio),
                        max(delay_ms, what.delay_ms),
                    )
                    if what.is_due(log):
                        seen += 1
                        if best is None or what.dirty_ratio > best[1].dirty_ratio:
                            best = log, what
            if turn.is_over:
                await turn.pass_on()
        self.reports.note_look(self._broker.clock.monotonic_ms(), dirtiest, delay_ms, seen)
        # It may have been taken or deleted while we looked at the others.
        return best if best is not None and self._is_free(best[0]) else None

    def _is_free(self, log: Log) -> bool:
        topic_partition = log.topic_partition
        return (
            self._is_wanted(log)
            and topic_partition not in self.running
            and not self.reports.is_waiting(topic_partition, self._broker.clock.monotonic_ms())
        )

    async def _look_at(self, log: Log) -> Cleanable | None:
        try:
            return await looked_up(
                self._broker.threads, log, lambda: cleanable(log, self._broker.clock.wall_ms())
            )
        except (CorruptLogError, DiskFullError, OSError) as error:
            self._note_failure(log, str(error))
        return None

    async def _clean(self, child: CleaningChild, log: Log, what: Cleanable) -> bool:
        """One round over one log; gives whether the child can be used again."""
        broker = self._broker
        run = Run(log, broker.clock.wall_ms(), broker.clock.monotonic_ms())
        topic_partition = log.topic_partition
        self.running[topic_partition] = run
        self._children[topic_partition] = child
        try:
            await self._converse(child, log, what, run)
        except (Aborted, SwapRefused) as error:
            logger.info("%s: cleaning was given up: %s", topic_partition, error)
            return await self._stop(child, log)
        except StorageError as error:
            broker.replicas.take_offline(error)
            return await self._stop(child, log)
        except (ChildFailed, CorruptLogError, DiskFullError, OSError) as error:
            is_usable = await self._stop(child, log)
            if self._is_wanted(log):
                self._note_failure(log, str(error), run)
            return is_usable
        else:
            self.reports.note_success(run, broker.clock.monotonic_ms())
            return True
        finally:
            del self.running[topic_partition]
            del self._children[topic_partition]

    async def _stop(self, child: CleaningChild, log: Log) -> bool:
        """End the child, and remove what it may have left."""
        child.kill()
        await child.close()
        if not log.is_deleted:
            with contextlib.suppress(OSError):
                await self._broker.threads.call(partial(_remove_cleaned, log))
        return False

    def _note_failure(self, log: Log, reason: str, run: Run | None = None) -> None:
        backoff_ms = max(self._broker.config.log_cleaner_backoff_ms, 1000)
        self.reports.note_failure(log, reason, self._broker.clock, backoff_ms, MAX_BACKOFF_MS, run)
        # Tried again, also where so little is dirty that only a person's asking brought it about.
        self._asked[log.topic_partition] = None
        logger.error("%s cannot be cleaned: %s", log.topic_partition, reason)

    async def _converse(self, child: CleaningChild, log: Log, what: Cleanable, run: Run) -> None:
        broker = self._broker
        if broker.logs.durable_recovery_point(log) < what.end_offset:
            # A recovery must not go over holes that the topic's policy may no longer explain.
            for work in broker.logs.checkpoint_work():
                await broker.threads.call(work.run)
        producers = list(log.producers.entries.values())
        line = await broker.threads.call(partial(self._job_line, log, what, producers))
        segments = {segment.base_offset: segment for segment in what.segments}
        cut_count = log.cut_count
        await child.send(line)
        while (said := await child.receive())["kind"] == "group":
            if not self._is_wanted(log):
                raise Aborted("the topic was deleted, or is no longer compacted")
            group = CleanedGroup(said["old"], [CleanedSegment(*each) for each in said["new"]])
            await self._put_in_place(
                log, SegmentSwap(log, [segments[at] for at in group.old], group)
            )
            await child.send({"go": True})
        if said["kind"] != "done":
            raise ChildFailed(str(said.get("error", said["kind"])))
        if not self._is_wanted(log) or log.cut_count != cut_count:
            raise Aborted("the topic was deleted or truncated, or is no longer compacted")
        run.finish(said)
        log.cleaned_offset = min(int(said["end_offset"]), log.log_end_offset)
        await broker.threads.call(broker.logs.cleaner_work(log).run)
        if log.cleaned_offset < what.end_offset:
            self._asked[log.topic_partition] = None  # the keys found no room: another round

    def _job_line(self, log: Log, what: Cleanable, producers: list[ProducerEntry]) -> bytes:
        """In a thread: of a log with many producers it is long."""
        config = self._broker.config
        threads = max(config.log_cleaner_threads, 1)
        limits = CleanerLimits(
            max(config.log_cleaner_dedupe_buffer_size // threads, MIN_BUFFER_BYTES),
            config.log_cleaner_io_buffer_load_factor,
            config.log_cleaner_io_buffer_size // threads,
            config.log_cleaner_io_max_bytes_per_second / threads,
        )
        job = job_for(log, what, producers, limits, self._broker.clock.wall_ms())
        return json.dumps(job.to_json()).encode() + b"\n"

    async def _put_in_place(self, log: Log, swap: SegmentSwap) -> None:
        turn = Turn()
        try:
            with contextlib.closing(swap.steps()) as steps:
                for step in steps:
                    if step is not None:
                        await self._broker.threads.call(step.run)
                    elif turn.is_over:
                        await turn.pass_on()
        except (DiskFullError, OSError) as error:
            if log.is_deleted:
                raise Aborted("the topic was deleted") from error
            if swap.is_installed:
                # Names are in between; the next start brings it to its end.
                raise StorageError(log.log_dir, f"segments cannot be swapped: {error}") from error
            raise
        partition = self._broker.replicas.partition_of(log)
        if partition is not None:
            partition.touch()


def _remove_cleaned(log: Log) -> None:
    for entry in log.fs.list_directory(log.directory):
        if entry.name.endswith(CLEANED_SUFFIX):
            log.fs.remove(f"{log.directory}/{entry.name}")
