"""``odradek cluster move-to-zookeeper``: a node that was a cluster of its own becomes the first of several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from appliance.broker_work import spoken
from appliance.failure import EXIT_USAGE, CommandError
from appliance.options import command, data_option, pass_session
from appliance.output import Report
from appliance.session import Session

MODULE = "broker.server.cluster.move_to_zookeeper"
CONNECT = "zookeeper.connect"
WORDS = {
    "moved": "The metadata is in ZooKeeper. Start this node again (odradek serve); other nodes join"
    " with the same zookeeper.connect and a node.id of their own.\n",
    "abandoned": "What was staged in ZooKeeper is gone; this node is a cluster of its own as before.\n",
}


@command("move-to-zookeeper")
@data_option("The data directory of the node, which must be stopped.")
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,.../PATH",
    help="Where to; without it the configuration's zookeeper.connect.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The configuration that the node is served with.",
)
@click.option("--abandon", is_flag=True, help="Take an interrupted move back.")
@pass_session
def move_to_zookeeper(
    session: Session, data: Path, zookeeper: str | None, config: Path | None, abandon: bool
) -> int:
    """Move a single node's metadata into ZooKeeper, so that more nodes can join.

    Topics with their ids, settings and leader epochs, broker settings and producer ids are copied, read
    back, and made valid in one step; the local copy is put aside then. Records, groups and offsets stay
    where they are. There is no way back. Interrupted, it goes on when called again.
    """
    arguments = _arguments(data, zookeeper, config)
    if abandon:
        arguments.append("--abandon")
    else:
        session.confirm(f"move the metadata of {data} into ZooKeeper, for good", "move")
    for said in spoken(MODULE, arguments):
        if "progress" in said:
            progress = said["progress"]
            session.note(f"{progress['nodes']:,} of {progress['of_nodes']:,} nodes staged")
        elif "refused" in said:
            raise CommandError(said["refused"]["message"], code="NOT_MOVED")
        elif "report" in said:
            report: dict[str, Any] = said["report"]
            return session.emit(Report(data=[report], text=WORDS[report["outcome"]]))
    raise CommandError(
        "the move ended without a word",
        hint="What it said stands above; called again it goes on.",
        code="NOT_MOVED",
    )


def _arguments(data: Path, zookeeper: str | None, config: Path | None) -> list[str]:
    from appliance.config import ConfigError, load_for_serve

    given = {} if zookeeper is None else {CONNECT: zookeeper}
    try:
        values = load_for_serve({"data": data, "broker": given}, config).values
    except ConfigError as error:
        raise CommandError(str(error), code="CONFIG", exit_code=EXIT_USAGE) from None
    arguments = ["--data", str(values.data.absolute())]
    if values.broker_config is not None:
        arguments += ["--config", str(values.broker_config)]
    for key, value in values.broker.items():
        arguments += ["--property", f"{key}={value}"]
    return arguments
