"""Moving a partition to other brokers (KIP-455). Pure.

While it moves, ``replicas`` are the target first, then those that are to go; ``adding`` are new in it,
``removing`` those to go. When the whole target is in the ISR the others leave, replicas and ISR, in
the same write. Another reassignment may replace one under way; to cancel is to go back to what there
was before. Records stay safe as each ISR on the way is a part of the one before, and never empty.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from broker.metadata.image import ClusterImage, PartitionImage
from broker.metadata.leaders import settled
from broker.metadata.placement import check_replicas
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import BrokerId


def reassigned(
    partition: PartitionImage, target: Sequence[BrokerId] | None, registered: Collection[BrokerId]
) -> PartitionImage:
    """On its way to ``target``, or there at once; None cancels. The same object when nothing is to
    be done. Raises ``KafkaError``: INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS."""
    before = tuple(r for r in partition.replicas if r not in partition.adding)
    if target is None:
        if not partition.adding and not partition.removing:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        target = before
    else:
        _check(target, before, registered)
    kept = tuple(target) + tuple(r for r in before if r not in target)
    isr = partition.isr & frozenset(kept)
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "No replica that is in sync would be left."
        )
    moving = partition._replace(
        replicas=kept,
        isr=isr,
        adding=tuple(r for r in target if r not in before),
        removing=tuple(r for r in before if r not in target),
    )
    moved = completed(moving, registered)
    if moved == partition:
        return partition
    return moved._replace(partition_epoch=partition.partition_epoch + 1)


def _check(
    target: Sequence[BrokerId], before: Sequence[BrokerId], registered: Collection[BrokerId]
) -> None:
    """In Kafka's words. Who has a replica may keep it while it is away."""
    check_replicas(target, {*registered, *before})


def check_factor(partition: PartitionImage, target: Sequence[BrokerId]) -> None:
    """For who asks that the replication factor stay (KIP-860): that of where it is going."""
    factor = len(partition.replicas) - len(partition.removing)
    if len(target) != factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {factor} to {len(target)}",
        )


def unknown_to_reassign(image: ClusterImage, topic: str, index: int) -> KafkaError:
    if topic in image.topics:
        message = f"Unable to find partition {topic}:{index}."
    else:
        message = f"Unable to find a topic named {topic}."
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)


def completed(partition: PartitionImage, registered: Collection[BrokerId]) -> PartitionImage:
    """With the target alone, once all of it is in the ISR; and with a leader out of the ISR. The
    partition epoch is the caller's to raise."""
    target = tuple(r for r in partition.replicas if r not in partition.removing)
    if (partition.adding or partition.removing) and partition.isr >= set(target):
        partition = partition._replace(
            replicas=target, isr=frozenset(target), adding=(), removing=()
        )
    if partition.leader_id in partition.isr:
        return partition
    return settled(partition, registered)._replace(partition_epoch=partition.partition_epoch)
