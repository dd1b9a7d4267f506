"""The controller's verdict on a leader's ISR proposal (AlterPartition, KIP-497 and KIP-903). Pure."""

from __future__ import annotations

from broker.metadata.image import ClusterImage, PartitionImage
from broker.metadata.reassignment import completed
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.leadership import IsrProposal


def judge_isr_proposal(
    image: ClusterImage, topic: str, index: int, proposal: IsrProposal
) -> PartitionImage:
    """The partition with the proposed ISR. Raises ``KafkaError``: nothing is to be written then."""
    partition = image.partition(topic, index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    leader = image.brokers.get(proposal.leader_id)
    if leader is None or leader.broker_epoch != proposal.broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    if (
        proposal.leader_epoch > partition.leader_epoch
        or proposal.partition_epoch > partition.partition_epoch
    ):
        # The leader knows more than this controller: it must have been replaced.
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if (partition.leader_id, partition.leader_epoch) != (proposal.leader_id, proposal.leader_epoch):
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if proposal.partition_epoch != partition.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)
    isr = proposal.isr
    if proposal.leader_id not in isr or not isr <= frozenset(partition.replicas):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    check_members(image, proposal)
    # A reassignment waits for just that: it is completed in the same write.
    after = completed(partition._replace(isr=isr), image.brokers)
    return after._replace(partition_epoch=partition.partition_epoch + 1)


def check_members(image: ClusterImage, proposal: IsrProposal) -> None:
    """Every member is registered as it was when it acknowledged: not restarted since (KIP-903)."""
    for member in proposal.members:
        broker = image.brokers.get(member.broker_id)
        if broker is None or broker.broker_epoch != member.broker_epoch:
            raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)
