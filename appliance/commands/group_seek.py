"""``odradek group seek``: moves committed offsets of groups that nobody is a member of.

A dry run unless --execute is given: everything is looked up and checked, and what would be done is
written. A group with an error is left alone altogether.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import click

from appliance.classic_groups import reset_text
from appliance.failure import EXIT_USAGE, CommandError, ItemError
from appliance.groups import (
    TOPIC_SCOPE,
    TopicScope,
    choose_groups,
    require_groups,
    scope_partitions,
    subject_of,
)
from appliance.options import GROUP, command, pass_session
from appliance.output import Column, Report, Table
from appliance.session import Session
from broker.clock import SystemClock
from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure
from dashboard.gateway import Gateway
from dashboard.groups import GroupView
from dashboard.reset_logs import look_up_logs
from dashboard.resetting import (
    GRAMMAR,
    GroupPlan,
    Kind,
    LogAt,
    Move,
    PlanLine,
    Target,
    parse_iso_duration_ms,
    parse_plan,
    parse_target,
    plan_group,
    render_plan,
)

COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", "count"),
    Column("prior_offset", "count"),
    Column("new_offset", "count"),
    Column("delta", "count"),
)
Commits = Mapping[TopicPartition, int]


@dataclass(slots=True)
class Plan:
    """One with errors is left alone altogether."""

    of: GroupPlan
    errors: list[ItemError]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for. ``lines``: of a plan file; ``source``: a group to copy from."""

    target: Target
    scopes: Sequence[TopicScope]
    lines: Sequence[PlanLine] | None = None
    source: str | None = None


def _place_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where to: exactly one of them. The names of Kafka's tool are taken too, unseen."""
    for option in reversed(
        [
            click.option("--to", metavar="PLACE", help=f"Where to: {GRAMMAR}."),
            click.option("--shift-by", type=int, metavar="N", help="So many records on, or back."),
            click.option("--to-group", type=GROUP, metavar="GROUP", help="Where that group is."),
            click.option(
                "--from-file",
                "--to-file",
                "file",
                type=click.File("r"),
                metavar="FILE",
                help="Lines of topic,partition,offset or group,topic,partition,offset.",
            ),
            click.option("--to-earliest", is_flag=True, hidden=True),
            click.option("--to-latest", is_flag=True, hidden=True),
            click.option("--to-current", is_flag=True, hidden=True),
            click.option("--to-offset", type=click.IntRange(0), hidden=True),
            click.option("--to-datetime", hidden=True),
            click.option("--by-duration", hidden=True),
        ]
    ):
        function = option(function)
    return function


@command("seek", has_kafka_format=True)
@click.argument("names", nargs=-1, type=GROUP, metavar="[GROUP]...")
@_place_options
@click.option(
    "--topic",
    "scopes",
    type=TOPIC_SCOPE,
    multiple=True,
    metavar="TOPIC[:0,3-5]",
    help="Only these partitions, committed for or not; may be repeated.",
)
@click.option("--topics", "topic_list", default="", hidden=True)
@click.option("--all-topics", is_flag=True, help="All that the group has committed for (default).")
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--allow-new-topics", is_flag=True, hidden=True)
@click.option("-d", "--dry-run", is_flag=True, help="Only say what would be done (default).")
@click.option("--execute", is_flag=True, help="Do it.")
@click.option("--export", is_flag=True, help="Write the result as a file for --from-file.")
@pass_session
def seek(
    session: Session,
    /,
    names: tuple[str, ...],
    scopes: tuple[TopicScope, ...],
    topic_list: str,
    all_topics: bool,
    all_groups: bool,
    allow_new_topics: bool,
    dry_run: bool,
    execute: bool,
    export: bool,
    **places: Any,
) -> int:
    """Move what groups have committed, so that their consumers read on from elsewhere.

    +N counts from the start of each log, -N from its end; -1h and PT1H are times ago. Offsets
    outside a log become its start or end.

    Nothing is changed without --execute. Consumers must be stopped: a member's offsets are its
    own. `--to current --export > FILE` keeps offsets, `--from-file FILE --execute` brings them back.
    """
    if dry_run and execute:
        raise click.UsageError("either --dry-run or --execute")
    scopes += tuple(TopicScope(topic) for topic in topic_list.split(",") if topic)
    if scopes and all_topics:
        raise click.UsageError("either --topic or --all-topics")
    request = _request(places, scopes)
    if request.lines is None or not any(line.group for line in request.lines):
        require_groups(names, None, all_groups)
    gateway = session.gateway()
    named = choose_groups(gateway, names, everything=all_groups)
    groups = named or list(dict.fromkeys(line.group for line in request.lines or () if line.group))
    _check_plan(request, groups)
    plans = _plan(gateway, groups, request)
    outcomes = {
        plan.of.group: gateway.groups.alter_offsets(
            plan.of.group, {m.key: m.new for m in plan.of.moves}
        )
        for plan in plans
        if execute and plan.of.moves and not plan.errors
    }
    for plan in plans:
        for remark in plan.of.remarks:
            session.note(f"group {plan.of.group} {remark}")
    report = _report(session, plans, outcomes, export=export)
    if not execute and any(plan.of.moves for plan in plans):
        session.note("dry run: nothing was changed; --execute does it")
    return session.emit(report)


