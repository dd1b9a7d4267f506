"""The worker process: ``python -m appliance.worker``. Runs jobs, and beat as a thread (decision 9).

Celery's thread pool: five tasks at a time, of which two may be long jobs and one a report
(``dashboard.jobs.runner``),
so that sweeps and schedules never wait behind them. It waits for the web process to bring the
tables up to date. At SIGTERM, or when the supervisor is gone, jobs end at their next step and go
back into the queue; what does not end in time is left, and found lost by the next sweep.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
import uuid
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

from appliance import child

if TYPE_CHECKING:
    from dashboard.jobs.runner import Runner

logger = logging.getLogger(__name__)

SETTINGS = "appliance.worker_settings"
POOL_SIZE = 5
END_AFTER_S = 20.0
TABLES_POLL_S = 0.2
TABLES_WORD_S = 30.0
LOCK = "worker"


@cache
def name() -> str:
    """Of this process, in rows and leases; never used again by another one."""
    return f"{socket.gethostname()[:64]}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


@cache
def runner() -> Runner:
    from broker.clock import SystemClock
    from dashboard.jobs.runner import Runner

    return Runner(name(), SystemClock())


def give_back() -> None:
    """Messages that dead workers held; other transports do that by themselves."""
    from appliance.celery import app
    from appliance.transport import Channel

    with app.connection_for_read() as connection:
        channel = connection.default_channel
        if isinstance(channel, Channel) and (count := channel.give_back()):
            logger.info("%d messages of a worker that is gone were put back in line", count)


def main() -> int:
    child.end_with_parent()
    child.import_no_test_tools()
    child.end_at_signals_until_served()
    child.be_first_to_go(300)
    os.environ["DJANGO_SETTINGS_MODULE"] = SETTINGS
    from django.db import DatabaseError

    from appliance.config import ConfigError, current

    try:
        data = current().values.data.absolute()
        lock = child.take_lock(data, LOCK)
        _set_up_django()
        _await_tables()
        hold_transport()
    except (child.ChildError, ConfigError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except DatabaseError as error:
        sys.stderr.write(f"the database cannot be used: {' '.join(str(error).split())}\n")
        return 1
    return _work(lock)


def _set_up_django() -> None:
    import django

    django.setup()


def _await_tables() -> None:
    """Until the web process has made them, here or on another node."""
    from appliance import schema

    word_at = time.monotonic() + TABLES_WORD_S
    while missing := schema.missing():
        if time.monotonic() > word_at:
            logger.warning(
                "waiting for a web process to bring the database up to date: %s", missing
            )
            word_at += TABLES_WORD_S
        time.sleep(TABLES_POLL_S)


def hold_transport() -> None:
    """Messages in files reach one node only: a second one must not work on the same database."""
    from django.db import connection

    from appliance.config import current
    from appliance.failure import SEVERAL_NODES
    from dashboard import leases

    config = current().values
    if config.celery_url.get_secret_value() or connection.vendor == "sqlite":
        return
    node = f"{socket.gethostname()[:64]}:{config.data.absolute()}"[-128:]
    if not leases.hold(leases.FILES_TRANSPORT, node, leases.TRANSPORT_S):
        holder = leases.holder_of(leases.FILES_TRANSPORT)
        raise child.ChildError(f"{SEVERAL_NODES} (the other one is {holder})")


def _work(lock: int) -> int:
    from celery import signals
    from celery.platforms import SecurityWarning
    from django.db import close_old_connections

    from appliance.celery import app
    from appliance.scheduling import Beat
    from dashboard.services import runs

    # Of running as root: messages are JSON, and nobody but this user can write them.
    warnings.simplefilter("ignore", SecurityWarning)
    beat = Beat(name())

    # Without a receiver Celery would set up logging by itself.
    @signals.setup_logging.connect(weak=False)  # type: ignore[untyped-decorator]
    def keep_logging(**_: Any) -> None:
        pass

    @signals.worker_ready.connect(weak=False)  # type: ignore[untyped-decorator]
    def on_ready(**_: Any) -> None:
        runner().start()
        beat.start()
        try:
            give_back()
            runs.sweep()
        except Exception:  # Celery would go on without what follows, and this worker be deaf
            logger.warning("what was left behind is looked for at the next sweep", exc_info=True)
        child.mark_ready(lock)
        logger.info("ready for jobs")

    @signals.task_postrun.connect(weak=False)  # type: ignore[untyped-decorator]
    def after_task(**_: Any) -> None:
        close_old_connections()

    @signals.worker_shutting_down.connect(weak=False)  # type: ignore[untyped-decorator]
    def on_stop(**_: Any) -> None:
        child.end_for_sure(END_AFTER_S)
        runner().stop()
        beat.begin_stop()

    worker = app.Worker(
        pool="threads",
        concurrency=POOL_SIZE,
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        hostname=f"odradek@{socket.gethostname()}",
    )
    worker.start()
    beat.stop()
    return int(worker.exitcode or 0)


if __name__ == "__main__":
    # As its own name, so that tasks find the module that runs.
    from appliance.worker import main as run_as_module

    sys.exit(run_as_module())
