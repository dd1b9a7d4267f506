"""Requests as steps for the pipeline: verdicts and changes, one slice a turn of the loop.

Every slice is judged on the proposed image of its own turn, so other requests may come between two
slices of one. What a verdict is, ``topics`` and ``configs`` say; here is how many of them make a
slice, and Kafka's bounds on one request.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Generator, Sequence
from typing import TypeVar

from broker.config.broker_config import BrokerConfig
from broker.config.topic_config import resolve_topic_config
from broker.metadata.changes import (
    Change,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from broker.metadata.configs import judge_alteration, judge_replacement, named_twice
from broker.metadata.image import ClusterImage, PartitionImage, TopicImage
from broker.metadata.pipeline import Step, Steps
from broker.metadata.requests import (
    AlteredConfig,
    ConfigAlteration,
    ConfigReplacement,
    CreatedTopic,
    DeletedTopic,
    GrownTopic,
    MorePartitions,
    NewTopic,
    ProducerIds,
    RaisedEpochs,
    TopicReference,
)
from broker.metadata.topic_names import CLUSTER_METADATA_TOPIC, CollisionIndex
from broker.metadata.topics import (
    added_partition_count,
    asked_partition_count,
    deletion_disabled,
    duplicated,
    find_topic,
    judge_more_partitions,
    judge_new_topic,
    name_once,
)
from broker.metadata.znodes import topic_id_text
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import BrokerId, TopicId

#: Producer ids of one block: what a broker takes at a time.
PRODUCER_ID_BLOCK = 1000

#: The protocol's producer ids are signed 64-bit.
MAX_PRODUCER_ID = 2**63 - 1

#: Kafka keeps the first hundred ids for itself (the metadata topic, log directories).
LAST_RESERVED_ID = 99

#: Partitions that one request may create, and nodes of any kind, as in Kafka.
MAX_PARTITIONS = 10_000
MAX_RECORDS = 10_000

#: Partitions that one turn of the loop creates, deletes or changes (one topic may have more), and
#: things of other kinds.
SLICE_PARTITIONS = 64

#: Topics whose partitions are only counted in one turn.
TOPICS_COUNTED_A_TURN = 2000

#: What one resource of AlterConfigs counts in a slice: parsing and checking every setting.
ALTERATION_SIZE = 4

#: Partitions that are kept to be shared between topics.
MAX_SHARED = 4096

A = TypeVar("A", ConfigAlteration, ConfigReplacement)


class RequestSteps:
    """Makes the steps of each kind of request. ``proposed``: the image to judge on, now."""

    def __init__(
        self,
        proposed: Callable[[], ClusterImage],
        broker_id: BrokerId,
        broker_config: Callable[[], BrokerConfig],
        new_topic_id: Callable[[], TopicId],
        dice: random.Random,
    ) -> None:
        self._proposed = proposed
        self._broker_id = broker_id
        self._broker_config = broker_config
        self._new_topic_id = new_topic_id
        self._dice = dice
        self._names = CollisionIndex()
        self._shared: dict[PartitionImage, PartitionImage] = {}

    def follow(self, changes: Sequence[Change]) -> None:
        """The proposed image has changed so."""
        for change in changes:
            if isinstance(change, TopicCreated):
                self._names.add(change.topic.name)
            elif isinstance(change, TopicDeleted):
                self._names.remove(change.topic.name)

    def reset(self, image: ClusterImage) -> None:
        self._names = CollisionIndex(image.topics)

    def may_be_unclean(self, topic: TopicImage) -> bool:
        """``unclean.leader.election.enable`` of the topic, as this broker resolves it."""
        config = resolve_topic_config(topic.configs, self._broker_config())
        return config.unclean_leader_election_enable

    # Topics

    def create_topics(self, asked: Sequence[NewTopic], validate_only: bool) -> Steps[CreatedTopic]:
        twice = duplicated(topic.name for topic in asked)
        topics = [topic for topic in asked if topic.name not in twice]
        excess = yield from self._excess_of_new_topics(topics)
        step: Step[CreatedTopic] = Step()
        for topic in topics:
            step.size += 1
            try:
                if excess is not None and topic.name != CLUSTER_METADATA_TOPIC:
                    raise _excess(excess)
                made = self._judge_new_topic(topic)
            except KafkaError as error:
                step.results.append(_not_created(topic.name, error))
            else:
                step.results.append(_created(made))
                step.size += len(made.partitions)
                if not validate_only:
                    step.changes.append(TopicCreated(made))
            if step.size >= SLICE_PARTITIONS:
                yield step
                step = Step()
        step.results += [_not_created(name, _named_twice()) for name in sorted(twice)]
        step.is_last = True
        yield step

    def _excess_of_new_topics(
        self, topics: Sequence[NewTopic]
    ) -> Generator[Step[CreatedTopic], None, str | None]:
        """Kafka's bounds: on the partitions asked for, and on the nodes that would be written."""
        config = self._broker_config()
        nodes: dict[str, int] = {}
        partitions = 0
        for number, topic in enumerate(topics, 1):
            count = 0
            if topic.name != CLUSTER_METADATA_TOPIC:
                count = asked_partition_count(topic, config)
            partitions += count
            nodes[topic.name] = 1 + count + len(topic.configs)
            if number % TOPICS_COUNTED_A_TURN == 0:
                yield Step()
        if partitions > MAX_PARTITIONS:
            return _EXCESS_OF_PARTITIONS
        if sum(nodes.values()) <= MAX_RECORDS:
            return None
        # Rare: now it matters which of the topics are legal.
        for number, topic in enumerate(topics):
            try:
                self._judge_new_topic(topic)
            except KafkaError:
                del nodes[topic.name]
            if number % SLICE_PARTITIONS == 0:
                yield Step()
        return _EXCESS_OF_NODES if sum(nodes.values()) > MAX_RECORDS else None

    def _judge_new_topic(self, topic: NewTopic) -> TopicImage:
        return judge_new_topic(
            self._proposed(),
            topic,
            self._names,
            self._broker_config(),
            self._unused_topic_id,
            self._dice,
        )

    def _unused_topic_id(self) -> TopicId:
        """Never a reserved id, nor one whose text a command line would take for an option."""
        while True:
            topic_id = self._new_topic_id()
            is_legal = topic_id.int > LAST_RESERVED_ID and topic_id_text(topic_id)[0] != "-"
            if is_legal and topic_id not in self._proposed().topics_by_id:
                return topic_id

    def delete_topics(self, references: Sequence[TopicReference]) -> Steps[DeletedTopic]:
        step: Step[DeletedTopic] = Step()
        is_enabled = self._broker_config().delete_topic_enable
        for reference, problem in name_once(self._proposed(), references):
            step.size += 1
            try:
                if not is_enabled:
                    raise deletion_disabled()
                if problem is not None:
                    raise problem
                topic = find_topic(self._proposed(), reference)
            except KafkaError as error:
                step.results.append(_not_deleted(reference, error))
            else:
                step.results.append(DeletedTopic(topic.name, topic.topic_id))
                step.changes.append(TopicDeleted(topic))
                step.size += len(topic.partitions)
            if step.size >= SLICE_PARTITIONS:
                yield step
                step = Step()
        step.is_last = True
        yield step

    def create_partitions(
        self, asked: Sequence[MorePartitions], validate_only: bool
    ) -> Steps[GrownTopic]:
        twice = duplicated(request.name for request in asked)
        requests = [request for request in asked if request.name not in twice]
        image = self._proposed()
        is_excess = sum(added_partition_count(image, r) for r in requests) > MAX_PARTITIONS
        step: Step[GrownTopic] = Step()
        for request in requests:
            step.size += 1
            try:
                if is_excess:
                    raise _excess(_EXCESS_OF_ADDED)
                added = judge_more_partitions(self._proposed(), request, self._dice)
            except KafkaError as error:
                step.results.append(_not_grown(request.name, error))
            else:
                step.results.append(GrownTopic(request.name))
                step.size += len(added)
                if not validate_only:
                    step.changes.append(PartitionsAdded(request.name, added))
            if step.size >= SLICE_PARTITIONS:
                yield step
                step = Step()
        step.results += [_not_grown(name, _named_twice()) for name in sorted(twice)]
        step.is_last = True
        yield step

    def raise_leader_epochs(self, broker_id: BrokerId) -> Steps[RaisedEpochs]:
        step: Step[RaisedEpochs] = Step()
        for name in list(self._proposed().topics):
            topic = self._proposed().topics.get(name)
            if topic is None:
                continue
            raised = tuple(
                self._raised(partition)
                for partition in topic.partitions
                if partition.leader_id == broker_id
            )
            if raised:
                step.changes.append(PartitionsChanged(name, raised))
                step.results.append(RaisedEpochs(len(raised)))
                step.size += len(raised)
            if step.size >= SLICE_PARTITIONS:
                yield step
                step = Step()
        step.is_last = True
        yield step

    def _raised(self, partition: PartitionImage) -> PartitionImage:
        """Equal partitions of different topics are one object."""
        raised = partition._replace(
            leader_epoch=partition.leader_epoch + 1,
            partition_epoch=partition.partition_epoch + 1,
        )
        if len(self._shared) >= MAX_SHARED:
            self._shared.clear()
        return self._shared.setdefault(raised, raised)

    # Settings and producer ids

    def _alterable_brokers(self, is_forwarded: bool) -> Collection[BrokerId]:
        """A client asks the broker that it means, which passes the request on to the controller."""
        return self._proposed().brokers if is_forwarded else (self._broker_id,)

    def replace_configs(
        self, resources: Sequence[ConfigReplacement], validate_only: bool, is_forwarded: bool
    ) -> Steps[AlteredConfig]:
        def judge(resource: ConfigReplacement) -> Change | None:
            brokers = self._alterable_brokers(is_forwarded)
            return judge_replacement(self._proposed(), resource, brokers, self._broker_config())

        return _alter(resources, judge, validate_only)

    def alter_configs(
        self, resources: Sequence[ConfigAlteration], validate_only: bool, is_forwarded: bool
    ) -> Steps[AlteredConfig]:
        def judge(resource: ConfigAlteration) -> Change | None:
            brokers = self._alterable_brokers(is_forwarded)
            return judge_alteration(self._proposed(), resource, brokers, self._broker_config())

        return _alter(resources, judge, validate_only)

    def allocate_producer_ids(self) -> Steps[ProducerIds]:
        first = self._proposed().next_producer_id
        step: Step[ProducerIds] = Step(is_last=True)
        if first > MAX_PRODUCER_ID - PRODUCER_ID_BLOCK:
            message = "All producer ids have been given out."
            step.results.append(ProducerIds(error=ErrorCode.UNKNOWN_SERVER_ERROR, message=message))
        else:
            step.changes.append(ProducerIdsAllocated(first + PRODUCER_ID_BLOCK))
            step.results.append(ProducerIds(first, PRODUCER_ID_BLOCK))
        yield step


