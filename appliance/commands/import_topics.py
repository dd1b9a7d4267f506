"""``odradek import``: topics, settings and groups' offsets of any Kafka cluster come here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from appliance.failure import CommandError
from appliance.options import ADDRESSES, KEY_VALUE, command, data_option, pass_session
from appliance.output import Column, Report, Table, format_size
from appliance.session import Session
from broker.clock import SystemClock

if TYPE_CHECKING:
    from appliance.importing.copying import Copying
    from appliance.importing.progress import PartitionCopy

NOTE_EVERY_MS = 2000
PATIENCE_MS = 60_000
UNREACHED = (
    "SOURCE is HOST:PORT of a broker that runs, as its other clients dial it. Where it wants TLS or a password,"
    " --source-config FILE or --source-property K=V says so; --timeout waits longer."
)
COLUMNS = (Column("topic"), Column("outcome"), Column("offsets", "count"))


@command("import")
@click.argument("source", type=ADDRESSES, metavar="SOURCE")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@data_option("The data directory of the node that they come to; its broker must run.")
@click.option(
    "--source-config",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Client properties for the source, as Kafka's own tools take them.",
)
@click.option(
    "--source-property",
    "source_properties",
    type=KEY_VALUE,
    multiple=True,
    metavar="K=V",
    help="One more of them.",
)
@click.option("--no-groups", is_flag=True, help="Leave the groups' committed offsets out.")
@click.option(
    "--prepare",
    is_flag=True,
    help="Copy now and keep the topics closed: a later run brings what has come since, and ends it.",
)
@click.option(
    "-r",
    "--replicas",
    type=click.IntRange(1),
    metavar="N",
    help="Of each partition that is made here; else as many as at the source. Not more than there are brokers.",
)
@click.option(
    "--fetch-size",
    type=click.IntRange(1, 1 << 30),
    default=16 * 1024 * 1024,
    show_default="16 MiB",
    metavar="BYTES",
    help="How much to ask each of the source's brokers for at once.",
)
@pass_session
def import_topics(
    session: Session,
    source: str,
    topics: tuple[str, ...],
    data: Path,
    source_config: str | None,
    source_properties: tuple[tuple[str, str], ...],
    no_groups: bool,
    prepare: bool,
    replicas: int | None,
    fetch_size: int,
) -> int:
    """Copy topics from the Kafka cluster at SOURCE (HOST:PORT, or several with commas), offset for offset.

    All topics, or those named (patterns such as 'orders-*' are fine), with partitions, settings, records,
    transactions and every group's committed offsets. Records keep their offsets, so these stay right. Until
    a topic is finished nobody can produce to it here. Interrupted or killed, call it again: it goes on.
    """
    from appliance import client_config
    from appliance.importing.run import Import, Wish
    from dashboard.cluster import KafkaFailure
    from dashboard.gateway import Gateway

    if not session.is_verbose:
        # It tells of each attempt to reach a broker that is gone; whether that matters the import says.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    properties: dict[str, str] = {}
    if source_config is not None:
        properties |= client_config.read_command_config(Path(source_config))
    properties |= dict(source_properties)
    clock = SystemClock()
    noted_ms = clock.monotonic_ms()

    def progress(copies: Sequence[PartitionCopy], copying: Copying) -> None:
        nonlocal noted_ms
        now_ms = clock.monotonic_ms()
        if now_ms - noted_ms >= NOTE_EVERY_MS:
            noted_ms = now_ms
            session.note(_progress_words(copies, copying))

    from_there = Gateway(source, properties, timeout_s=session.timeout_s)
    try:
        from_there.check()
        from_there.cluster()
    except KafkaFailure as failure:
        told = CommandError.of(failure, source)
        raise CommandError(
            f"the source: {told}", hint=UNREACHED, code=told.item.code, exit_code=told.exit_code
        ) from None
    wish = Wish(
        data.absolute(), topics, not no_groups, not prepare, replicas, PATIENCE_MS, fetch_size
    )
    done = Import(wish, from_there, properties, session.gateway(), clock, session.note).run(
        progress
    )
    for note in done.notes:
        session.note(note)
    session.note(f"{done.records:,} records, {format_size(done.size)} copied")
    if done.brought is not None:
        words = f"{done.brought.offsets:,} committed offsets of {done.brought.groups:,} groups"
        if done.brought.taken_back:
            words += f", {done.brought.taken_back:,} of them taken back to the end of the copy"
        session.note(words)
    return session.emit(Report([Table(COLUMNS, done.rows)], errors=done.errors))


def _progress_words(copies: Sequence[PartitionCopy], copying: Copying) -> str:
    left = sum(copy.left for copy in copies)
    done = sum(copy.is_done for copy in copies)
    return (
        f"{done:,} of {len(copies):,} partitions, {copying.totals.records:,} records,"
        f" {format_size(copying.totals.size)} copied, {left:,} offsets to go"
    )
