"""The states of a classic group, and from where each may be entered."""

from __future__ import annotations

from enum import Enum
from typing import Final


class GroupState(Enum):
    """Values are the names that clients are told."""

    #: No members. It may have committed offsets, which keep it alive.
    EMPTY = "Empty"
    #: Members are asked to join (again); answered once all have, or time is up.
    PREPARING_REBALANCE = "PreparingRebalance"
    #: All have joined the new generation; its leader's assignment is awaited.
    COMPLETING_REBALANCE = "CompletingRebalance"
    #: Every member has its assignment.
    STABLE = "Stable"
    #: Deleted, or its coordinator has moved away.
    DEAD = "Dead"


_EMPTY, _PREPARING, _COMPLETING = (
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
)
_STABLE, _DEAD = GroupState.STABLE, GroupState.DEAD

ENTERED_FROM: Final = {
    _EMPTY: frozenset({_PREPARING}),
    _PREPARING: frozenset({_STABLE, _COMPLETING, _EMPTY}),
    _COMPLETING: frozenset({_PREPARING}),
    _STABLE: frozenset({_COMPLETING}),
    _DEAD: frozenset({_STABLE, _PREPARING, _COMPLETING, _EMPTY, _DEAD}),
}
