"""``odradek backup create``: a backup of the node that runs on a data directory."""

from __future__ import annotations

from pathlib import Path

import click

from appliance.backup.creation import Creation, Totals
from appliance.backup.target import Target, no_room, refuse_one_in_the_other, size_words
from appliance.failure import EXIT_USAGE, CommandError
from appliance.options import command, data_option, pass_session
from appliance.output import Column, Report, Table, format_size
from appliance.session import Session
from broker.clock import SystemClock

NOTE_EVERY_MS = 2000
COLUMNS = (
    Column("backup"),
    Column("partitions", "count"),
    Column("bytes", "size"),
    Column("new_bytes", "size"),
)


@command("create")
@click.argument("target", type=click.Path(path_type=Path, file_okay=False), metavar="TARGET")
@data_option("The data directory of the node.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The configuration that `odradek serve` has, to be kept too.",
)
@pass_session
def create(session: Session, target: Path, data: Path, config: Path | None) -> int:
    """Back up the running node into the directory TARGET, which may hold earlier backups.

    The node is served on. All logs are copied up to where they were committed at one moment, with the
    metadata store, the database (and the schedules in it), results of reports, the secret key. What an earlier
    backup has is not copied again. Interrupted, call it again: it goes on. TARGET holds secrets then.
    """
    from appliance.config import ConfigError, load_for_serve

    try:
        loaded = load_for_serve({"data": data}, config)
    except ConfigError as error:
        raise CommandError(str(error), code="CONFIG", exit_code=EXIT_USAGE) from None
    refuse_one_in_the_other(target, data)
    place = Target(target.absolute())
    clock = SystemClock()
    noted_ms = clock.monotonic_ms()

    def progress(totals: Totals) -> None:
        nonlocal noted_ms
        now_ms = clock.monotonic_ms()
        if now_ms - noted_ms >= NOTE_EVERY_MS:
            noted_ms = now_ms
            session.note(_words(totals))

    try:
        place.open_to_write()
        creation = Creation(data.absolute(), place, loaded, progress)
        name, manifest = creation.run()
    except OSError as error:
        raise no_room(error, target) from None
    finally:
        place.close()
    totals = creation.totals
    for note in totals.notes:
        session.note(note)
    partitions, size = len(manifest["partitions"]), totals.read_bytes + totals.known_bytes
    row = {
        "backup": name,
        "partitions": partitions,
        "bytes": size,
        "new_bytes": totals.new_bytes,
    }
    text = (
        f"backup {name}: {partitions:,} partitions, {format_size(size)},"
        f" of which {format_size(totals.new_bytes)} are new in {target}\n"
    )
    return session.emit(Report([Table(COLUMNS, [row])], text=text))


def _words(totals: Totals) -> str:
    seen = totals.read_bytes + totals.known_bytes
    return size_words(totals.partitions, totals.of_partitions, seen, totals.new_bytes)
