"""``odradek topic create``, ``alter`` and ``delete``: each item's result is a row of its own."""

from __future__ import annotations

from collections.abc import Sequence

import click

from appliance.options import KEY_VALUE, TOPIC, command, pass_session
from appliance.outcomes import status_report
from appliance.output import Report
from appliance.session import Session
from appliance.topics import choose_names, require_names
from dashboard.cluster import ConfigChange, ConfigOperation, KafkaFailure


@command("create", has_kafka_format=True)
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("-p", "--partitions", type=click.IntRange(1), help="Default: the broker's.")
@click.option("-r", "--replicas", type=click.IntRange(1), help="Default: the broker's.")
@click.option(
    "-c", "--topic-config", "configs", type=KEY_VALUE, multiple=True, metavar="K=V", help="Setting."
)
@click.option("--if-not-exists", is_flag=True, help="A topic that exists is left as it is.")
@click.option("-d", "--dry-run", is_flag=True, help="Ask the broker, change nothing.")
@pass_session
def create(
    session: Session,
    names: tuple[str, ...],
    partitions: int | None,
    replicas: int | None,
    configs: tuple[tuple[str, str], ...],
    if_not_exists: bool,
    dry_run: bool,
) -> int:
    """Create topics."""
    outcomes = session.gateway().create_topics(
        list(dict.fromkeys(names)),
        partitions=partitions or -1,
        replication_factor=replicas or -1,
        configs=dict(configs),
        validate_only=dry_run,
    )
    accepted = ("TOPIC_ALREADY_EXISTS",) if if_not_exists else ()
    report = status_report("topic", outcomes, is_dry_run=dry_run, accepted=accepted)
    if session.format == "kafka":
        created = [name for name, failure in outcomes.items() if failure is None]
        report.text = "".join(f"Created topic {name}.\n" for name in created)
    return session.emit(report)


@command("alter", has_kafka_format=True)
@click.argument("names", nargs=-1, required=True, type=TOPIC, metavar="TOPIC...")
@click.option("-s", "--set", "sets", type=KEY_VALUE, multiple=True, metavar="K=V", help="Set.")
@click.option("--delete", "deletes", multiple=True, metavar="K", help="Back to the default.")
@click.option(
    "--append", "appends", type=KEY_VALUE, multiple=True, metavar="K=V", help="To a list."
)
@click.option(
    "--subtract", "subtracts", type=KEY_VALUE, multiple=True, metavar="K=V", help="From a list."
)
@click.option("--partitions", type=click.IntRange(1), metavar="N", help="New total of partitions.")
@click.option("-d", "--dry-run", is_flag=True, help="Ask the broker, change nothing.")
@pass_session
def alter(
    session: Session,
    names: tuple[str, ...],
    sets: tuple[tuple[str, str], ...],
    deletes: tuple[str, ...],
    appends: tuple[tuple[str, str], ...],
    subtracts: tuple[tuple[str, str], ...],
    partitions: int | None,
    dry_run: bool,
) -> int:
    """Change settings, add partitions."""
    changes = config_changes(sets, deletes, appends, subtracts)
    if not changes and partitions is None:
        raise click.UsageError("nothing to do: give --set, --delete or --partitions")
    gateway = session.gateway()
    outcomes: dict[str, KafkaFailure | None] = dict.fromkeys(names)
    if changes:
        asked = dict.fromkeys(outcomes, changes)
        outcomes = gateway.alter_topic_configs(asked, validate_only=dry_run)
    if partitions is not None:
        for name, failure in list(outcomes.items()):
            # After a refused setting the topic is left alone altogether.
            if failure is None:
                outcomes[name] = gateway.create_partitions(name, partitions, validate_only=dry_run)
    return _emit(session, status_report("topic", outcomes, is_dry_run=dry_run))


def config_changes(
    sets: Sequence[tuple[str, str]],
    deletes: Sequence[str],
    appends: Sequence[tuple[str, str]] = (),
    subtracts: Sequence[tuple[str, str]] = (),
) -> list[ConfigChange]:
    """Options of a command as changes, in a fixed order."""
    return [
        *(ConfigChange(key, ConfigOperation.SET, value) for key, value in sets),
        *(ConfigChange(key, ConfigOperation.DELETE) for key in deletes),
        *(ConfigChange(key, ConfigOperation.APPEND, value) for key, value in appends),
        *(ConfigChange(key, ConfigOperation.SUBTRACT, value) for key, value in subtracts),
    ]


@command("delete", has_kafka_format=True)
@click.argument("names", nargs=-1, type=TOPIC, metavar="[TOPIC]...")
@click.option("-r", "--regex", metavar="REGEX", help="Topics whose whole name matches.")
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is no error.")
@click.option("-d", "--dry-run", is_flag=True, help="Only say what would be deleted.")
@pass_session
def delete(
    session: Session,
    names: tuple[str, ...],
    regex: str | None,
    if_exists: bool,
    dry_run: bool,
) -> int:
    """Delete topics and their records, after the name was typed (or with --yes)."""
    require_names(names, regex)
    gateway = session.gateway()
    chosen = choose_names(gateway, names, regex)
    if not chosen:
        session.note("no topic matches, nothing to delete")
        return _emit(session, status_report("topic", {}))
    if dry_run:
        outcomes = {
            name: view if isinstance(view, KafkaFailure) else None
            for name, view in gateway.topics(chosen).items()
        }
    else:
        session.confirm_several("delete", "topic", chosen)
        outcomes = gateway.delete_topics(chosen)
    accepted = ("UNKNOWN_TOPIC_OR_PARTITION",) if if_exists else ()
    return _emit(session, status_report("topic", outcomes, is_dry_run=dry_run, accepted=accepted))


def _emit(session: Session, report: Report) -> int:
    """Kafka's tool says nothing of a change that was made."""
    if session.format == "kafka":
        report.text = ""
    return session.emit(report)
