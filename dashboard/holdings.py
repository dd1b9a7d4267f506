"""What the appliance writes about itself: every table and folder, what it takes, and its bound.

``SOURCES`` is the one list: whoever writes something new adds a function to it, and a test holds it
against the tables of the database. The broker's logs are not in it: they are the cluster's data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from django.apps import apps
from django.conf import settings
from django.db import connection

from dashboard import export_files, run_logs
from dashboard.alerting import housekeeping
from dashboard.jobs import clean_up
from dashboard.samples import FILE_NAME as SAMPLES_FILE
from dashboard.samples import MAX_BYTES as MAX_SAMPLES_BYTES
from dashboard.services.alerts import MAX_CHANNELS, MAX_RULES, MAX_SILENCES
from dashboard.services.api_tokens import MAX_TOKENS
from dashboard.services.reports import MAX_REPORTS
from dashboard.services.saved_filters import MAX_FILTERS
from dashboard.services.schedules import MAX_SCHEDULES
from dashboard.spark import results
from dashboard.templatetags.show import number, size

MAX_WALKED: Final = 100_000
"""Files of a folder that are counted; a folder of more is told as at least that."""


class Holding(NamedTuple):
    what: str
    where: str
    """Tables, or a path below the data directory."""
    entries: int | None
    """Rows or files."""
    size_bytes: int | None
    """None: in the database, whose size is told in one."""
    bound: str
    tables: tuple[str, ...] = ()
    pauses: bool = True
    """Nothing is added while there is hardly any room."""


def holdings() -> list[Holding]:
    return [each for source in SOURCES for each in source()]


def _database() -> Iterator[Holding]:
    if connection.vendor == "sqlite":
        path = Path(str(connection.settings_dict["NAME"]))
        yield Holding(
            "Database", path.name, None, _bytes_of(path), "the tables below", pauses=False
        )
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        (taken,) = cursor.fetchone()
    yield Holding("Database", "PostgreSQL", None, taken, "the tables below", pauses=False)


def _bytes_of(path: Path) -> int:
    """A file of SQLite with what lies beside it."""
    total = 0
    for suffix in ("", "-wal", "-shm", "-journal"):
        try:
            total += os.stat(f"{path}{suffix}").st_size
        except OSError:
            continue
    return total


def _of(days: int, rows: int) -> str:
    return f"{days} days, {number(rows)} rows"


def _tables() -> Iterator[Holding]:
    runs, audit, sign_ins = clean_up.RUNS, clean_up.AUDIT, clean_up.SIGN_INS
    alerts_days = housekeeping.HISTORY_AGE.days
    yield _table("Runs of jobs", _of(runs.days, runs.rows), "dashboard.jobrun", "dashboard.jobmark")
    yield _table("Audit", _of(audit.days, audit.rows), "dashboard.auditentry", pauses=False)
    yield _table(
        "Alerts, past and present", _of(alerts_days, housekeeping.MAX_HISTORY), "dashboard.alert",
        pauses=False,
    )  # fmt: skip
    yield _table(
        "Messages of alerts",
        _of(housekeeping.DELIVERY_AGE.days, housekeeping.MAX_DELIVERIES),
        "dashboard.alertdelivery",
        pauses=False,
    )
    yield _table(
        "Alert rules, channels, silences",
        f"{MAX_RULES}, {MAX_CHANNELS}, {MAX_SILENCES}",
        "dashboard.alertrule", "dashboard.alertchannel", "dashboard.alertsilence",
        "dashboard.alertrule_channels", pauses=False,
    )  # fmt: skip
    yield _table(
        "Sign-ins",
        _of(sign_ins.days, sign_ins.rows),
        "axes.accessattempt", "axes.accesslog", "axes.accessfailurelog",
        "axes.accessattemptexpiration", pauses=False,
    )  # fmt: skip
    yield _table(
        "Saved filters", f"{MAX_FILTERS} of a person", "dashboard.savedfilter", pauses=False
    )
    yield _table("Reports", number(MAX_REPORTS), "dashboard.report", pauses=False)
    yield _table("Sessions", "14 days", "sessions.session", pauses=False)
    yield _table(
        "Users and their tokens", f"made by admins; {MAX_TOKENS} tokens each",
        "dashboard.user", "dashboard.apitoken", "dashboard.user_groups",
        "dashboard.user_user_permissions", pauses=False,
    )  # fmt: skip
    yield _table(
        "Schedules",
        number(MAX_SCHEDULES),
        "django_celery_beat.periodictask", "django_celery_beat.periodictasks",
        "django_celery_beat.intervalschedule", "django_celery_beat.crontabschedule",
        "django_celery_beat.clockedschedule", "django_celery_beat.solarschedule", pauses=False,
    )  # fmt: skip
    yield _table(
        "Leases, and what the tables are", "a few rows", "dashboard.lease", "auth.group",
        "auth.permission", "auth.group_permissions", "contenttypes.contenttype", pauses=False,
    )  # fmt: skip


def _table(what: str, bound: str, *labels: str, pauses: bool = True) -> Holding:
    """``labels``: models as ``app.model``; of a relation of many, ``app.model_field``."""
    count, tables = 0, []
    for label in labels:
        app, _, name = label.partition(".")
        name, _, relation = name.partition("_")
        if not apps.is_installed(apps.get_app_config(app).name):
            continue
        try:
            model = apps.get_model(app, name)
        except LookupError:
            continue
        if relation:
            model = getattr(model, relation).through
        else:
            count += model._default_manager.count()
        tables.append(model._meta.db_table)
    return Holding(what, ", ".join(tables), count, None, bound, tuple(tables), pauses)


def _folders() -> Iterator[Holding]:
    data = Path(settings.DATA_DIR)
    yield Holding(
        "Samples for charts", SAMPLES_FILE, None, _bytes_of(data / SAMPLES_FILE),
        f"{size(MAX_SAMPLES_BYTES)}; an hour, a day and a week, the coarsest kept longest",
    )  # fmt: skip
    hours = export_files.KEPT_MS // 3_600_000
    bound = f"{hours} hours, {size(export_files.MAX_TOTAL_BYTES)}"
    yield _folder("Exports and downloads", "exports", bound)
    bound = f"{size(results.MAX_TOTAL_BYTES)}; of each report as many runs as it says"
    yield _folder("Results of reports", "reports", bound)
    yield _folder("Spark, once it is prepared", "spark", "one version of it, 500 MB", pauses=False)
    bound = f"{size(run_logs.MAX_TOTAL_BYTES)}, with their runs; {size(run_logs.MAX_BYTES)} each"
    yield _folder("Logs of runs", "run-logs", bound)
    yield _folder("Messages to the worker", "celery", "10 000 messages", pauses=False)


def _folder(what: str, name: str, bound: str, *, pauses: bool = True) -> Holding:
    count, total = walk(Path(settings.DATA_DIR) / name)
    return Holding(what, f"{name}/", count, total, bound, pauses=pauses)


def walk(folder: Path) -> tuple[int, int]:
    """(files, bytes) of a folder and those in it; nothing where it does not exist."""
    count = total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(directory, name)).st_size
            except OSError:
                continue
            count += 1
            if count >= MAX_WALKED:
                return count, total
    return count, total


SOURCES: list[Callable[[], Iterator[Holding]]] = [_database, _folders, _tables]