def _alter(
    resources: Sequence[A], judge: Callable[[A], Change | None], validate_only: bool
) -> Steps[AlteredConfig]:
    twice = named_twice(resources)
    step: Step[AlteredConfig] = Step()
    for resource in resources:
        step.size += ALTERATION_SIZE
        try:
            if (resource.resource_type, resource.resource_name) in twice:
                raise _resource_twice()
            change = judge(resource)
        except KafkaError as error:
            step.results.append(not_altered(resource, error))
        else:
            step.results.append(AlteredConfig(resource.resource_type, resource.resource_name))
            if change is not None and not validate_only:
                step.changes.append(change)
        if step.size >= SLICE_PARTITIONS:
            yield step
            step = Step()
    step.is_last = True
    yield step


def not_altered(resource: ConfigAlteration | ConfigReplacement, error: KafkaError) -> AlteredConfig:
    return AlteredConfig(
        resource.resource_type, resource.resource_name, error=error.code, message=error.message
    )


def _created(topic: TopicImage) -> CreatedTopic:
    return CreatedTopic(
        topic.name,
        topic.topic_id,
        len(topic.partitions),
        len(topic.partitions[0].replicas),
        topic.configs,
    )


def _not_created(name: str, error: KafkaError) -> CreatedTopic:
    return CreatedTopic(name, error=error.code, message=error.message)


def _not_grown(name: str, error: KafkaError) -> GrownTopic:
    return GrownTopic(name, error=error.code, message=error.message or None)


def _not_deleted(reference: TopicReference, error: KafkaError) -> DeletedTopic:
    return DeletedTopic(reference.name, reference.topic_id, error=error.code, message=error.message)


# Made anew each time: an exception that is raised again and again keeps every traceback.


def _named_twice() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")


def _resource_twice() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def _excess(message: str) -> KafkaError:
    return KafkaError(ErrorCode.POLICY_VIOLATION, message)


_EXCESS_OF_PARTITIONS = "Excessively large number of partitions per request."
_EXCESS_OF_ADDED = "Excessively large number of additional partitions per request."
_EXCESS_OF_NODES = "Unable to perform excessively large batch operation."
