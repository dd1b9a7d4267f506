"""Identifiers. Plain values, so that they are cheap as dictionary keys."""

from __future__ import annotations

import uuid
from typing import NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
TopicId = uuid.UUID

#: KIP-516: the all-zero id means "no id given".
ZERO_TOPIC_ID: TopicId = uuid.UUID(int=0)

NO_BROKER = BrokerId(-1)


class TopicPartition(NamedTuple):
    """One partition of a topic by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
