"""Steps for the pipeline that only a cluster of several brokers needs: brokers come and go, leaders
propose ISRs. What is right, ``leaders`` and ``isr_proposals`` say; here is in what order."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Mapping, Sequence

from broker.metadata.changes import BrokerGone, BrokerRegistered, PartitionsChanged
from broker.metadata.image import BrokerImage, ClusterImage
from broker.metadata.isr_proposals import judge_isr_proposal
from broker.metadata.leaders import preferred, settled
from broker.metadata.pipeline import Step, Steps
from broker.metadata.reassignment import reassigned
from broker.metadata.requests import AlteredIsr, ElectedPreferred, Reassigned, SettledBrokers
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import BrokerId
from broker.model.leadership import IsrProposal

#: Partitions that one turn of the loop changes.
SLICE_PARTITIONS = 64

Proposed = Callable[[], ClusterImage]


def part_with(proposed: Proposed, seen: Mapping[BrokerId, BrokerImage]) -> Steps[SettledBrokers]:
    """First who went is gone, then ISRs and leaders are without them, and without those that
    registered anew. ``admit`` comes when all of that is durable.

    A controller that ends in between leaves a state from which the next one, which does the same
    over all partitions, comes to the same end.
    """
    gone = [
        BrokerGone(broker_id)
        for broker_id, broker in proposed().brokers.items()
        if broker_id not in seen or seen[broker_id].broker_epoch != broker.broker_epoch
    ]
    if gone:
        yield Step([*gone], [SettledBrokers()])
    yield from _settle_partitions(proposed, frozenset(_fresh(proposed(), seen)))
    yield Step([], [SettledBrokers()], is_last=True)


def admit(
    durable: ClusterImage, proposed: Proposed, seen: Mapping[BrokerId, BrokerImage]
) -> Steps[SettledBrokers]:
    """Brokers that registered anew may take part, and lead what nobody else can.

    Judged on the ``durable`` image: a write under way may fail, and who is admitted must not be in
    any ISR that it was in before. Nobody can bring it back into one meanwhile, as it is unknown.
    """
    fresh = _fresh(durable, seen)
    if any(broker_id in durable.brokers for broker_id in fresh) or _is_in_an_isr(durable, fresh):
        message = "Brokers that registered anew are in an ISR still."
        error = ErrorCode.NOT_CONTROLLER
        yield Step([], [SettledBrokers(error=error, message=message)], is_last=True)
        return
    if fresh:
        registered = [BrokerRegistered(broker) for broker in fresh.values()]
        yield Step([*registered], [SettledBrokers()])
        yield from _settle_partitions(proposed, frozenset())
    yield Step([], [SettledBrokers()], is_last=True)


def _fresh(
    image: ClusterImage, seen: Mapping[BrokerId, BrokerImage]
) -> dict[BrokerId, BrokerImage]:
    known = image.brokers
    return {
        broker_id: broker
        for broker_id, broker in seen.items()
        if broker_id not in known or known[broker_id].broker_epoch != broker.broker_epoch
    }


def _is_in_an_isr(image: ClusterImage, fresh: Container[BrokerId]) -> bool:
    """With another member, that is."""
    return any(
        len(partition.isr) > 1 and any(member in fresh for member in partition.isr)
        for topic in image.topics.values()
        for partition in topic.partitions
    )


def _settle_partitions(
    proposed: Proposed, fresh: frozenset[BrokerId]
) -> Generator[Step[SettledBrokers], None, None]:
    step: Step[SettledBrokers] = Step([], [SettledBrokers()])
    for name in list(proposed().topics):
        image = proposed()
        topic = image.topics.get(name)
        if topic is None:
            continue
        registered: Container[BrokerId] = image.brokers
        changed = tuple(
            after
            for before in topic.partitions
            if (after := settled(before, registered, fresh)) is not before
        )
        if changed:
            step.changes.append(PartitionsChanged(name, changed))
            step.size += len(changed)
        if step.size >= SLICE_PARTITIONS:
            yield step
            step = Step([], [SettledBrokers()])
    if step.changes:
        yield step


def reassign(
    proposed: Proposed, topic: str, index: int, target: Sequence[BrokerId] | None
) -> Steps[Reassigned]:
    step: Step[Reassigned] = Step(is_last=True)
    image = proposed()
    before = image.partition(topic, index)
    try:
        if before is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        after = reassigned(before, target, image.brokers)
    except KafkaError as error:
        step.results.append(Reassigned(topic, index, error=error.code, message=error.message))
    else:
        step.results.append(Reassigned(topic, index))
        if after is not before:
            step.changes.append(PartitionsChanged(topic, (after,)))
    yield step


def elect_preferred(proposed: Proposed, topic: str, index: int) -> Steps[ElectedPreferred]:
    step: Step[ElectedPreferred] = Step(is_last=True)
    image = proposed()
    before = image.partition(topic, index)
    try:
        if before is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        after = preferred(before, image.brokers)
    except KafkaError as error:
        step.results.append(ElectedPreferred(topic, index, error=error.code, message=error.message))
    else:
        step.results.append(ElectedPreferred(topic, index))
        step.changes.append(PartitionsChanged(topic, (after,)))
    yield step


def alter_isr(
    proposed: Proposed, topic: str, index: int, proposal: IsrProposal
) -> Steps[AlteredIsr]:
    step: Step[AlteredIsr] = Step(is_last=True)
    try:
        partition = judge_isr_proposal(proposed(), topic, index, proposal)
    except KafkaError as error:
        step.results.append(AlteredIsr(error=error.code, message=error.message))
    else:
        step.changes.append(PartitionsChanged(topic, (partition,)))
        step.results.append(AlteredIsr(partition.leadership))
    yield step