def _request(places: Mapping[str, Any], scopes: Sequence[TopicScope]) -> Request:
    """Exactly one place to go to."""
    given = {name: value for name, value in places.items() if not (value is None or value is False)}
    if len(given) != 1:
        raise click.UsageError(
            f"say where to, in one way: --to {GRAMMAR}; --shift-by N, --to-group GROUP or "
            "--from-file FILE"
        )
    ((name, value),) = given.items()
    now_ms = SystemClock().wall_ms()
    option = f"--{name.replace('_', '-')}"
    try:
        match name:
            case "file":
                if scopes:
                    raise click.UsageError("--from-file names the partitions itself")
                return Request(Target(Kind.GIVEN), (), lines=_read_plan(value))
            case "to_group":
                return Request(Target(Kind.GIVEN), scopes, source=value)
            case "shift_by":
                return Request(Target(Kind.SHIFT, count=value), scopes)
            case "to_datetime":
                return Request(parse_target(f"@{value}", now_ms), scopes)
            case "by_duration":
                parse_iso_duration_ms(value)
                return Request(parse_target(value, now_ms), scopes)
            case "to_earliest" | "to_latest" | "to_current":
                return Request(parse_target(name.removeprefix("to_"), now_ms), scopes)
            case _:
                return Request(parse_target(str(value), now_ms), scopes)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def _read_plan(file: TextIO) -> list[PlanLine]:
    try:
        return parse_plan(file.read())
    except ValueError as error:
        raise CommandError(
            f"{file.name}: {error}", code="BAD_INPUT", exit_code=EXIT_USAGE
        ) from None


def _check_plan(request: Request, groups: Sequence[str]) -> None:
    if request.lines is None:
        return
    if len(groups) != 1 and any(line.group is None for line in request.lines):
        raise click.UsageError("the file does not name groups: name the one that it is for")
    if not any(line.group in (None, *groups) for line in request.lines):
        raise CommandError(
            f"the file has nothing for {', '.join(groups)}", code="BAD_INPUT", exit_code=EXIT_USAGE
        )


# What is to be done


def _plan(gateway: Gateway, groups: Sequence[str], request: Request) -> list[Plan]:
    errors = _occupied(gateway.groups.describe(groups))
    asked = [*groups, *([] if request.source is None else [request.source])]
    commits: dict[str, Commits] = {}
    for name, found in gateway.groups.committed(list(dict.fromkeys(asked))).items():
        if isinstance(found, KafkaFailure):
            errors.setdefault(name, []).append(ItemError.of(found, group=name))
        else:
            commits[name] = {key: at.offset for key, at in found.items()}
    scope, scope_errors = scope_partitions(gateway, request.scopes)
    given = {name: _given(name, request, commits) for name in groups}
    keys = {
        name: _partitions(request, scope, commits.get(name, {}), given[name]) for name in groups
    }
    logs, log_errors = _logs(gateway, {key for of in keys.values() for key in of}, request.target)
    plans = []
    for name in groups:
        found_logs = {key: logs[key] for key in keys[name] if key in logs}
        group_plan = plan_group(
            name, request.target, found_logs, commits.get(name, {}), given[name]
        )
        plan = Plan(group_plan, [_unshiftable(name, key) for key in group_plan.unshiftable])
        plan.errors += errors.get(name, [])
        plan.errors += errors.get(request.source or "", [])
        plan.errors += scope_errors
        plan.errors += [log_errors[key] for key in keys[name] if key in log_errors]
        if not keys[name] and not plan.errors:
            plan.errors.append(_nothing(name, request))
        plans.append(plan)
    return plans


