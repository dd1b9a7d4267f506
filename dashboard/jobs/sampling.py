"""Lag and throughput for charts while the web process takes no samples: it is down, or hangs.

The web process samples by itself, every ten seconds while somebody looks and every minute else. This
job looks each minute whether it did, and fills the gap from here; rates are known from its second
turn on, since they are differences.
"""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path
from typing import Any, Final

from django.conf import settings

from broker.clock import SystemClock
from dashboard import broker_api, clusters
from dashboard.collector import TIMEOUT_S, Collector
from dashboard.jobs import JobContext
from dashboard.samples import FILE_NAME, samples
from dashboard.snapshots import SnapshotShelf

SILENT_MS: Final = 90_000


class NothingSampled(Exception):
    """Said in the run's row."""


def sample(context: JobContext) -> dict[str, Any] | None:
    """Leaves no row: what it did is in the charts."""
    if age_ms() < SILENT_MS:
        return None
    context.progress(0, text="the web process is silent: sampling from here")
    collector = _collector()
    if not collector.tick():
        raise NothingSampled("no broker answers")
    collector.follow()
    return None


def age_ms() -> float:
    """Since anything was written to the history; infinite without one."""
    newest_ns = -1
    for suffix in ("", "-wal"):
        with contextlib.suppress(OSError):
            path = Path(settings.DATA_DIR) / f"{FILE_NAME}{suffix}"
            newest_ns = max(newest_ns, path.stat().st_mtime_ns)
    if newest_ns < 0:
        return float("inf")
    return SystemClock().wall_ms() - newest_ns / 1_000_000


@cache
def _collector() -> Collector:
    return Collector(
        lambda: clusters.new_gateway(TIMEOUT_S),
        SnapshotShelf(),
        SystemClock(),
        api=broker_api.local(),
        samples=samples(),
    )
