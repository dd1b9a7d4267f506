"""``odradek group delete`` and ``delete-offsets``, after the name was typed (or with --yes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from appliance.classic_groups import deleted_groups_text, deleted_offsets_text
from appliance.failure import ItemError
from appliance.groups import (
    TOPIC_SCOPE,
    TopicScope,
    choose_groups,
    require_groups,
    scope_partitions,
    subject_of,
)
from appliance.options import GROUP, command, pass_session
from appliance.outcomes import status_report
from appliance.output import Column, Report, Table
from appliance.session import Session
from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure
from dashboard.groups import GroupView

OFFSET_COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", "count"),
    Column("status", "status"),
)


@command("delete", has_kafka_format=True)
@click.argument("names", nargs=-1, type=GROUP, metavar="[GROUP]...")
@click.option("-r", "--regex", metavar="REGEX", help="Groups whose whole name matches.")
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--if-exists", is_flag=True, help="A group that does not exist is no error.")
@click.option("-d", "--dry-run", is_flag=True, help="Only say what would be deleted.")
@pass_session
def delete(
    session: Session,
    names: tuple[str, ...],
    regex: str | None,
    all_groups: bool,
    if_exists: bool,
    dry_run: bool,
) -> int:
    """Delete groups and what they have committed, after the name was typed (or with --yes).

    A group with members is refused: stop its consumers first.
    """
    require_groups(names, regex, all_groups)
    gateway = session.gateway()
    chosen = choose_groups(gateway, names, regex, all_groups)
    outcomes: Mapping[str, KafkaFailure | None] = {}
    if not chosen:
        session.note("no group matches, nothing to delete")
    elif dry_run:
        views = gateway.groups.describe(chosen)
        outcomes = {name: _obstacle(view) for name, view in views.items()}
    else:
        session.confirm_several("delete", "group", chosen)
        outcomes = gateway.groups.delete(chosen)
    accepted = ("GROUP_ID_NOT_FOUND",) if if_exists else ()
    report = status_report("group", outcomes, is_dry_run=dry_run, accepted=accepted)
    if session.format == "kafka":
        report.text = deleted_groups_text(outcomes)
    return session.emit(report)


def _obstacle(view: GroupView | KafkaFailure) -> KafkaFailure | None:
    if isinstance(view, KafkaFailure):
        return view
    return None if view.is_vacant else KafkaFailure("NON_EMPTY_GROUP", "The group is not empty")


@command("delete-offsets", has_kafka_format=True)
@click.argument("name", type=GROUP, metavar="GROUP")
@click.option(
    "-t",
    "--topic",
    "scopes",
    type=TOPIC_SCOPE,
    multiple=True,
    required=True,
    metavar="TOPIC[:0,3-5]",
    help="What to forget; may be repeated.",
)
@click.option("-d", "--dry-run", is_flag=True, help="Only say what would be forgotten.")
@pass_session
def delete_offsets(
    session: Session, name: str, scopes: tuple[TopicScope, ...], dry_run: bool
) -> int:
    """Forget what a group has committed for some partitions, after its name was typed (or --yes).

    Its consumers start there as if they had never read, which auto.offset.reset decides. Refused
    while members of the group read the topic.
    """
    gateway = session.gateway()
    keys, errors = scope_partitions(gateway, scopes)
    outcomes: Mapping[TopicPartition, KafkaFailure | None] = dict.fromkeys(keys)
    if dry_run:
        committed = gateway.groups.committed([name])[name]
        if isinstance(committed, KafkaFailure):
            errors.append(ItemError.of(committed, group=name))
            outcomes = {}
        else:
            outcomes = {key: None for key in keys if key in committed}
    elif keys:
        session.confirm(f"delete offsets of group {name}", name)
        outcomes = gateway.groups.delete_offsets(name, keys)
    done = "OK (dry run)" if dry_run else "OK"
    rows = []
    for key in sorted(outcomes):
        failure = outcomes[key]
        status = done if failure is None else failure.code
        rows.append({"group": name, **subject_of(key), "status": status})
        if failure is not None:
            errors.append(ItemError.of(failure, group=name, **subject_of(key)))
    text = None
    if session.format == "kafka":
        text = _classic_text(name, outcomes, errors)
    return session.emit(Report([Table(OFFSET_COLUMNS, rows)], errors, text=text))


def _classic_text(
    name: str,
    outcomes: Mapping[TopicPartition, KafkaFailure | None],
    errors: Sequence[ItemError],
) -> str:
    statuses = [
        (key.topic, key.partition, "Successful" if failure is None else f"Error: {failure.message}")
        for key, failure in sorted(outcomes.items())
    ]
    head = "" if errors else f"Request succeeded for deleting offsets from group {name}.\n"
    return head + deleted_offsets_text(statuses)
