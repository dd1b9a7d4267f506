"""``odradek cluster join``, ``leave``, ``reassign`` and ``elect``: where partitions lie, and who leads them.

What changes replicas or leaders is a plan first: it is done only with --execute. A move is begun then, and looked at
until the cluster has done it (``appliance/moving.py``), unless --no-wait.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import click

from appliance.failure import EXIT_USAGE, CommandError, ItemError
from appliance.moving import Waiter
from appliance.options import DURATION, TOPIC, command, pass_session
from appliance.output import Column, Report, Table
from appliance.session import Session
from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure, TopicView
from dashboard.gateway import Gateway
from dashboard.moves import GOOD_REPLICAS, CannotLeave, Move, at_target, plan_join, plan_leave

COLUMNS = (
    Column("topic"),
    Column("partition", "count"),
    Column("replicas"),
    Column("new_replicas"),
    Column("status", "status"),
)
CANCELLED_COLUMNS = (Column("topic"), Column("partition", "count"), Column("status", "status"))
ELECTED_COLUMNS = (
    Column("topic"),
    Column("partition", "count"),
    Column("leader", "count"),
    Column("new_leader", "count"),
    Column("status", "status"),
)
#: Between two looks at the end.
LOOK_SECONDS = 0.5
LOOKS_AT_END = 10


class Carrying(NamedTuple):
    """How a plan is to be carried out."""

    is_executed: bool
    is_awaited: bool
    patience_ms: int


def carrying(function: Callable[..., int]) -> Callable[..., int]:
    """The options of every command that moves partitions, as one ``Carrying``."""

    @functools.wraps(function)
    def with_carrying(
        session: Session,
        *,
        dry_run: bool,
        execute: bool,
        no_wait: bool,
        patience: int,
        **others: Any,
    ) -> int:
        if dry_run and execute:
            raise click.UsageError("either --dry-run or --execute")
        return function(session, carrying=Carrying(execute, not no_wait, patience), **others)

    options = (
        click.option("-d", "--dry-run", is_flag=True, help="Only show the plan (default)."),
        click.option("--execute", is_flag=True, help="Carry the plan out."),
        click.option("--no-wait", is_flag=True, help="Begin it, and leave it to the cluster."),
        click.option(
            "--patience",
            type=DURATION,
            default="2m",
            show_default=True,
            help="Wait no longer when nothing has moved on for so long.",
        ),
    )
    for option in reversed(options):
        with_carrying = option(with_carrying)
    return with_carrying


@command("join")
@click.option(
    "--user-topics", is_flag=True, help="Give topics other than internal ones more replicas, too."
)
@pass_session
@carrying
def join(session: Session, user_topics: bool, carrying: Carrying) -> int:
    """Use brokers that have come: internal topics get replicas on three of them.

    A broker joins by being started with the cluster's zookeeper.connect and a node.id of its own; new
    topics are spread over it at once. This raises the replicas of topics that were there before:
    of internal ones, and with --user-topics of all.
    """
    gateway = session.gateway()
    brokers = gateway.brokers()
    topics = at_target(gateway.cluster().topics, _targets(gateway))
    moves = plan_join(topics, brokers, with_user_topics=user_topics)
    if not user_topics:
        _offer(session, topics, len(brokers))
    return _carry_out(session, gateway, moves, carrying)


def _targets(gateway: Gateway) -> dict[TopicPartition, tuple[int, ...]]:
    """Where partitions that are on their way will be."""
    return {key: state.target for key, state in gateway.moves.under_way().items()}


def _offer(session: Session, topics: Collection[TopicView], broker_count: int) -> None:
    wanted = min(GOOD_REPLICAS, broker_count)
    few = [t for t in topics if not t.is_internal and t.replication_factor < wanted]
    if few:
        session.note(
            f"{len(few)} other topics have fewer than {wanted} replicas: --user-topics raises them too"
        )


@command("leave")
@click.argument("broker", type=click.IntRange(0))
@pass_session
@carrying
def leave(session: Session, broker: int, carrying: Carrying) -> int:
    """Move everything away from a broker that is to go; it may be stopped for good then.

    A partition that has a replica on every other broker already will have one less.
    """
    gateway = session.gateway()
    brokers = gateway.brokers()
    targets = _targets(gateway)
    found = gateway.cluster().topics
    topics = at_target(found, targets)
    held = _held(found, broker)
    if not held and all(each.broker_id != broker for each in brokers):
        raise CommandError(
            f"there is no broker {broker}, and no partition has a replica on it",
            hint="`odradek cluster info` shows which brokers there are.",
            code="UNKNOWN",
            exit_code=EXIT_USAGE,
        )
    try:
        moves = plan_leave(topics, brokers, broker)
    except CannotLeave as error:
        raise CommandError(str(error), code="CANNOT_LEAVE") from None
    fewer = sum(len(move.after) < len(move.before) for move in moves)
    if fewer:
        session.note(f"{fewer} partitions will have a replica less, as no other broker is left")
    leaving = held & targets.keys()  # some may be on their way already
    status = _carry_out(session, gateway, moves, carrying, leaving)
    if status == 0 and carrying.is_executed and carrying.is_awaited:
        _check_left(gateway, broker)
        session.note(f"broker {broker} holds nothing any more and may be stopped")
    return status


def _check_left(gateway: Gateway, broker: int) -> None:
    """Topics may have been made on it meanwhile; another broker may tell the end a moment later."""
    held: set[TopicPartition] = set()
    for _ in range(LOOKS_AT_END):
        held = _held(gateway.cluster().topics, broker)
        if not held:
            return
        time.sleep(LOOK_SECONDS)
    named = ", ".join(f"{key.topic}:{key.partition}" for key in sorted(held)[:3])
    raise CommandError(
        f"{len(held)} partitions have come to broker {broker} meanwhile: {named}",
        hint="Call it again.",
        code="NOT_LEFT",
    )


def _held(topics: Collection[TopicView], broker: int) -> set[TopicPartition]:
    return {
        TopicPartition(topic.name, partition.index)
        for topic in topics
        for partition in topic.partitions
        if broker in partition.replicas
    }


class MoveType(click.ParamType[tuple[TopicPartition, tuple[int, ...]]]):
    """``TOPIC:PARTITION=1,2,3``; the first is the preferred leader."""

    name = "move"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[TopicPartition, tuple[int, ...]]:
        if isinstance(value, tuple):
            return value
        place, _, listed = value.partition("=")
        topic, _, index = place.rpartition(":")
        pieces = listed.split(",")
        if not topic or not index.isdigit() or not all(piece.isdigit() for piece in pieces):
            self.fail(f"{value!r} is not TOPIC:PARTITION=BROKER,...", param, ctx)
        return TopicPartition(topic, int(index)), tuple(map(int, pieces))


@command("reassign")
@click.argument("wanted", nargs=-1, type=MoveType(), metavar="[TOPIC:PARTITION=BROKER,...]...")
@click.option("--cancel", is_flag=True, help="Take back all that is under way.")
@pass_session
@carrying
def reassign(
    session: Session,
    wanted: tuple[tuple[TopicPartition, tuple[int, ...]], ...],
    cancel: bool,
    carrying: Carrying,
) -> int:
    """Move partitions to the brokers that are named; the first of them is the preferred leader.

    Without partitions it shows what is under way.
    """
    gateway = session.gateway()
    if wanted and cancel:
        raise click.UsageError("--cancel is for all that is under way, and takes no partitions")
    if wanted:
        return _carry_out(session, gateway, _moves(gateway, dict(wanted)), carrying)
    going = gateway.moves.under_way()
    if cancel and going:
        session.confirm(f"cancel {len(going)} reassignments", "cancel")
        outcomes = gateway.moves.reassign(dict.fromkeys(going))
        return session.emit(_cancelled(outcomes))
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "replicas": [each for each in state.replicas if each not in state.adding],
            "new_replicas": [each for each in state.replicas if each not in state.removing],
            "status": "moving",
        }
        for key, state in sorted(going.items())
    ]
    return session.emit(Report([Table(COLUMNS, rows)]))


def _moves(gateway: Gateway, wanted: Mapping[TopicPartition, tuple[int, ...]]) -> list[Move]:
    found = gateway.topics({key.topic for key in wanted})
    moves = []
    for key, after in wanted.items():
        view = found.get(key.topic)
        if isinstance(view, KafkaFailure):
            raise view
        if view is None or key.partition >= len(view.partitions):
            raise CommandError(
                f"there is no {key.topic}:{key.partition}", code="UNKNOWN", exit_code=EXIT_USAGE
            )
        moves.append(Move(key, view.partitions[key.partition].replicas, after))
    return moves


def _cancelled(outcomes: Mapping[TopicPartition, KafkaFailure | None]) -> Report:
    errors: list[ItemError] = []
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "status": _status(key, failure, "OK", errors),
        }
        for key, failure in sorted(outcomes.items())
    ]
    return Report([Table(CANCELLED_COLUMNS, rows)], errors)


def _status(
    key: TopicPartition, failure: KafkaFailure | None, done: str, errors: list[ItemError]
) -> str:
    if failure is None:
        return done
    if failure.code != "ELECTION_NOT_NEEDED":
        errors.append(ItemError.of(failure, topic=key.topic, partition=key.partition))
    return failure.code


@command("elect")
@click.argument("names", nargs=-1, type=TOPIC, metavar="[TOPIC]...")
@click.option("--all", "is_all", is_flag=True, help="Every topic.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Have a replica lead that is not in sync, where nobody leads. Records may be lost.",
)
@click.option("-d", "--dry-run", is_flag=True, help="Only show the plan (default).")
@click.option("--execute", is_flag=True, help="Carry the plan out.")
@pass_session
def elect(
    session: Session,
    names: tuple[str, ...],
    is_all: bool,
    unclean: bool,
    dry_run: bool,
    execute: bool,
) -> int:
    """Have partitions led by their first replica, the preferred leader, again.

    Those that are led by it already are left out, and so are those whose first replica is gone or not in sync.
    """
    if bool(names) == is_all:
        raise click.UsageError("name topics, or give --all")
    if dry_run and execute:
        raise click.UsageError("either --dry-run or --execute")
    gateway = session.gateway()
    cluster = gateway.cluster()
    topics = list(cluster.topics)
    if names:
        topics = []
        for view in gateway.topics(names).values():
            if isinstance(view, KafkaFailure):
                raise view
            topics.append(view)
    there = {broker.broker_id for broker in cluster.brokers}
    elections = [
        each
        for topic in topics
        for each in (unclean_elections if unclean else clean_elections)(topic, there)
    ]
    if not elections:
        session.note("nobody is to be elected")
    elif not execute:
        session.note(f"{len(elections)} leaders would be elected: --execute does it")
    elif unclean:
        which = "all topics" if is_all else ", ".join(names)
        session.confirm(f"elect leaders of {which} that may lack records", "unclean")
    outcomes: Mapping[TopicPartition, KafkaFailure | None] = {}
    if elections and execute:
        outcomes = gateway.moves.elect([each.key for each in elections], is_unclean=unclean)
    return session.emit(_elected(elections, outcomes, "OK" if execute else "planned"))


class Election(NamedTuple):
    key: TopicPartition
    leader: int | None
    new_leader: int


def clean_elections(topic: TopicView, there: Collection[int]) -> list[Election]:
    """Who is to lead again, and can."""
    return [
        Election(key, partition.leader, partition.replicas[0])
        for key, partition in zip(topic.keys, topic.partitions, strict=True)
        if partition.replicas
        and partition.leader != partition.replicas[0]
        and partition.replicas[0] in partition.isr
        and partition.replicas[0] in there
    ]


def unclean_elections(topic: TopicView, there: Collection[int]) -> list[Election]:
    """Where nobody leads: the first replica that is there, as the controller chooses."""
    found = []
    for key, partition in zip(topic.keys, topic.partitions, strict=True):
        able = [replica for replica in partition.replicas if replica in there]
        if partition.is_leaderless and able:
            found.append(Election(key, None, able[0]))
    return found


def _elected(
    elections: Sequence[Election],
    outcomes: Mapping[TopicPartition, KafkaFailure | None],
    done: str,
) -> Report:
    errors: list[ItemError] = []
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "leader": leader,
            "new_leader": new_leader,
            "status": _status(key, outcomes.get(key), done, errors),
        }
        for key, leader, new_leader in elections
    ]
    return Report([Table(ELECTED_COLUMNS, rows)], errors)


# --- A plan ----------------------------------------------------------------------------------------


def _carry_out(
    session: Session,
    gateway: Gateway,
    moves: Sequence[Move],
    carrying: Carrying,
    others: Collection[TopicPartition] = (),
) -> int:
    """``others`` are on their way already, and waited for, too."""
    outcomes: Mapping[TopicPartition, KafkaFailure | None] = {}
    errors: list[ItemError] = []
    done = "planned"
    if carrying.is_executed:
        done = "OK" if carrying.is_awaited else "moving"
    if not moves and not others:
        session.note("nothing is to be moved")
    elif not carrying.is_executed:
        session.note(f"{len(moves)} partitions would be moved: --execute does it")
    else:
        if moves:
            outcomes = gateway.moves.reassign({move.key: move.after for move in moves})
        if carrying.is_awaited:
            begun = {key for key, failure in outcomes.items() if failure is None}
            errors = Waiter(session, gateway, begun.union(others)).wait(carrying.patience_ms)
    late = {(error.subject["topic"], error.subject["partition"]) for error in errors}
    rows = []
    for move in moves:
        failure = outcomes.get(move.key)
        status = "moving" if tuple(move.key) in late else done
        if failure is not None:
            status = failure.code
            errors.append(ItemError.of(failure, topic=move.key.topic, partition=move.key.partition))
        rows.append(
            {
                "topic": move.key.topic,
                "partition": move.key.partition,
                "replicas": list(move.before),
                "new_replicas": list(move.after),
                "status": status,
            }
        )
    return session.emit(Report([Table(COLUMNS, rows)], errors))
