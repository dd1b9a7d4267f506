"""The controller: the only writer of the metadata tree.

Requests become verdicts on the proposed image, changes, and store writes, in slices of a bounded
number of partitions, so that a request for 10,000 of them holds up nobody (``pipeline``). Results
come by callback when the write is durable and its image was published. A write that did not happen
gives KAFKA_STORAGE_ERROR or NOT_CONTROLLER (clients try again), one whose outcome is unknown
REQUEST_TIMED_OUT, as in Kafka.

``start`` lays out the tree, takes the ``/controller`` node and raises ``/controller_epoch`` in one
submission. Every write checks the version of that epoch's node, so a controller that was replaced
writes nothing, whether it knows it or not.

Deleting a topic takes two steps, in this order: the topic leaves the tree, durably; then the
server, told by ``on_image`` (``TopicDeleted`` in ``image.changes``), deletes its directories. A
crash between leaves directories whose ``partition.metadata`` names a topic id that
``image.topics_by_id`` does not have: at the next start the server deletes those before it serves
anything. A topic created anew has another id, so it never sees old bytes. Likewise a topic may be
in the image without directories (crash before the server made them): they are made at the start.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.metadata import znodes
from broker.metadata.changes import (
    BrokerRegistered,
    Change,
    PartitionsAdded,
    PartitionsChanged,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from broker.metadata.configs import judge_alteration, judge_replacement, named_twice
from broker.metadata.election import Election, elect
from broker.metadata.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from broker.metadata.load import read_image
from broker.metadata.pipeline import Pipeline, Step, Steps, failure_of
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
    RegisteredBroker,
    TopicReference,
)
from broker.metadata.store import (
    Check,
    Create,
    Delete,
    Done,
    Failed,
    MetadataStore,
    Node,
    Operation,
    Outcome,
    Post,
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
from broker.metadata.writes import operations_for
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

#: Partitions that one turn of the loop creates, deletes or changes (one topic may have more).
SLICE_PARTITIONS = 128

#: Resources of AlterConfigs that one turn of the loop judges.
SLICE_RESOURCES = 32

#: Partitions that are kept to be shared between topics.
MAX_SHARED = 4096

A = TypeVar("A", ConfigAlteration, ConfigReplacement)


class Controller:
    """See the module's docstring. Everything is called on the loop's thread."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: BrokerId,
        broker_config: Callable[[], BrokerConfig],
        clock: Clock,
        new_topic_id: Callable[[], TopicId],
        dice: random.Random,
        post: Post,
        on_image: Callable[[ClusterImage, ClusterImage], None],
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._broker_config = broker_config
        self._clock = clock
        self._new_topic_id = new_topic_id
        self._dice = dice
        self._on_image = on_image
        self._pipeline = Pipeline(self, post)
        self._names = CollisionIndex()
        self._epoch_version = 0
        self._shared: dict[PartitionImage, PartitionImage] = {}

    @property
    def image(self) -> ClusterImage:
        """The newest durable image."""
        return self._pipeline.image

    def start(self, cluster_id: str, done: Callable[[str | None], None]) -> None:
        """Become the controller. ``done(None)`` when active, else with the reason.

        ``cluster_id`` is what the log directories say (their ``meta.properties``); a new store
        takes it over, another one must have the same.
        """

        def elected(outcome: Election | str) -> None:
            if isinstance(outcome, str):
                done(outcome)
                return
            self._epoch_version = outcome.epoch_version
            read_image(self._store, loaded)

        def loaded(image: ClusterImage | None) -> None:
            if image is None:
                done("The metadata store cannot be read.")
                return
            self._pipeline.start(image)
            done(None)

        elect(self._store, self._broker_id, cluster_id, self._clock, elected)

    # Requests. Results come by callback, never inside the call, one for each thing asked.

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        validate_only: bool,
        done: Callable[[list[CreatedTopic]], None],
    ) -> None:
        """Each topic is created whole or not at all. A name given twice has one (bad) result."""

        def refused(error: ErrorCode, message: str) -> list[CreatedTopic]:
            return [CreatedTopic(t.name, error=error, message=message) for t in topics]

        self._pipeline.ask(self._create_topics(topics, validate_only), refused, done)

    def delete_topics(
        self, topics: Sequence[TopicReference], done: Callable[[list[DeletedTopic]], None]
    ) -> None:
        """See the module's docstring for what the server does after it."""

        def refused(error: ErrorCode, message: str) -> list[DeletedTopic]:
            return [DeletedTopic(t.name, t.topic_id, error=error, message=message) for t in topics]

        self._pipeline.ask(self._delete_topics(topics), refused, done)

    def create_partitions(
        self,
        topics: Sequence[MorePartitions],
        validate_only: bool,
        done: Callable[[list[GrownTopic]], None],
    ) -> None:
        def refused(error: ErrorCode, message: str) -> list[GrownTopic]:
            return [GrownTopic(t.name, error=error, message=message) for t in topics]

        self._pipeline.ask(self._create_partitions(topics, validate_only), refused, done)

    def alter_configs(
        self,
        resources: Sequence[ConfigReplacement],
        validate_only: bool,
        done: Callable[[list[AlteredConfig]], None],
    ) -> None:
        """AlterConfigs; the results are in the order of ``resources``."""
        self._alter(resources, self._judge_replacement, validate_only, done)

    def incremental_alter_configs(
        self,
        resources: Sequence[ConfigAlteration],
        validate_only: bool,
        done: Callable[[list[AlteredConfig]], None],
    ) -> None:
        """IncrementalAlterConfigs; the results are in the order of ``resources``."""
        self._alter(resources, self._judge_alteration, validate_only, done)

    def _alter(
        self,
        resources: Sequence[A],
        judge: Callable[[A], Change | None],
        validate_only: bool,
        done: Callable[[list[AlteredConfig]], None],
    ) -> None:
        def refused(error: ErrorCode, message: str) -> list[AlteredConfig]:
            return [_not_altered(each, KafkaError(error, message)) for each in resources]

        self._pipeline.ask(_alter_configs(resources, judge, validate_only), refused, done)

    def allocate_producer_ids(self, done: Callable[[ProducerIds], None]) -> None:
        """A block that no broker ever had, also not before a crash."""

        def refused(error: ErrorCode, message: str) -> list[ProducerIds]:
            return [ProducerIds(error=error, message=message)]

        self._pipeline.ask(self._allocate_producer_ids(), refused, lambda r: done(r[0]))

    def raise_leader_epochs(
        self, broker_id: BrokerId, done: Callable[[RaisedEpochs], None]
    ) -> None:
        """For a start without the clean mark, before anything is served: offsets that the broker
        lost and gives out again are told apart by their leader epoch."""

        def refused(error: ErrorCode, message: str) -> list[RaisedEpochs]:
            return [RaisedEpochs(error=error, message=message)]

        def all_done(results: list[RaisedEpochs]) -> None:
            bad = next((result for result in results if not result.is_success), None)
            total = sum(result.partition_count for result in results)
            done(bad if bad is not None else RaisedEpochs(total))

        self._pipeline.ask(self._raise_leader_epochs(broker_id), refused, all_done)

    def register_broker(
        self,
        broker_id: BrokerId,
        endpoints: Sequence[Endpoint],
        rack: str | None,
        done: Callable[[RegisteredBroker], None],
    ) -> None:
        """Make the broker known, with a new broker epoch; also when it was registered before."""
        broker = BrokerImage(broker_id, -1, tuple(endpoints), rack)
        path = znodes.broker_path(broker_id)
        data = znodes.encode_broker(broker, self._clock.wall_ms())
        is_known = broker_id in self._pipeline.proposed.brokers

        def refused(error: ErrorCode, message: str) -> list[RegisteredBroker]:
            return [RegisteredBroker(broker_id, error=error, message=message)]

        def written(outcome: Outcome) -> None:
            if isinstance(outcome, Done):
                self._store.get(path, read)
            else:
                code, message = failure_of(outcome)
                done(RegisteredBroker(broker_id, error=code, message=message))

        def read(node: Node | Failed | None) -> None:
            if not isinstance(node, Node):
                done(
                    RegisteredBroker(
                        broker_id,
                        error=ErrorCode.REQUEST_TIMED_OUT,
                        message="The registration could not be read back.",
                    )
                )
                return
            registered = replace(broker, broker_epoch=node.creation_id)
            result = RegisteredBroker(broker_id, node.creation_id)
            step = Step([BrokerRegistered(registered)], [result], is_stored=True)
            self._pipeline.ask((s for s in (step,)), refused, lambda results: done(results[0]))

        operations: list[Operation] = [self._fence()]
        if is_known:
            operations.append(Delete(path))
        operations.append(Create(path, data, is_ephemeral=True))
        self._store.submit(operations, written)

    # Verdicts, slice by slice

    def _create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool
    ) -> Steps[CreatedTopic]:
        twice = duplicated(topic.name for topic in topics)
        topics = [topic for topic in topics if topic.name not in twice]
        excess = self._excess_of_new_topics(topics)
        step: Step[CreatedTopic] = Step([], [])
        size = 0
        for topic in topics:
            try:
                if excess is not None and topic.name != CLUSTER_METADATA_TOPIC:
                    raise excess
                made = self._judge_new_topic(topic)
            except KafkaError as error:
                step.results.append(
                    CreatedTopic(topic.name, error=error.code, message=error.message or None)
                )
                continue
            step.results.append(_created(made))
            if not validate_only:
                step.changes.append(TopicCreated(made))
            size += len(made.partitions)
            if size >= SLICE_PARTITIONS:
                yield step
                step, size = Step([], []), 0
        step.results += [
            CreatedTopic(name, error=ErrorCode.INVALID_REQUEST, message="Duplicate topic name.")
            for name in sorted(twice)
        ]
        yield step

    def _excess_of_new_topics(self, topics: Sequence[NewTopic]) -> KafkaError | None:
        """Kafka's bounds on one request: on what is asked, and on what would be written."""
        config = self._broker_config()
        asked = {
            topic.name: asked_partition_count(topic, config)
            for topic in topics
            if topic.name != CLUSTER_METADATA_TOPIC
        }
        if sum(asked.values()) > MAX_PARTITIONS:
            return KafkaError(
                ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
            )
        records = {
            topic.name: 1 + asked.get(topic.name, 0) + len(topic.configs) for topic in topics
        }
        if sum(records.values()) <= MAX_RECORDS:
            return None
        # Rare: now it matters which of the topics are legal.
        for topic in topics:
            try:
                self._judge_new_topic(topic)
            except KafkaError:
                del records[topic.name]
        if sum(records.values()) <= MAX_RECORDS:
            return None
        return KafkaError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )

    def _judge_new_topic(self, topic: NewTopic) -> TopicImage:
        return judge_new_topic(
            self._pipeline.proposed,
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
            if topic_id.int > LAST_RESERVED_ID and not topic_id_text(topic_id).startswith("-"):
                return topic_id

    def _delete_topics(self, references: Sequence[TopicReference]) -> Steps[DeletedTopic]:
        if not self._broker_config().delete_topic_enable:
            yield Step([], [_not_deleted(r, deletion_disabled()) for r in references])
            return
        step: Step[DeletedTopic] = Step([], [])
        size = 0
        for reference, problem in name_once(self._pipeline.proposed, references):
            try:
                if problem is not None:
                    raise problem
                topic = find_topic(self._pipeline.proposed, reference)
            except KafkaError as error:
                step.results.append(_not_deleted(reference, error))
                continue
            step.results.append(DeletedTopic(topic.name, topic.topic_id))
            step.changes.append(TopicDeleted(topic))
            size += len(topic.partitions)
            if size >= SLICE_PARTITIONS:
                yield step
                step, size = Step([], []), 0
        yield step

    def _create_partitions(
        self, requests: Sequence[MorePartitions], validate_only: bool
    ) -> Steps[GrownTopic]:
        twice = duplicated(request.name for request in requests)
        requests = [request for request in requests if request.name not in twice]
        image = self._pipeline.proposed
        is_excess = sum(added_partition_count(image, r) for r in requests) > MAX_PARTITIONS
        step: Step[GrownTopic] = Step([], [_grown_twice(name) for name in sorted(twice)])
        size = 0
        for request in requests:
            try:
                if is_excess:
                    raise _EXCESS_OF_ADDED
                added = judge_more_partitions(self._pipeline.proposed, request, self._dice)
            except KafkaError as error:
                step.results.append(
                    GrownTopic(request.name, error=error.code, message=error.message or None)
                )
                continue
            step.results.append(GrownTopic(request.name))
            if not validate_only:
                step.changes.append(PartitionsAdded(request.name, added))
            size += len(added)
            if size >= SLICE_PARTITIONS:
                yield step
                step, size = Step([], []), 0
        yield step

    def _judge_replacement(self, request: ConfigReplacement) -> Change | None:
        return judge_replacement(
            self._pipeline.proposed, request, self._broker_id, self._broker_config()
        )

    def _judge_alteration(self, request: ConfigAlteration) -> Change | None:
        return judge_alteration(
            self._pipeline.proposed, request, self._broker_id, self._broker_config()
        )

    def _allocate_producer_ids(self) -> Steps[ProducerIds]:
        first = self._pipeline.proposed.next_producer_id
        if first > MAX_PRODUCER_ID - PRODUCER_ID_BLOCK:
            message = "All producer ids have been given out."
            yield Step([], [ProducerIds(error=ErrorCode.UNKNOWN_SERVER_ERROR, message=message)])
            return
        yield Step(
            [ProducerIdsAllocated(first + PRODUCER_ID_BLOCK)],
            [ProducerIds(first, PRODUCER_ID_BLOCK)],
        )

    def _raise_leader_epochs(self, broker_id: BrokerId) -> Steps[RaisedEpochs]:
        step: Step[RaisedEpochs] = Step([], [])
        size = 0
        for name in list(self._pipeline.proposed.topics):
            topic = self._pipeline.proposed.topics.get(name)
            if topic is None:
                continue
            raised = tuple(
                self._share(
                    replace(
                        partition,
                        leader_epoch=partition.leader_epoch + 1,
                        partition_epoch=partition.partition_epoch + 1,
                    )
                )
                for partition in topic.partitions
                if partition.leader_id == broker_id
            )
            if raised:
                step.changes.append(PartitionsChanged(name, raised))
                step.results.append(RaisedEpochs(len(raised)))
                size += len(raised)
            if size >= SLICE_PARTITIONS:
                yield step
                step, size = Step([], []), 0
        yield step

    def _share(self, partition: PartitionImage) -> PartitionImage:
        """One object for equal partitions of different topics."""
        if len(self._shared) >= MAX_SHARED:
            self._shared.clear()
        return self._shared.setdefault(partition, partition)

    # What the pipeline asks of us

    def submit(
        self, before: ClusterImage, changes: Sequence[Change], done: Callable[[Outcome], None]
    ) -> None:
        operations = operations_for(before, changes, self._broker_id)
        self._store.submit([self._fence(), *operations], done)

    def reload(self, done: Callable[[ClusterImage | None], None]) -> None:
        read_image(self._store, done)

    def proposed(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if isinstance(change, TopicCreated):
                self._names.add(change.topic.name)
            elif isinstance(change, TopicDeleted):
                self._names.remove(change.topic.name)

    def published(self, before: ClusterImage, after: ClusterImage) -> None:
        self._on_image(before, after)

    def reset(self, image: ClusterImage) -> None:
        self._names = CollisionIndex(image.topics)

    def _fence(self) -> Check:
        """In every write: we are still the controller that we were when we were elected."""
        return Check(znodes.CONTROLLER_EPOCH, self._epoch_version)


def _alter_configs(
    resources: Sequence[A], judge: Callable[[A], Change | None], validate_only: bool
) -> Steps[AlteredConfig]:
    twice = named_twice(resources)
    step: Step[AlteredConfig] = Step([], [])
    for resource in resources:
        try:
            if (resource.resource_type, resource.resource_name) in twice:
                raise _RESOURCE_TWICE
            change = judge(resource)
        except KafkaError as error:
            step.results.append(_not_altered(resource, error))
            continue
        step.results.append(AlteredConfig(resource.resource_type, resource.resource_name))
        if change is not None and not validate_only:
            step.changes.append(change)
        if len(step.results) >= SLICE_RESOURCES:
            yield step
            step = Step([], [])
    yield step


_RESOURCE_TWICE = KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")


def _not_altered(
    resource: ConfigAlteration | ConfigReplacement, error: KafkaError
) -> AlteredConfig:
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


_EXCESS_OF_ADDED = KafkaError(
    ErrorCode.POLICY_VIOLATION,
    "Excessively large number of additional partitions per request.",
)


def _grown_twice(name: str) -> GrownTopic:
    return GrownTopic(name, error=ErrorCode.INVALID_REQUEST, message="Duplicate topic name.")


def _not_deleted(reference: TopicReference, error: KafkaError) -> DeletedTopic:
    return DeletedTopic(reference.name, reference.topic_id, error=error.code, message=error.message)
