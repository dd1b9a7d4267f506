"""Changes of consumer groups: moving offsets, forgetting them, deleting groups.

Each is refused in words for the page (``Refused``) when it cannot be done; what Kafka allows only
for groups without members is refused with the members' names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure, OffsetView
from dashboard.collecting.group_watch import watch
from dashboard.gateway import Gateway, OffsetAt
from dashboard.selectors.group_reset import MAX_MEMBERS_NAMED, PlannedMove, member_names
from dashboard.services import audit
from dashboard.snapshots import shelf

MAX_AUDITED: Final = 1000
"""Partitions whose offsets are written into an audit entry; the others are counted."""
_WORDS: Final = {
    "GROUP_ID_NOT_FOUND": "There is no such group (any more).",
    "GROUP_SUBSCRIBED_TO_TOPIC": "Members of the group read this topic: stop them first.",
    "NON_EMPTY_GROUP": "The group has members: stop them first.",
    "UNKNOWN_MEMBER_ID": "The group has members, whose offsets only they can move: stop them first.",
    "COORDINATOR_LOAD_IN_PROGRESS": "The group's coordinator is still loading: try again soon.",
    "COORDINATOR_NOT_AVAILABLE": "The group has no coordinator: a partition of __consumer_offsets "
    "has no leader.",
    "OFFSET_METADATA_TOO_LARGE": "The broker refuses the commit as too large.",
}


class Refused(Exception):
    """Why a change was not made, in words for the page."""


def words_of(failure: KafkaFailure) -> str:
    return _WORDS.get(failure.code, f"{failure.message} ({failure.code})")


def reset_offsets(
    *,
    gateway: Gateway,
    actor: audit.Actor,
    group: str,
    moves: Mapping[TopicPartition, PlannedMove],
) -> int:
    """Carry out what was previewed, unless something has changed since. Returns how many."""
    with audit.change(actor, "group.reset", group) as change:
        change.before = _audited({key: move.prior for key, move in moves.items()})
        change.after = _audited({key: move.new for key, move in moves.items()})
        _refuse_failures(lambda: _check_plan(gateway, group, moves))
        outcome = gateway.groups.alter_offsets(group, {key: at.new for key, at in moves.items()})
        watch().ask_again(group)
        _refuse_some(outcome)
    return len(outcome)


def delete_offsets(*, gateway: Gateway, actor: audit.Actor, group: str, topic: str) -> int:
    """Forget what the group has committed for a topic. Returns of how many partitions."""
    with audit.change(actor, "group.delete_offsets", f"{group}: {topic}") as change:
        committed = gateway.groups.committed([group])[group]
        if isinstance(committed, KafkaFailure):
            raise Refused(words_of(committed))
        found = {key: at.offset for key, at in committed.items() if key.topic == topic}
        if not found:
            raise Refused(f"The group has committed nothing for {topic}.")
        change.before = _audited(found)
        outcome = gateway.groups.delete_offsets(group, found)
        watch().ask_again(group)
        _refuse_some(outcome)
        change.after = {}
    return len(outcome)


def delete_group(*, gateway: Gateway, actor: audit.Actor, group: str) -> None:
    """The group and all that it has committed."""
    with audit.change(actor, "group.delete", group) as change:
        committed = gateway.groups.committed([group])[group]
        if not isinstance(committed, KafkaFailure):
            change.before = _audited({key: at.offset for key, at in committed.items()})
        refuse_members(gateway, group)
        failure = gateway.groups.delete([group])[group]
        watch().ask_again(group)
        if failure is not None:
            raise Refused(words_of(failure))
        _forget(group)


def refuse_members(gateway: Gateway, group: str) -> None:
    """Names them: only when they have stopped can offsets be moved from outside."""
    view = gateway.groups.describe([group])[group]
    if isinstance(view, KafkaFailure):
        if view.code != "GROUP_ID_NOT_FOUND":
            raise Refused(words_of(view))
    elif not view.is_vacant:
        names = member_names(view)
        more = len(view.members) - len(names)
        also = f" and {more} more" if more > 0 else ""
        noun = "member" if len(view.members) == 1 else "members"
        raise Refused(
            f"The group is {view.state} with {len(view.members)} {noun}: "
            f"{', '.join(names[:MAX_MEMBERS_NAMED])}{also}. Stop them first."
        )


def _check_plan(gateway: Gateway, group: str, moves: Mapping[TopicPartition, PlannedMove]) -> None:
    """Nobody has come, nothing has moved, and the new places still lie inside the logs."""
    refuse_members(gateway, group)
    committed = gateway.groups.committed([group])[group]
    if isinstance(committed, KafkaFailure):
        raise Refused(words_of(committed))
    now = {key: at.offset for key, at in committed.items()}
    moved = [key for key, move in moves.items() if now.get(key) != move.prior]
    if moved:
        raise Refused(
            f"The committed offset of {_some(moved)} has changed since the preview: look at it again."
        )
    keys = list(moves)
    starts = gateway.offsets(keys, OffsetAt.EARLIEST)
    ends = gateway.offsets(keys, OffsetAt.LATEST)
    for key, move in moves.items():
        start, end = starts[key], ends[key]
        if not isinstance(start, OffsetView) or not isinstance(end, OffsetView):
            raise Refused(f"{key} does not tell where its log begins and ends: try again.")
        if not start.offset <= move.new <= end.offset:
            raise Refused(f"The log of {key} no longer holds {move.new}: look at a new preview.")


def _refuse_failures(check: Any) -> None:
    try:
        check()
    except KafkaFailure as failure:
        raise Refused(words_of(failure)) from None


def _refuse_some(outcome: Mapping[TopicPartition, KafkaFailure | None]) -> None:
    failed = {key: failure for key, failure in outcome.items() if failure is not None}
    if not failed:
        return
    first = next(iter(failed.values()))
    if len(failed) == len(outcome):
        raise Refused(words_of(first))
    raise Refused(
        f"{len(outcome) - len(failed)} partitions were changed, {len(failed)} were not "
        f"({_some(list(failed))}): {words_of(first)}"
    )


def _some(keys: Collection[TopicPartition]) -> str:
    names = ", ".join(str(key) for key in list(keys)[:5])
    return names if len(keys) <= 5 else f"{names} and {len(keys) - 5} more"


def _audited(offsets: Mapping[TopicPartition, int | None]) -> dict[str, Any]:
    """Offsets as text: JavaScript and JSON tools round large numbers."""
    kept = dict(sorted(offsets.items())[:MAX_AUDITED])
    found: dict[str, Any] = {str(key): None if at is None else str(at) for key, at in kept.items()}
    if len(offsets) > MAX_AUDITED:
        found["and more partitions"] = len(offsets) - MAX_AUDITED
    return found


def _forget(group: str) -> None:
    """The next page should not show what was deleted until the next tick."""
    shelf.amend(
        lambda snapshot: replace(
            snapshot, groups={name: one for name, one in snapshot.groups.items() if name != group}
        )
    )
