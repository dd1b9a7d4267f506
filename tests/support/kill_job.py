"""A job that leaves traces of when it ran, for tests that kill its worker.

``python -m tests.support.kill_job`` is the appliance's worker with this job in its table.
"""

import fcntl
import os
import sys
import time
from pathlib import Path
from typing import Any

JOB = "kill-test"


def run(context: Any) -> dict[str, Any]:
    """Sleeps for its parameter ``seconds``; fails by its parameter ``fails``. ``directory`` gets
    ``started-RUN`` (a second start adds ``twice-RUN``) and ``overlap-RUN`` where two ran at a time."""
    directory = Path(context.parameters["directory"])
    lock = os.open(directory / f"lock-{context.run_id}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (directory / f"overlap-{context.run_id}").touch()
        try:
            os.close(os.open(directory / f"started-{context.run_id}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            (directory / f"twice-{context.run_id}").touch()
        end = time.monotonic() + context.parameters["seconds"]
        while time.monotonic() < end:
            context.progress(1, 2, "sleeping")
            time.sleep(0.01)
        if context.parameters["fails"]:
            raise RuntimeError("as it was asked to")
        return {"slept": context.parameters["seconds"]}
    finally:
        os.close(lock)


def register() -> None:
    from dashboard.jobs import KINDS, JobKind

    KINDS[JOB] = JobKind(JOB, "Kill test", "", "tests.support.kill_job:run", is_quick=True)


if __name__ == "__main__":
    register()
    if "--soon" in sys.argv:
        # Leases and sweeps of seconds, so that a short test need not wait for a minute.
        import django

        os.environ["DJANGO_SETTINGS_MODULE"] = "appliance.worker_settings"
        django.setup()
        import appliance.scheduling
        from dashboard.jobs import runner
        from dashboard.services import runs

        runs.LEASE_S, runs.RING_AFTER_S, runner.RENEW_S = 4, 1, 1.0
        appliance.scheduling.SWEEP_EVERY_S = 1.0
    from appliance.worker import main

    sys.exit(main())
