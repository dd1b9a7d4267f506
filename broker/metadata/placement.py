"""Which brokers hold the replicas of a new partition.

Pure: brokers in, assignment out. Leaders go round the brokers, so that a topic's partitions are
led evenly; followers follow in an order that shifts each round, so that the partitions of one
leader are not all followed by the same broker. With racks, brokers of all racks alternate, so
that replicas lie in as many racks as there are replicas for. The start is random: many topics of
one partition would else all be led by the first broker.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Container, Sequence
from typing import NamedTuple

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import BrokerId


class Candidate(NamedTuple):
    broker_id: BrokerId
    rack: str | None


def place(
    candidates: Collection[Candidate],
    partition_count: int,
    replication_factor: int,
    start_index: int,
    dice: random.Random,
) -> list[tuple[BrokerId, ...]]:
    """Replicas of ``partition_count`` partitions, the preferred leader first.

    ``replication_factor`` is at most the number of candidates. ``start_index`` is the number of
    partitions that the topic has already.
    """
    assert 0 < replication_factor <= len(candidates), (replication_factor, len(candidates))
    order = _alternate_racks(candidates)
    if len(order) == 1:
        return [(order[0].broker_id,)] * partition_count
    offset = dice.randrange(len(order))
    shift = dice.randrange(len(order)) + start_index // len(order)
    return [
        _replicas(order, offset + start_index + i, shift + i // len(order), replication_factor)
        for i in range(partition_count)
    ]


def _replicas(
    order: Sequence[Candidate], leader: int, shift: int, replication_factor: int
) -> tuple[BrokerId, ...]:
    count = len(order)
    first = order[leader % count]
    chosen = [first]
    others = [
        order[(leader + 1 + (shift + step) % (count - 1)) % count] for step in range(count - 1)
    ]
    racks = {first.rack}
    # New racks first; then whoever is left, in the same order.
    for fresh_only in (True, False):
        for candidate in others:
            if len(chosen) == replication_factor:
                break
            if candidate in chosen or (fresh_only and candidate.rack in racks):
                continue
            chosen.append(candidate)
            racks.add(candidate.rack)
    return tuple(candidate.broker_id for candidate in chosen)


def _alternate_racks(candidates: Collection[Candidate]) -> list[Candidate]:
    """One of each rack, then the second of each, and so on; by id within a rack."""
    racks: dict[str, list[Candidate]] = {}
    for candidate in sorted(candidates):
        racks.setdefault(candidate.rack or "", []).append(candidate)
    order: list[Candidate] = []
    rows = max(map(len, racks.values()))
    for row in range(rows):
        order += [racks[rack][row] for rack in sorted(racks) if row < len(racks[rack])]
    return order


def check_replicas(
    replicas: Sequence[int], known: Container[int], replication_factor: int | None = None
) -> tuple[BrokerId, ...]:
    """Replicas that a client has chosen; raises ``KafkaError`` in Kafka's words. ``replication_factor``:
    of the topic's other partitions, where all must have the same."""
    problem = ""
    if not replicas:
        problem = "an empty replica list."
    previous: int | None = None
    for broker_id in sorted(replicas):
        if problem:
            break
        if broker_id not in known:
            problem = f"broker {broker_id}, but no such broker is registered."
        elif broker_id == previous:
            problem = f"the broker {broker_id} more than once."
        previous = broker_id
    if not problem and replication_factor not in (None, len(replicas)):
        problem = (
            f"a partition with {len(replicas)} replica(s), but this is not consistent with "
            f"previous partitions, which have {replication_factor} replica(s)."
        )
    if problem:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes {problem}",
        )
    return tuple(BrokerId(broker_id) for broker_id in replicas)
