"""``odradek spark``: brings Spark onto this machine, for reports."""

from __future__ import annotations

from pathlib import Path

import click

from appliance.failure import EXIT_OK, CommandError
from appliance.options import command, data_option, lazy_group, pass_session
from appliance.output import Column, Report, Table
from appliance.session import Session

COMMANDS = {
    "prepare": ("appliance.commands.spark:prepare", "Download Spark and its Kafka connector."),
    "env": ("appliance.commands.spark:env", "Shell variables for PySpark programs of your own."),
    "status": ("appliance.commands.spark:status", "Whether reports can run, and what is missing."),
}
COLUMNS = (Column("directory"), Column("spark"), Column("is_ready"), Column("problem"))


@lazy_group("spark", COMMANDS, {})
def spark() -> None:
    """Spark, which computes reports: 460 MB that `make run` does not download."""


def spark_home() -> Path | None:
    from appliance.config import ConfigError, current

    try:
        return current().values.spark_home
    except ConfigError:
        return None


@command("prepare")
@data_option("The data directory that gets it.")
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Take the files from this directory, or all of it from one that another machine has "
    "prepared, rather than from the network.",
)
@pass_session
def prepare(session: Session, data: Path, source: Path | None) -> int:
    """Download Spark by a lock with hashes; goes on where an earlier download ended."""
    from dashboard.spark.home import home_of
    from dashboard.spark.java import HINT, find_java
    from dashboard.spark.prepare import PrepareError
    from dashboard.spark.prepare import prepare as fill

    home = home_of(data.absolute(), spark_home())
    progress = Progress(session)
    try:
        fill(home, source, progress.show)
    except PrepareError as error:
        raise CommandError(str(error), code="NOT_PREPARED") from None
    session.note(f"Spark is prepared in {home.directory}")
    if problem := find_java().problem:
        session.note(f"Reports need Java as well: {problem}. {HINT}")
    return EXIT_OK


@command("env")
@data_option("The data directory that has it.")
def env(data: Path) -> int:
    """Print what `eval "$(odradek spark env)"` sets: PySpark, its connector, and the helper."""
    from shlex import quote

    from dashboard.spark.home import home_of
    from dashboard.spark.prepare import PrepareError
    from dashboard.spark.prepare import prepare as fill

    home = home_of(data.absolute(), spark_home())
    if (missing := home.missing()) is not None:
        raise CommandError(missing.what, hint=missing.hint, code="NOT_PREPARED")
    try:
        fill(home, None, lambda *_: None)
    except PrepareError as error:
        raise CommandError(str(error), code="NOT_PREPARED") from None
    own = home.environment({})
    values = {
        "PYTHONPATH": own["PYTHONPATH"],
        "SPARK_HOME": own["SPARK_HOME"],
        "ODRADEK_SPARK_JARS": str(home.jars),
    }
    for name, value in values.items():
        click.echo(f"export {name}={quote(value)}")
    return EXIT_OK


@command("status")
@data_option("The data directory to look at.")
@pass_session
def status(session: Session, data: Path) -> int:
    """Whether reports can run, and what is missing."""
    from dashboard.spark.home import home_of
    from dashboard.spark.prepare import as_document

    row = as_document(home_of(data.absolute(), spark_home()))
    return session.emit(Report([Table(COLUMNS, [row])]))


class Progress:
    """A line a file, which a terminal sees growing; elsewhere a line every ten percent."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._told: tuple[str, int] = ("", -1)

    def show(self, name: str, have: int, size: int) -> None:
        tenth = have * 10 // size if size else 0
        if (name, tenth) == self._told:
            return
        self._told = (name, tenth)
        amount = f" {have / 1e6:.0f} of {size / 1e6:.0f} MB" if size > 1_000_000 else ""
        self._session.note(f"{name}{amount}")
