"""Looks at everything that rules watch, once a tick. What cannot be seen is None, never an error."""

from __future__ import annotations

import datetime as dt
import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from django.conf import settings

from dashboard import leases
from dashboard.alerting.disk_trend import DiskTrend
from dashboard.models import JobMark, JobRun, Lease
from dashboard.snapshots import ClusterSnapshot

logger = logging.getLogger(__name__)

CHILDREN_FILE = "children.json"
"""Written by the supervisor: ``{"children": {"broker": {"restarts_ms": [1700000000000]}}}``."""
JOB_WINDOW = dt.timedelta(days=7)
MAX_JOBS = 200
MAX_RUNS = 20
DATA_DIRECTORY = "data-directory"
_BADLY_ENDED = (JobRun.State.FAILED, JobRun.State.LOST)


@dataclass(frozen=True, slots=True)
class Disk:
    name: str
    total_bytes: int
    free_bytes: int
    hours_to_full: float | None = None
    """None: not enough was seen to tell."""
    is_known: bool = True
    """False: it cannot be seen now, and the figures say nothing."""


@dataclass(frozen=True, slots=True)
class FailingJob:
    name: str
    """``retention``, or ``export/orders`` where the job has a target."""
    failure_count: int
    """In a row, of up to ``MAX_RUNS`` rows; each may stand for several."""
    error: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Sources:
    now_ms: int
    snapshot: ClusterSnapshot | None = None
    disks: tuple[Disk, ...] | None = None
    scheduler_sign_ms: int | None = None
    """Until when the scheduler was there; None when there never was one."""
    failing_jobs: tuple[FailingJob, ...] | None = None
    restarts_ms: Mapping[str, tuple[int, ...]] | None = None
    """By process: when the supervisor started it again."""


@dataclass(slots=True)
class Lookout:
    """Keeps what one look alone cannot tell."""

    trend: DiskTrend = field(default_factory=DiskTrend)

    def look(self, snapshot: ClusterSnapshot | None, now_ms: int) -> Sources:
        return Sources(
            now_ms,
            snapshot,
            self._disks(snapshot, now_ms),
            _scheduler_sign_ms(),
            _failing_jobs(now_ms),
            read_restarts(Path(settings.DATA_DIR) / CHILDREN_FILE),
        )

    def _disks(self, snapshot: ClusterSnapshot | None, now_ms: int) -> tuple[Disk, ...]:
        own = _own_disk()
        found = [own]
        is_fresh = snapshot is not None and snapshot.stale_since_ms is None
        for broker in snapshot.brokers.values() if snapshot is not None else ():
            total, free = broker.disk_total_bytes, broker.disk_free_bytes
            if total is None or free is None or total == own.total_bytes:
                continue  # not told by this cluster; or the one that we see ourselves
            is_known = is_fresh and broker.stale_since_ms is None
            found.append(Disk(f"broker-{broker.broker_id}", total, free, is_known=is_known))
        return tuple(self._with_trend(disk, now_ms) for disk in found)

    def _with_trend(self, disk: Disk, now_ms: int) -> Disk:
        if not disk.is_known:
            return disk
        self.trend.add(disk.name, disk.total_bytes - disk.free_bytes, now_ms)
        return replace(disk, hours_to_full=self.trend.hours_to_full(disk.name, disk.free_bytes))


def _own_disk() -> Disk:
    try:
        usage = shutil.disk_usage(settings.DATA_DIR)
    except OSError:
        logger.warning("the disk of the data directory cannot be seen", exc_info=True)
        return Disk(DATA_DIRECTORY, 0, 0, is_known=False)
    return Disk(DATA_DIRECTORY, usage.total, usage.free)


def read_restarts(path: Path) -> Mapping[str, tuple[int, ...]] | None:
    """None without a supervisor, or while its file says something else than it should."""
    try:
        found: Any = json.loads(path.read_text())
        return {
            str(name): tuple(int(at_ms) for at_ms in child["restarts_ms"])
            for name, child in found["children"].items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _scheduler_sign_ms() -> int | None:
    """Whoever watches the schedules renews this lease every second, and gives it up at its end."""
    lease = Lease.objects.filter(name=leases.SCHEDULER).first()
    return to_ms(lease.until) if lease is not None else None


def _failing_jobs(now_ms: int) -> tuple[FailingJob, ...]:
    recent = JobRun.objects.filter(finished_at__gte=from_ms(now_ms) - JOB_WINDOW)
    suspects = recent.filter(state__in=_BADLY_ENDED).order_by().values_list("job", "target")
    found = []
    # A run that found nothing to do leaves no row, but a mark.
    well = {(mark.job, mark.target): mark.ok_at for mark in JobMark.objects.exclude(ok_at=None)}
    for job, target in suspects.distinct()[:MAX_JOBS]:
        runs = recent.filter(job=job, target=target, state__in=(*_BADLY_ENDED, JobRun.State.OK))
        failed = []
        for run in runs.order_by("-finished_at", "-id")[:MAX_RUNS]:
            ok_at = well.get((job, target))
            is_over = ok_at is not None and run.finished_at is not None and ok_at > run.finished_at
            if run.state not in _BADLY_ENDED or is_over:
                break
            failed.append(run)
        if failed:
            error = failed[0].error.partition("\n")[0] or "its worker is gone"
            since = failed[-1].repeats_since or failed[-1].finished_at
            assert since is not None
            count = sum(1 + run.repeat_count for run in failed)
            found.append(
                FailingJob(f"{job}/{target}" if target else job, count, error, to_ms(since))
            )
    return tuple(found)


def to_ms(at: dt.datetime) -> int:
    return round(at.timestamp() * 1000)


def from_ms(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
