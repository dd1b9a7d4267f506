"""``odradek backup list|verify|prune|restore``: what is done with backups that are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from appliance.backup import restoration
from appliance.backup.target import Target, no_room, refuse_one_in_the_other
from appliance.failure import CommandError, ItemError
from appliance.options import command, data_option, pass_session
from appliance.output import Column, Report, Table, format_size
from appliance.session import Session
from broker.clock import SystemClock

NOTE_EVERY_MS = 2000
COLUMNS = (
    Column("backup"),
    Column("created", "moment"),
    Column("version"),
    Column("partitions", "count"),
    Column("bytes", "size"),
    Column("cluster_id", is_wide=True),
)
_TARGET = click.argument(
    "target", type=click.Path(path_type=Path, file_okay=False), metavar="TARGET"
)
_BACKUP = click.option(
    "--backup", "wanted", metavar="BACKUP", help="Which one; the newest unless it is said."
)


def _row(name: str, manifest: dict[str, Any]) -> dict[str, Any]:
    return {
        "backup": name,
        "created": manifest["created_ms"],
        "version": manifest["version"],
        "partitions": len(manifest["partitions"]),
        "bytes": sum(entry.get("size", 0) for _, entry in restoration.files_of(manifest)),
        "cluster_id": manifest["cluster_id"],
    }


class _Steps:
    """Tells how far it is, now and then."""

    def __init__(self, session: Session, what: str) -> None:
        self._session = session
        self._what = what
        self._clock = SystemClock()
        self._noted_ms = self._clock.monotonic_ms()

    def __call__(self, done: int, total: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._noted_ms >= NOTE_EVERY_MS:
            self._noted_ms = now_ms
            self._session.note(f"{done:,} of {total:,} files {self._what}")


@command("list")
@_TARGET
@pass_session
def list_backups(session: Session, target: Path) -> int:
    """List the backups in the directory TARGET, the oldest first."""
    place = Target(target.absolute())
    place.open()
    rows, errors = [], []
    for name in place.backups():
        try:
            rows.append(_row(name, place.read_manifest(name)))
        except CommandError as error:
            errors.append(error.item)
    return session.emit(Report([Table(COLUMNS, rows)], errors))


@command("verify")
@_TARGET
@_BACKUP
@pass_session
def verify(session: Session, target: Path, wanted: str | None) -> int:
    """Read a backup in the directory TARGET and compare every file with its checksum.

    Exit code 1 when something is damaged; what it is, is named.
    """
    place = Target(target.absolute())
    place.open()
    name = place.choose(wanted)
    manifest = place.read_manifest(name)
    errors = [
        ItemError("DAMAGED", what, {"file": file})
        for file, what in restoration.damage_in(place, manifest, _Steps(session, "read"))
    ]
    if errors:
        session.note(
            f"Remove the damaged files: the next `odradek backup create {target}` copies anew what the node still has."
        )
    text = f"backup {name} is {'damaged' if errors else 'whole'}\n"
    return session.emit(Report([Table(COLUMNS, [_row(name, manifest)])], errors, text=text))


@command("restore")
@_TARGET
@_BACKUP
@data_option("The data directory to make; it must be new or empty.", takes_any_version=True)
@pass_session
def restore(session: Session, target: Path, wanted: str | None, data: Path) -> int:
    """Make a data directory from a backup in the directory TARGET, on this machine or another one.

    The node that it makes has the same cluster and node id: the two must not run at once for the same clients.
    Interrupted, call it again.
    """
    place = Target(target.absolute())
    place.open()
    name = place.choose(wanted)
    manifest = place.read_manifest(name)
    try:
        refuse_one_in_the_other(target, data)
        restoration.restore(place, manifest, data.absolute(), _Steps(session, "written"))
    except OSError as error:
        raise no_room(error, data, "it begins anew") from None
    for note in manifest["notes"]:
        session.note(note)
    text = f"backup {name} is restored; next: odradek serve --data {data}\n"
    return session.emit(Report([Table(COLUMNS, [_row(name, manifest)])], text=text))


@command("prune")
@_TARGET
@click.option(
    "--keep",
    type=click.IntRange(1),
    required=True,
    metavar="N",
    help="How many of the newest backups stay.",
)
@pass_session
def prune(session: Session, target: Path, keep: int) -> int:
    """Remove all backups in the directory TARGET but the newest N, and what only those needed.

    Interrupted, call it again. Asks before it removes anything (--yes).
    """
    place = Target(target.absolute())
    place.open()
    names = place.backups()[:-keep]
    if names:
        session.confirm_several("remove", "backup", names)
    try:
        place.open_to_write()
        pruned = place.prune(keep, restoration.digests_of)
    except OSError as error:
        raise no_room(error, target) from None
    finally:
        place.close()
    rows = [{"backup": name, "outcome": "removed"} for name in pruned.gone]
    rows += [{"backup": name, "outcome": "kept"} for name in pruned.kept]
    session.note(f"{format_size(pruned.freed_bytes)} freed")
    return session.emit(Report([Table((Column("backup"), Column("outcome")), rows)]))
