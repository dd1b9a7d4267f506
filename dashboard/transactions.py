"""What is known of transactions: as their coordinators tell them, and as partitions hold them open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from broker.model.ids import TopicPartition

ENDING = frozenset({"PrepareCommit", "PrepareAbort"})
UNDER_WAY = frozenset({"Ongoing", *ENDING})


@dataclass(frozen=True, slots=True)
class TransactionView:
    """One that is under way. ``partitions`` are those without a marker once the outcome is decided."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """What a partition knows of a producer whose transaction is open there."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    """Read_committed consumers get no further than this."""
    last_ms: int
    """When the producer's last batch says that it was written."""


def unknown_ones(
    opened: Iterable[OpenTransaction], known: Iterable[TransactionView]
) -> list[OpenTransaction]:
    """Those that no coordinator will ever end: it does not know that the producer's transaction has
    this partition."""
    held = {(view.producer_id, each) for view in known for each in view.partitions}
    return [each for each in opened if (each.producer_id, each.partition) not in held]
