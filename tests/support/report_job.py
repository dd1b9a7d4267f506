"""Reports that compute nothing, for tests of who may run one when: Spark is left out, all else is real.

``python -m tests.support.report_job DIRECTORY SECONDS`` is the appliance's worker with such reports.
``DIRECTORY`` gets ``done-RUN`` for each, ``overlap-RUN`` where two were computed at a time, and
``waited-PROCESS`` of a worker whose report had to wait for another's.
"""

import fcntl
import os
import sys
import time
from pathlib import Path
from typing import Any


def computing(directory: Path, seconds: float) -> Any:
    """Stands for ``dashboard.jobs.report._compute``."""

    def compute(context: Any, *_: Any) -> dict[str, Any]:
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                (directory / f"overlap-{context.run_id}").touch()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                context.progress(1, 2, "computes")
                time.sleep(0.05)
            (directory / f"done-{context.run_id}").touch()
            return {"row_count": 0}
        finally:
            os.close(lock)

    return compute


def waiting(directory: Path, hold: Any) -> Any:
    """Stands for ``dashboard.leases.hold``."""

    def hold_and_tell(name: str, holder: str, seconds: float) -> bool:
        is_held: bool = hold(name, holder, seconds)
        if name == "report" and not is_held:
            (directory / f"waited-{os.getpid()}").touch()
        return is_held

    return hold_and_tell


if __name__ == "__main__":
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "appliance.worker_settings"
    django.setup()
    from dashboard.jobs import report
    from dashboard.spark.home import SparkHome

    traces = Path(sys.argv[1])
    report._compute = computing(traces, float(sys.argv[2]))
    report.leases.hold = waiting(traces, report.leases.hold)  # type: ignore[attr-defined]
    SparkHome.missing = lambda self: None  # type: ignore[method-assign]
    from appliance.worker import main

    sys.exit(main())
