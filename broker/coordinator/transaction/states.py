"""States of a transaction, by the numbers that the log has for them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """``wire_name`` is what DescribeTransactions and ListTransactions call it."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    #: Kafka's states while an id is being forgotten or fenced. They are never in the log, and never
    #: here: such an id is pending.
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def wire_name(self) -> str:
        return _WIRE_NAMES[self]

    @property
    def is_prepared(self) -> bool:
        """The outcome is decided, and markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """Nothing is under way."""
        return self in _AT_REST


_AT_REST: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)
_WIRE_NAMES: Final = {
    state: "".join(word.capitalize() for word in state.name.split("_"))
    for state in TransactionState
}
BY_WIRE_NAME: Final = {name: state for state, name in _WIRE_NAMES.items()}
