"""Who leads, and who stays in the ISR, when brokers come and go. Pure.

A broker that is not registered leaves every ISR that has a registered member. One that registers
anew may have lost what it acknowledged, so it leaves every ISR that has any other member *before*
its registration is answered. The last member always stays: only it can know what was committed.
"""

from __future__ import annotations

from collections.abc import Container

from broker.metadata.image import PartitionImage
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import NO_BROKER, BrokerId


def settled(
    partition: PartitionImage,
    registered: Container[BrokerId],
    fresh: frozenset[BrokerId] = frozenset(),
) -> PartitionImage:
    """The partition as it has to be; the same object when nothing changes.

    ``registered``: brokers whose registration was answered; ``fresh``: those that it is going to
    be, with a new broker epoch. The leader epoch rises whenever another broker leads, or none.
    """
    isr = _isr(partition, registered, fresh)
    leader_id = partition.leader_id
    if leader_id not in isr or leader_id not in registered:
        leader_id = next((r for r in partition.replicas if r in isr and r in registered), NO_BROKER)
    if isr == partition.isr and leader_id == partition.leader_id:
        return partition
    is_moved = leader_id != partition.leader_id
    return partition._replace(
        isr=isr,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch + is_moved,
        partition_epoch=partition.partition_epoch + 1,
    )


def preferred(partition: PartitionImage, registered: Container[BrokerId]) -> PartitionImage:
    """Led by the first of its replicas again. Raises ``KafkaError``: ELECTION_NOT_NEEDED where it is,
    PREFERRED_LEADER_NOT_AVAILABLE where that one is not in sync or not registered."""
    leader_id = partition.replicas[0]
    if leader_id == partition.leader_id:
        raise _refused(ErrorCode.ELECTION_NOT_NEEDED)
    if leader_id not in partition.isr or leader_id not in registered:
        raise _refused(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
    return partition._replace(
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch + 1,
        partition_epoch=partition.partition_epoch + 1,
    )


def unclean(partition: PartitionImage, registered: Container[BrokerId]) -> PartitionImage:
    """Led by a replica that was not in sync, as nobody else is there: records may be lost. Raises
    ``KafkaError``: ELECTION_NOT_NEEDED where somebody leads, ELIGIBLE_LEADERS_NOT_AVAILABLE where no
    replica is registered. Who is only being added, and may have nothing yet, comes last."""
    if partition.leader_id != NO_BROKER:
        raise _refused(ErrorCode.ELECTION_NOT_NEEDED)
    alive = [replica for replica in partition.replicas if replica in registered]
    if not alive:
        raise _refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    leader_id = min(alive, key=lambda replica: replica in partition.adding)
    return partition._replace(
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch + 1,
        isr=frozenset((leader_id,)),
        partition_epoch=partition.partition_epoch + 1,
    )


def _refused(code: ErrorCode) -> KafkaError:
    return KafkaError(code, _MESSAGES[code])


#: As Kafka's controller tells them.
_MESSAGES = {
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader was not available.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "Eligible topic partition leaders are not available.",
}


def _isr(
    partition: PartitionImage, registered: Container[BrokerId], fresh: frozenset[BrokerId]
) -> frozenset[BrokerId]:
    alive = frozenset(member for member in partition.isr if member in registered)
    if alive:
        return alive
    isr = partition.isr
    for member in sorted(fresh & isr):
        if len(isr) > 1:
            isr -= {member}
    return isr
