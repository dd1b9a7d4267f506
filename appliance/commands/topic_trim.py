"""``odradek topic trim``: moves the start of a log, so that older records are gone."""

from __future__ import annotations

import click

from appliance.failure import ItemError
from appliance.options import PARTITIONS, TOPIC, command, pass_session
from appliance.output import Column, Report, Table
from appliance.session import Session
from appliance.topics import choose_partitions, split_failures
from broker.clock import SystemClock
from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure
from dashboard.gateway import Gateway, OffsetAt
from dashboard.offset_range import Anchor, Bound, parse_bound

COLUMNS = (
    Column("topic"),
    Column("partition", "count"),
    Column("prior_start_offset", "count"),
    Column("new_start_offset", "count"),
)


@command("trim")
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.option(
    "-o",
    "--offset",
    required=True,
    metavar="PLACE",
    help="The new start: an offset, -N to keep the last N, end, @TIME, @-1h.",
)
@click.option("-p", "--partitions", type=PARTITIONS, metavar="0,3-5", help="Only these.")
@click.option("-d", "--dry-run", is_flag=True, help="Only say what would be forgotten.")
@pass_session
def trim(
    session: Session, name: str, offset: str, partitions: frozenset[int] | None, dry_run: bool
) -> int:
    """Forget the oldest records of a topic, after its name was typed (or with --yes)."""
    try:
        place = parse_bound(offset, SystemClock().wall_ms())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-o") from None
    gateway = session.gateway()
    topics, errors = split_failures(gateway.topics([name]))
    if errors:
        return session.emit(Report([Table(COLUMNS)], errors))
    keys, errors = choose_partitions(topics[name], partitions)
    starts, targets, more = _targets(gateway, keys, place)
    errors += more
    moving = {key: at for key, at in targets.items() if at > starts[key]}
    if not moving:
        session.note("nothing lies before that place")
    outcomes: dict[TopicPartition, int | KafkaFailure] = dict(starts)
    if dry_run:
        outcomes |= moving
    elif moving:
        session.confirm_several("delete records of", "topic", [name])
        outcomes |= gateway.delete_records(moving)
    rows = []
    for key in targets:
        outcome = outcomes[key]
        if isinstance(outcome, KafkaFailure):
            errors.append(ItemError.of(outcome, topic=key.topic, partition=key.partition))
            continue
        rows.append(
            {
                "topic": key.topic,
                "partition": key.partition,
                "prior_start_offset": starts[key],
                "new_start_offset": outcome,
            }
        )
    return session.emit(Report([Table(COLUMNS, rows)], errors))


def _targets(
    gateway: Gateway, keys: list[TopicPartition], place: Bound
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], list[ItemError]]:
    """(starts, new starts) of the partitions that answer. An offset past the end is passed on:
    the broker refuses it, which says more than quietly stopping at the end."""
    earliest = gateway.offsets(keys, OffsetAt.EARLIEST)
    latest = gateway.offsets(keys, OffsetAt.LATEST)
    by_time = gateway.offsets(keys, place.number) if place.anchor is Anchor.TIME else {}
    starts, targets, errors = {}, {}, []
    for key in keys:
        answers = [earliest[key], latest[key], *([by_time[key]] if by_time else [])]
        failure = next((a for a in answers if isinstance(a, KafkaFailure)), None)
        if failure is not None:
            errors.append(ItemError.of(failure, topic=key.topic, partition=key.partition))
            continue
        offsets = [a.offset for a in answers if not isinstance(a, KafkaFailure)]
        starts[key] = offsets[0]
        if place.anchor is Anchor.OFFSET:
            targets[key] = place.number
        else:
            targets[key] = place.resolve(offsets[0], offsets[1], offsets[-1])
    return starts, targets, errors
