"""Steps for the pipeline that only a cluster of several brokers needs: brokers come and go, leaders
propose ISRs. What is right, ``leaders`` and ``isr_proposals`` say; here is in what order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from typing import TypeVar

from broker.metadata.changes import BrokerGone, BrokerRegistered, Change, PartitionsChanged
from broker.metadata.features import first_levels, judge_updates, supports
from broker.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from broker.metadata.isr_proposals import judge_isr_proposal
from broker.metadata.leaders import preferred, settled, unclean
from broker.metadata.pipeline import Step, Steps
from broker.metadata.reassignment import check_factor, reassigned, unknown_to_reassign
from broker.metadata.requests import (
    AlteredIsr,
    ElectedLeader,
    FeatureUpdate,
    PartitionName,
    Reassigned,
    Reassignment,
    SettledBrokers,
    UpdatedFeatures,
)
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.features import SUPPORTED
from broker.model.ids import NO_BROKER, BrokerId
from broker.model.leadership import IsrProposal

logger = logging.getLogger(__name__)

#: Partitions that one turn of the loop changes.
SLICE_PARTITIONS = 64

Proposed = Callable[[], ClusterImage]

#: Whether replicas that were not in sync may lead a topic's partitions when nobody else is there.
MayBeUnclean = Callable[[TopicImage], bool]

W = TypeVar("W", Reassignment, PartitionName)
R = TypeVar("R", Reassigned, ElectedLeader)


def part_with(
    proposed: Proposed, seen: Mapping[BrokerId, BrokerImage], may_be_unclean: MayBeUnclean
) -> Steps[SettledBrokers]:
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
    fresh = frozenset(_fresh(proposed(), seen))
    yield from _settle_partitions(proposed, fresh, may_be_unclean)
    yield Step([], [SettledBrokers()], is_last=True)


def admit(
    durable: ClusterImage,
    proposed: Proposed,
    seen: Mapping[BrokerId, BrokerImage],
    may_be_unclean: MayBeUnclean,
) -> Steps[SettledBrokers]:
    """Brokers that registered anew may take part, and lead what nobody else can.

    Judged on the ``durable`` image: a write under way may fail, and who is admitted must not be in
    any ISR that it was in before. Nobody can bring it back into one meanwhile, as it is unknown.
    """
    fresh = {
        broker_id: broker
        for broker_id, broker in _fresh(durable, seen).items()
        if _takes_part(broker, proposed())
    }
    if any(broker_id in durable.brokers for broker_id in fresh) or _is_in_an_isr(durable, fresh):
        message = "Brokers that registered anew are in an ISR still."
        error = ErrorCode.NOT_CONTROLLER
        yield Step([], [SettledBrokers(error=error, message=message)], is_last=True)
        return
    levels = first_levels(proposed(), seen.values())
    if levels is not None:
        yield Step([levels], [SettledBrokers()])
    if fresh:
        registered = [BrokerRegistered(broker) for broker in fresh.values()]
        yield Step([*registered], [SettledBrokers()])
        yield from _settle_partitions(proposed, frozenset(), may_be_unclean)
    yield Step([], [SettledBrokers()], is_last=True)


def _takes_part(broker: BrokerImage, image: ClusterImage) -> bool:
    """Who does not support what is finalised waits until it is taken back."""
    if supports(broker, image):
        return True
    logger.warning(
        "broker %d takes no part: it does not support the finalised features %s",
        broker.broker_id,
        ", ".join(f"{name}={level}" for name, level in sorted(image.features.items())),
    )
    return False


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
    proposed: Proposed, fresh: frozenset[BrokerId], may_be_unclean: MayBeUnclean
) -> Generator[Step[SettledBrokers], None, None]:
    step: Step[SettledBrokers] = Step([], [SettledBrokers()])
    for name in list(proposed().topics):
        image = proposed()
        topic = image.topics.get(name)
        if topic is None:
            continue
        changed = tuple(
            after
            for before in topic.partitions
            if (after := _settled(image, topic, before, fresh, may_be_unclean)) is not before
        )
        if changed:
            step.changes.append(PartitionsChanged(name, changed))
            step.size += len(changed)
        if step.size >= SLICE_PARTITIONS:
            yield step
            step = Step([], [SettledBrokers()])
    if step.changes:
        yield step


def _settled(
    image: ClusterImage,
    topic: TopicImage,
    before: PartitionImage,
    fresh: frozenset[BrokerId],
    may_be_unclean: MayBeUnclean,
) -> PartitionImage:
    after = settled(before, image.brokers, fresh)
    if after.leader_id == NO_BROKER and may_be_unclean(topic):
        try:
            # One step of the epochs, whether the leader is lost in this write or was before.
            return unclean(before._replace(leader_id=NO_BROKER), image.brokers)
        except KafkaError:
            pass  # no replica is there at all
    return after


def reassign(
    proposed: Proposed, wanted: Sequence[Reassignment], may_change_factor: bool
) -> Steps[Reassigned]:
    def judge(image: ClusterImage, before: PartitionImage, each: Reassignment) -> PartitionImage:
        if each.target is not None and not may_change_factor:
            check_factor(before, each.target)
        return reassigned(before, each.target, image.brokers)

    return _each_partition(proposed, wanted, judge, Reassigned, unknown_to_reassign)


def elect_leaders(
    proposed: Proposed, wanted: Sequence[PartitionName], is_unclean: bool
) -> Steps[ElectedLeader]:
    elected = unclean if is_unclean else preferred

    def judge(image: ClusterImage, before: PartitionImage, _: PartitionName) -> PartitionImage:
        return elected(before, image.brokers)

    return _each_partition(proposed, wanted, judge, ElectedLeader, _unknown_to_elect)


def _each_partition(
    proposed: Proposed,
    wanted: Sequence[W],
    judge: Callable[[ClusterImage, PartitionImage, W], PartitionImage],
    result: type[R],
    unknown: Callable[[ClusterImage, str, int], KafkaError],
) -> Steps[R]:
    """A result for each, in their order. In one step a topic has one change, and a partition is
    judged once: the next verdict needs the outcome of the one before."""
    results: list[R] = []
    changed: dict[str, dict[int, PartitionImage]] = {}
    for each in wanted:
        topic, index = each.topic, each.index
        if len(results) >= SLICE_PARTITIONS or index in changed.get(topic, ()):
            yield _step(changed, results)
            results, changed = [], {}
        image = proposed()
        before = image.partition(topic, index)
        try:
            if before is None:
                raise unknown(image, topic, index)
            after = judge(image, before, each)
        except KafkaError as error:
            results.append(result(topic, index, error=error.code, message=error.message or None))
        else:
            results.append(result(topic, index))
            if after is not before:
                changed.setdefault(topic, {})[index] = after
    last = _step(changed, results)
    last.is_last = True
    yield last


def _step(changed: Mapping[str, Mapping[int, PartitionImage]], results: list[R]) -> Step[R]:
    changes: list[Change] = [
        PartitionsChanged(topic, tuple(partitions.values()))
        for topic, partitions in changed.items()
    ]
    return Step(changes, results)


def _unknown_to_elect(image: ClusterImage, topic: str, index: int) -> KafkaError:
    found = topic if topic not in image.topics else f"{topic}-{index}"
    what = "topic" if topic not in image.topics else "partition"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such {what} as {found}")


def update_features(
    proposed: Proposed,
    updates: Sequence[FeatureUpdate],
    validate_only: bool,
    controller_id: BrokerId,
) -> Steps[UpdatedFeatures]:
    step: Step[UpdatedFeatures] = Step(is_last=True)
    try:
        change = judge_updates(proposed(), updates, controller_id, SUPPORTED)
    except KafkaError as error:
        step.results.append(UpdatedFeatures(error=error.code, message=error.message))
    else:
        step.results.append(UpdatedFeatures())
        if change is not None and not validate_only:
            step.changes.append(change)
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
