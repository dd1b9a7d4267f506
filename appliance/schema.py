"""Whether the database's tables are those of this version: older, the same, or newer.

Looks at the names of migrations only, on disk and in the database, and imports none of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

DATABASE_NAME: Final = "odradek.db"
OWN_APP: Final = "dashboard"
Migration = tuple[str, str]
"""App label and name, as in the table ``django_migrations``."""


def on_disk(package: str) -> set[str]:
    """The migrations of one application, by the names of their files."""
    spec = find_spec(f"{package}.migrations")
    found: set[str] = set()
    for directory in (spec.submodule_search_locations or []) if spec is not None else []:
        found |= {path.stem for path in Path(directory).glob("[0-9]*.py")}
    return found


def missing() -> list[str]:
    """What the installed applications need and the database has not; Django is set up."""
    from django.apps import apps

    applied = _applied()
    needed: Iterable[Migration] = (
        (config.label, name) for config in apps.get_app_configs() for name in on_disk(config.name)
    )
    return sorted(f"{label}.{name}" for label, name in needed if (label, name) not in applied)


def has_tables() -> bool:
    """Whether it was ever migrated."""
    return bool(_applied())


def newer() -> list[str]:
    """Migrations of ours in the database that this version does not know."""
    known = on_disk(OWN_APP)
    return sorted(name for label, name in _applied() if label == OWN_APP and name not in known)


def newer_in_file(path: Path) -> list[str]:
    """The same for an SQLite file, without Django. What cannot be read is not newer."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2)
    except sqlite3.Error:
        return []
    try:
        rows = connection.execute("SELECT name FROM django_migrations WHERE app = ?", (OWN_APP,))
        return sorted({str(name) for (name,) in rows} - on_disk(OWN_APP))
    except sqlite3.Error:
        return []
    finally:
        connection.close()


def _applied() -> set[Migration]:
    """Nothing when the table is not there yet. Raises Django's DatabaseError for other reasons."""
    from django.db import connection

    table = "django_migrations"
    with connection.cursor() as cursor:
        if table not in connection.introspection.table_names(cursor):
            return set()
        cursor.execute("SELECT app, name FROM django_migrations")
        return {(str(label), str(name)) for label, name in cursor.fetchall()}
