"""What the command lines of Kafka's own tools have in common; see ``commands/kafka_tools.py``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from appliance.failure import EXIT_OK
from appliance.session import Session


def forward(session: Session, arguments: Sequence[str]) -> int:
    """Run a command of ours in Kafka's layout."""
    from appliance.cli import cli

    session.format = "kafka"
    result = cli.main(list(arguments), prog_name="odradek", standalone_mode=False, obj=session)
    return result if isinstance(result, int) else EXIT_OK


def only_action(given: dict[str, bool], tool: str) -> str:
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) != 1:
        flags = ", ".join(f"--{name}" for name in given)
        raise click.UsageError(f"{tool} wants exactly one of {flags}")
    return chosen[0]


def repeated(flag: str, values: Iterable[str]) -> list[str]:
    return [piece for value in values for piece in (flag, value)]
