"""``odradek adopt``: a stopped Apache Kafka's log directories become Odradek's data directory.

The work is the broker's own, in a child process that speaks JSON lines (``python -m broker.adopt``):
progress while it works, at the end a report or a refusal. Ctrl-C and ``kill -9`` are safe: called
again it goes on.
"""

from __future__ import annotations

from pathlib import Path

import click

from appliance.broker_work import spoken
from appliance.failure import CommandError
from appliance.options import command, data_option, pass_session
from appliance.output import Report, format_size
from appliance.session import Session


@command("adopt")
@click.argument(
    "sources",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="KAFKA_LOG_DIR...",
)
@data_option("The data directory to make; it must be new.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Kafka's server.properties: what it says about data is kept.",
)
@click.option("--move", is_flag=True, help="Move the partitions instead of linking and copying.")
@click.option("--copy", is_flag=True, help="Copy every byte; share no file with Kafka.")
@click.option("--salvage", is_flag=True, help="Take topics that are not in the metadata, too.")
@pass_session
def adopt(
    session: Session,
    sources: tuple[Path, ...],
    data: Path,
    config: Path | None,
    move: bool,
    copy: bool,
    salvage: bool,
) -> int:
    """Take over the log directories of an Apache Kafka 4.x that has been stopped.

    Name all directories of log.dirs, and that of metadata.log.dir if it is another one. Topics with
    their ids and settings, records, leader epochs and producer ids are taken over; Kafka's directories
    stay as they are, unless they are moved. What could not be taken is named.
    """
    if move and copy:
        raise click.UsageError("--move and --copy exclude each other")
    arguments = ["--json", *map(str, sources), "--data", str(data.absolute())]
    if config is not None:
        arguments += ["--config", str(config)]
    chosen = {"--move": move, "--copy": copy, "--salvage": salvage}
    arguments += [option for option, is_chosen in chosen.items() if is_chosen]
    for said in spoken("broker.adopt", arguments):
        if "progress" in said:
            session.note(_progress_words(said["progress"]))
        elif "refused" in said:
            refused = said["refused"]
            raise CommandError(refused["message"], hint=refused["hint"], code="NOT_ADOPTED")
        elif "report" in said:
            return session.emit(Report(data=[said["report"]], text=said["text"]))
    raise CommandError(
        "the adoption ended without a word",
        hint="What it said stands above; called again it goes on.",
        code="NOT_ADOPTED",
    )


def _progress_words(progress: dict[str, int]) -> str:
    words = f"{progress['partitions']:,} of {progress['of_partitions']:,} partitions"
    if progress["of_bytes"]:
        copied, total = format_size(progress["bytes"]), format_size(progress["of_bytes"])
        words += f", {copied} of {total} copied"
    return words
