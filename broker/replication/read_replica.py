"""Which replica a consumer had better read from (KIP-392): as Kafka's RackAwareReplicaSelector. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from broker.model.ids import NO_BROKER, BrokerId

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
#: Kafka's other one, which is as none at all.
LEADER_ONLY: Final = "org.apache.kafka.common.replica.LeaderSelector"


class Reader(NamedTuple):
    """A follower that is in sync and has what is to be read."""

    broker_id: BrokerId
    rack: str | None
    log_end_offset: int
    last_caught_up_ms: int


def preferred(rack: str, leader_rack: str | None, readers: Iterable[Reader]) -> BrokerId:
    """In the consumer's rack the one that is furthest; ``NO_BROKER``: the leader, which comes first if it
    stands there itself."""
    if leader_rack == rack:
        return NO_BROKER
    near = [reader for reader in readers if reader.rack == rack]
    if not near:
        return NO_BROKER
    best = max(near, key=lambda reader: (reader[2], reader.last_caught_up_ms, reader.broker_id))
    return best.broker_id
