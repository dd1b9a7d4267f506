"""Topics that the broker itself writes to; clients see them marked as internal."""

from __future__ import annotations

from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"

INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, "__share_group_state"})


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS
