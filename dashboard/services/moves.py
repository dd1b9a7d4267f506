"""Moves of partitions and elections of leaders, begun and taken back; audited, refusals as values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from broker.model.ids import TopicPartition
from dashboard.answers import answers
from dashboard.cluster import KafkaFailure
from dashboard.gateway import Gateway
from dashboard.moves import Move
from dashboard.moves_wire import Outcomes
from dashboard.selectors.moves import KEY
from dashboard.services import audit
from dashboard.services.audit import Actor
from dashboard.snapshots import shelf

MAX_AUDITED: Final = 100


def reassign(*, gateway: Gateway, actor: Actor, what: str, moves: Sequence[Move]) -> Outcomes:
    """Begun, not awaited. ``what`` says why, for the audit. Raises KafkaFailure."""
    with audit.change(actor, "partition.reassign", what) as change:
        change.before = _told({move.key: list(move.before) for move in moves})
        change.after = _told({move.key: list(move.after) for move in moves})
        return _done(change, lambda: gateway.moves.reassign({m.key: m.after for m in moves}))


def cancel(*, gateway: Gateway, actor: Actor, keys: Collection[TopicPartition]) -> Outcomes:
    with audit.change(actor, "partition.reassign_cancel", _named(keys)) as change:
        change.before = _told(dict.fromkeys(sorted(keys), "moving"))
        return _done(change, lambda: gateway.moves.reassign(dict.fromkeys(keys)))


def elect(*, gateway: Gateway, actor: Actor, keys: Collection[TopicPartition]) -> Outcomes:
    """Preferred leaders; who leads already is no failure."""
    with audit.change(actor, "leader.elect", _named(keys)) as change:

        def ask() -> Outcomes:
            outcomes = gateway.moves.elect(keys)
            return {
                key: None if failure and failure.code == "ELECTION_NOT_NEEDED" else failure
                for key, failure in outcomes.items()
            }

        return _done(change, ask)


def _done(change: audit.Change, ask: Callable[[], Outcomes]) -> Outcomes:
    outcomes = ask()
    failures = [f"{key}: {failure}" for key, failure in outcomes.items() if failure is not None]
    change.failure = "; ".join(failures[:MAX_AUDITED])
    answers.forget(KEY)
    shelf.amend(lambda snapshot: snapshot)  # look again at once
    return outcomes


def first_failure(outcomes: Outcomes) -> tuple[TopicPartition, KafkaFailure] | None:
    return next(((key, f) for key, f in sorted(outcomes.items()) if f is not None), None)


def _named(keys: Collection[TopicPartition]) -> str:
    if len(keys) == 1:
        return str(next(iter(keys)))
    return f"{len(keys)} partitions"


def _told(values: Mapping[TopicPartition, Any]) -> dict[str, Any]:
    told = {str(key): value for key, value in list(values.items())[:MAX_AUDITED]}
    if len(values) > MAX_AUDITED:
        told["and more partitions"] = len(values) - MAX_AUDITED
    return told