def _occupied(views: Mapping[str, GroupView | KafkaFailure]) -> dict[str, list[ItemError]]:
    """Errors of groups that have members. One that does not exist is fine: it comes to be."""
    errors = {}
    for name, view in views.items():
        if isinstance(view, KafkaFailure):
            if view.code != "GROUP_ID_NOT_FOUND":
                errors[name] = [ItemError.of(view, group=name)]
        elif not view.is_vacant:
            count = len(view.members)
            noun = "member" if count == 1 else "members"
            failure = KafkaFailure(
                "NON_EMPTY_GROUP",
                f"it is {view.state} with {count} {noun}, whose offsets only they can move",
            )
            errors[name] = [ItemError.of(failure, group=name)]
    return errors


def _given(name: str, request: Request, commits: Mapping[str, Commits]) -> Commits:
    """The offsets of a GIVEN target."""
    if request.source is not None:
        return commits.get(request.source, {})
    return {line.key: line.offset for line in request.lines or () if line.group in (None, name)}


def _partitions(
    request: Request, scope: Sequence[TopicPartition], committed: Commits, given: Commits
) -> list[TopicPartition]:
    """The partitions meant in one group."""
    if request.target.kind is Kind.GIVEN:
        return [key for key in given if not request.scopes or key in scope]
    return list(scope) if request.scopes else list(committed)


def _logs(
    gateway: Gateway, keys: set[TopicPartition], target: Target
) -> tuple[dict[TopicPartition, LogAt], dict[TopicPartition, ItemError]]:
    logs, errors = {}, {}
    for key, found in look_up_logs(gateway, sorted(keys), target).items():
        if isinstance(found, KafkaFailure):
            errors[key] = ItemError.of(found, **subject_of(key))
        else:
            logs[key] = found
    return logs, errors


def _unshiftable(name: str, key: TopicPartition) -> ItemError:
    return ItemError(
        "NO_COMMITTED_OFFSET",
        "nothing is committed, so there is nothing to shift",
        {"group": name, **subject_of(key)},
        "Name the partitions with --topic TOPIC:0,1, or use --to.",
    )


def _nothing(name: str, request: Request) -> ItemError:
    if request.source is not None:
        return ItemError(
            "NO_COMMITTED_OFFSET",
            "has committed nothing that could be copied",
            {"group": request.source},
            f"`odradek group describe {request.source}` shows what it has.",
        )
    if request.lines is not None:
        return ItemError("BAD_INPUT", "the file has nothing for it", {"group": name})
    return ItemError(
        "NO_COMMITTED_OFFSET",
        "has committed nothing",
        {"group": name},
        "Name what it is to read: --topic TOPIC.",
    )


# What is said


def _report(
    session: Session,
    plans: Sequence[Plan],
    outcomes: Mapping[str, Mapping[TopicPartition, KafkaFailure | None]],
    *,
    export: bool,
) -> Report:
    errors: list[ItemError] = []
    moves: list[tuple[str, Move]] = []
    for plan in plans:
        # What concerns no group of its own (a topic that does not exist) is said once.
        errors += [error for error in plan.errors if error not in errors]
        if plan.errors:
            continue
        for move in plan.of.moves:
            failure = outcomes.get(plan.of.group, {}).get(move.key)
            if failure is None:
                moves.append((plan.of.group, move))
            else:
                errors.append(ItemError.of(failure, group=plan.of.group, **subject_of(move.key)))
    text = None
    if export:
        text = render_plan(moves, with_group=len(plans) != 1)
    elif session.format == "kafka":
        text = reset_text((group, move.key, move.new) for group, move in moves)
    return Report([Table(COLUMNS, [_row(*move) for move in moves])], errors, text=text)


def _row(group: str, move: Move) -> dict[str, Any]:
    return {
        "group": group,
        "topic": move.key.topic,
        "partition": move.key.partition,
        "prior_offset": move.prior,
        "new_offset": move.new,
        "delta": move.delta,
    }
