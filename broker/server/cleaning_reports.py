"""What compaction did, partition by partition, and which ones it cannot clean for now.

Told by the control socket (``cleaner``) and to Prometheus; bounded by ``MAX_RUNS`` partitions, the
oldest runs are forgotten first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from broker.clock import Clock
from broker.model.ids import TopicPartition
from broker.storage.log import Log

MAX_RUNS: Final = 1000


@dataclass(slots=True)
class Run:
    """One cleaning of one partition."""

    log: Log
    started_ms: int
    started_monotonic_ms: int
    duration_ms: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records_before: int = 0
    records_after: int = 0
    table_use: float = 0.0
    error: str | None = None

    def finish(self, said: dict[str, Any]) -> None:
        self.bytes_before, self.bytes_after = int(said["bytes_before"]), int(said["bytes_after"])
        self.records_before = int(said["records_before"])
        self.records_after = int(said["records_after"])
        self.table_use = float(said["table_use"])

    def describe(self) -> dict[str, Any]:
        topic, partition = self.log.topic_partition
        return {
            "topic": topic,
            "partition": partition,
            "started_ms": self.started_ms,
            "duration_ms": self.duration_ms,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "records_before": self.records_before,
            "records_after": self.records_after,
            "error": self.error,
        }


@dataclass(slots=True)
class Uncleanable:
    """A partition whose last cleaning failed."""

    log: Log
    reason: str
    since_ms: int
    failures: int
    #: Monotonic, and the same moment by the wall.
    retry_at_ms: int
    retry_at_wall_ms: int

    def describe(self) -> dict[str, Any]:
        topic, partition = self.log.topic_partition
        return {
            "topic": topic,
            "partition": partition,
            "reason": self.reason,
            "since_ms": self.since_ms,
            "failures": self.failures,
            "next_retry_ms": self.retry_at_wall_ms,
        }


class CleaningReports:
    def __init__(self) -> None:
        self.runs: dict[TopicPartition, Run] = {}
        self.uncleanable: dict[TopicPartition, Uncleanable] = {}
        #: Of the last look over all logs: when (monotonic, 0 for never), the largest dirty share,
        #: the longest delay beyond ``max.compaction.lag.ms``, how many were due.
        self.looked_ms = 0
        self.max_dirty_ratio = 0.0
        self.max_delay_ms = 0
        self.due_count = 0
        #: Since the start.
        self.run_count = 0
        self.failure_count = 0
        self.cleaned_bytes = 0

    def note_look(self, now_ms: int, dirty_ratio: float, delay_ms: int, due_count: int) -> None:
        self.looked_ms, self.max_dirty_ratio = now_ms, dirty_ratio
        self.max_delay_ms, self.due_count = delay_ms, due_count

    def note_success(self, run: Run, now_ms: int) -> None:
        run.duration_ms = now_ms - run.started_monotonic_ms
        self.run_count += 1
        self.cleaned_bytes += run.bytes_before - run.bytes_after
        self.uncleanable.pop(run.log.topic_partition, None)
        self._note(run)

    def note_failure(
        self,
        log: Log,
        reason: str,
        clock: Clock,
        backoff_ms: int,
        max_backoff_ms: int,
        run: Run | None,
    ) -> None:
        now_ms, wall_ms = clock.monotonic_ms(), clock.wall_ms()
        before = self.uncleanable.get(log.topic_partition)
        is_same_log = before is not None and before.log is log
        failures = before.failures + 1 if before is not None and is_same_log else 1
        wait_ms = min(backoff_ms << min(failures - 1, 20), max_backoff_ms)
        since_ms = before.since_ms if before is not None and is_same_log else wall_ms
        self.uncleanable[log.topic_partition] = Uncleanable(
            log, reason, since_ms, failures, now_ms + wait_ms, wall_ms + wait_ms
        )
        self.failure_count += 1
        if run is not None:
            run.duration_ms, run.error = now_ms - run.started_monotonic_ms, reason
            self._note(run)

    def _note(self, run: Run) -> None:
        runs = self.runs
        runs.pop(run.log.topic_partition, None)
        if len(runs) >= MAX_RUNS:
            del runs[next(iter(runs))]
        runs[run.log.topic_partition] = run

    def is_waiting(self, topic_partition: TopicPartition, now_ms: int) -> bool:
        """Whether its last cleaning failed a short while ago."""
        found = self.uncleanable.get(topic_partition)
        return found is not None and not found.log.is_deleted and now_ms < found.retry_at_ms

    def forgive(self, topic_partition: TopicPartition) -> None:
        """Somebody wants it tried again at once."""
        found = self.uncleanable.get(topic_partition)
        if found is not None:
            found.retry_at_ms = 0

    def forget_deleted(self) -> None:
        for known in (self.runs, self.uncleanable):
            for topic_partition in [tp for tp, each in known.items() if each.log.is_deleted]:
                del known[topic_partition]

    def describe(
        self, running: Iterable[Run], queued: Iterable[TopicPartition], now_ms: int
    ) -> dict[str, Any]:
        self.forget_deleted()
        return {
            "running": [
                {
                    "topic": run.log.topic_partition.topic,
                    "partition": run.log.topic_partition.partition,
                    "started_ms": run.started_ms,
                }
                for run in running
            ],
            "queued": [{"topic": topic, "partition": index} for topic, index in queued],
            "last_runs": [run.describe() for run in self.runs.values()],
            "uncleanable": [each.describe() for each in self.uncleanable.values()],
            "due": self.due_count,
            "max_dirty_ratio": self.max_dirty_ratio,
            "ms_since_last_look": now_ms - self.looked_ms if self.looked_ms else None,
            "runs": self.run_count,
            "failures": self.failure_count,
            "freed_bytes": self.cleaned_bytes,
        }
