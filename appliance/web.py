"""The web process: ``python -m appliance.web``. Brings the database up to date, then serves.

Started by the supervisor with its configuration in the environment. It does not wait for the broker:
pages say how far that is. Ends at SIGTERM, or when the supervisor is gone (``appliance.child``).
"""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import sys
from pathlib import Path
from typing import Any

from appliance import child

LOCK = "web"
MIGRATION_LOCK = "migration.lock"
MIGRATION_LOCK_NUMBER = 0x6F647261  # any number that others do not take
END_AFTER_S = 15.0
WEBSOCKET_FRAME_BYTES = 64 * 1024
"""From a browser; Daphne would collect any length."""
#: Where cores are short the broker's clients come before who looks on.
NICENESS = 5


def main() -> int:
    child.end_with_parent()
    child.import_no_test_tools()
    child.end_at_signals_until_served()
    child.be_first_to_go(200)
    os.nice(NICENESS)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")
    # Request threads that render pages must not starve the loop that feeds sockets.
    sys.setswitchinterval(0.001)
    gc.disable()  # what is imported stays: looking through it again and again is a fifth of a start
    from django.core.exceptions import ImproperlyConfigured
    from django.db import DatabaseError

    from appliance.config import ConfigError, current

    try:
        config = current().values
        child.take_lock(config.data.absolute(), LOCK)
        import appliance.asgi
        import appliance.celery  # pages ring for the worker by this application

        prepare_database()
    except (child.ChildError, ConfigError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except (DatabaseError, ImproperlyConfigured) as error:
        sys.stderr.write(f"the database cannot be used: {' '.join(str(error).split())}\n")
        return 1
    # All pages, before the first is asked for; then none of it is looked through any more, which
    # would hold up whatever the process does for 0.1 s each time.
    from django.urls import get_resolver

    get_resolver().url_patterns  # noqa: B018 - imports them
    gc.freeze()
    gc.enable()
    _collect()
    _serve(appliance.asgi.application, config.web)
    return 0


def prepare_database() -> None:
    """Bring the tables up to date and make the first admin; one process at a time, of all nodes."""
    from django.db import connection

    from appliance import migrate, schema
    from appliance.config import current
    from dashboard.services.first_admin import make_first_admin

    config = current().values
    data = config.data.absolute()
    with (data / MIGRATION_LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if connection.vendor == "postgresql":
            # Held by this connection until it is closed, at the latest by the end of the process.
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK_NUMBER])
        if unknown := schema.newer():
            raise child.ChildError(
                f"the database was used by a newer Odradek (it has {unknown[-1]}): run that one"
            )
        if schema.missing():
            migrate.run()
        make_first_admin(
            name=config.admin_name,
            password=config.admin_password.get_secret_value(),
            data_directory=data,
        )
        connection.close()


def _collect() -> None:
    from django.conf import settings

    from appliance.config import current
    from broker.clock import SystemClock
    from dashboard import broker_api, clusters
    from dashboard.alerting.watch import alert_watch
    from dashboard.collecting import events
    from dashboard.collecting.events import EventMemory
    from dashboard.collecting.problems import FILE_NAME, ProblemMemory
    from dashboard.collector import TIMEOUT_S, Collector
    from dashboard.outside_changes import OutsideChanges
    from dashboard.samples import samples
    from dashboard.snapshots import shelf

    clock = SystemClock()
    observers = [OutsideChanges(clock).look]
    alert_watch.start()
    shelf.pace_ms = current().values.refresh_s * 1000
    Collector(
        lambda: clusters.new_gateway(TIMEOUT_S),
        shelf,
        clock,
        observers,
        alert_watch.wake,
        broker_api.local(),
        samples(),
        ProblemMemory(Path(settings.DATA_DIR) / FILE_NAME),
        EventMemory(Path(settings.DATA_DIR) / events.FILE_NAME),
    ).start()


def _serve(application: object, address: str) -> None:
    from daphne.endpoints import build_endpoint_description_strings

    from appliance.paced_server import PacedServer  # Daphne's server first: it chooses the reactor

    from twisted.internet import reactor as twisted_reactor  # isort: skip

    from dashboard.probe import split_address
    from dashboard.tail_viewer import FRAME_BYTES

    host, port = split_address(address)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Every connection is a descriptor, and many shells allow only 1,024.
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    reactor: Any = twisted_reactor
    # Twisted takes the signals over; a page that hangs must not hold up the end.
    reactor.addSystemEventTrigger("before", "shutdown", child.end_for_sure, END_AFTER_S)
    PacedServer(
        application,
        endpoints=build_endpoint_description_strings(host=host, port=port),
        server_name="Odradek",
        websocket_timeout=-1,
        # This bound holds for what is sent, too: nothing larger than it would ever arrive.
        websocket_max_message_size=FRAME_BYTES,
        websocket_max_frame_size=WEBSOCKET_FRAME_BYTES,
        application_close_timeout=5,
        verbosity=0,
    ).run()


if __name__ == "__main__":
    sys.exit(main())
