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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from broker.clock import Clock
from broker.config.broker_config import BrokerConfig
from broker.metadata import znodes
from broker.metadata.changes import BrokerRegistered, Change
from broker.metadata.cluster_steps import (
    admit,
    alter_isr,
    elect_leaders,
    part_with,
    reassign,
    update_features,
)
from broker.metadata.election import Election, elect
from broker.metadata.features import first_levels
from broker.metadata.image import BrokerImage, ClusterImage, Endpoint
from broker.metadata.load import read_image
from broker.metadata.pipeline import Pipeline, Step, Steps, failure_of
from broker.metadata.requests import (
    AlteredConfig,
    AlteredIsr,
    ConfigAlteration,
    ConfigReplacement,
    CreatedTopic,
    DeletedTopic,
    ElectedLeader,
    FeatureUpdate,
    GrownTopic,
    MorePartitions,
    NewTopic,
    PartitionName,
    ProducerIds,
    RaisedEpochs,
    Reassigned,
    Reassignment,
    RegisteredBroker,
    SettledBrokers,
    TopicReference,
    UpdatedFeatures,
)
from broker.metadata.steps import RequestSteps, not_altered
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
from broker.metadata.writes import operations_for
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.features import SUPPORTED
from broker.model.ids import BrokerId, TopicId
from broker.model.leadership import IsrProposal


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
        on_stopped: Callable[[str], None] = lambda why: None,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._on_image = on_image
        self._on_stopped = on_stopped
        self._pipeline = Pipeline(self, post)
        self._steps = RequestSteps(
            lambda: self._pipeline.proposed, broker_id, broker_config, new_topic_id, dice
        )
        self._epoch_version = 0

    @property
    def image(self) -> ClusterImage:
        """The newest durable image."""
        return self._pipeline.image

    def start(
        self,
        cluster_id: str,
        done: Callable[[str | None], None],
        *,
        skeleton: Sequence[str] = znodes.SKELETON,
        replaces: Node | None = None,
        may_found: bool = True,
    ) -> None:
        """Become the controller. ``done(None)`` when active, else with the reason.

        ``cluster_id`` is what the log directories say (their ``meta.properties``); a new store
        takes it over, another one must have the same. The first image is not told to ``on_image``:
        whoever started the controller takes it from ``image``.
        """

        def elected(outcome: Election | str) -> None:
            if isinstance(outcome, str):
                done(outcome)
                return
            self._epoch_version = outcome.epoch_version
            read_image(self._store, lambda image: loaded(image, outcome.controller_epoch))

        def loaded(image: ClusterImage | str, controller_epoch: int) -> None:
            if isinstance(image, str):
                done(image)
                return
            if image.controller_epoch != controller_epoch:
                done(_REPLACED)  # nor may it be told as that of the one who came after us
                return
            self._pipeline.start(image)
            done(None)

        elect(
            self._store,
            self._broker_id,
            cluster_id,
            self._clock,
            elected,
            skeleton=skeleton,
            replaces=replaces,
            may_found=may_found,
        )

    def stop(self, why: str) -> None:
        """The term is over: requests are refused from here on. What was submitted may still be
        written, if nobody else has been elected."""
        self._pipeline.stop(why)

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

        self._pipeline.ask(self._steps.create_topics(topics, validate_only), refused, done)

    def delete_topics(
        self, topics: Sequence[TopicReference], done: Callable[[list[DeletedTopic]], None]
    ) -> None:
        """See the module's docstring for what the server does after it."""

        def refused(error: ErrorCode, message: str) -> list[DeletedTopic]:
            return [DeletedTopic(t.name, t.topic_id, error=error, message=message) for t in topics]

        self._pipeline.ask(self._steps.delete_topics(topics), refused, done)

    def create_partitions(
        self,
        topics: Sequence[MorePartitions],
        validate_only: bool,
        done: Callable[[list[GrownTopic]], None],
    ) -> None:
        def refused(error: ErrorCode, message: str) -> list[GrownTopic]:
            return [GrownTopic(t.name, error=error, message=message) for t in topics]

        self._pipeline.ask(self._steps.create_partitions(topics, validate_only), refused, done)

    def alter_configs(
        self,
        resources: Sequence[ConfigReplacement],
        validate_only: bool,
        done: Callable[[list[AlteredConfig]], None],
        *,
        is_forwarded: bool = False,
    ) -> None:
        """AlterConfigs; the results are in the order of ``resources``. ``is_forwarded``: by another
        broker, whose settings may be meant."""
        steps = self._steps.replace_configs(resources, validate_only, is_forwarded)
        self._pipeline.ask(steps, _refuser(resources), done)

    def incremental_alter_configs(
        self,
        resources: Sequence[ConfigAlteration],
        validate_only: bool,
        done: Callable[[list[AlteredConfig]], None],
        *,
        is_forwarded: bool = False,
    ) -> None:
        """IncrementalAlterConfigs, likewise."""
        steps = self._steps.alter_configs(resources, validate_only, is_forwarded)
        self._pipeline.ask(steps, _refuser(resources), done)

    def allocate_producer_ids(self, done: Callable[[ProducerIds], None]) -> None:
        """A block that no broker ever had, also not before a crash."""

        def refused(error: ErrorCode, message: str) -> list[ProducerIds]:
            return [ProducerIds(error=error, message=message)]

        self._pipeline.ask(self._steps.allocate_producer_ids(), refused, lambda r: done(r[0]))

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

        self._pipeline.ask(self._steps.raise_leader_epochs(broker_id), refused, all_done)

    def register_broker(
        self,
        broker_id: BrokerId,
        endpoints: Sequence[Endpoint],
        rack: str | None,
        done: Callable[[RegisteredBroker], None],
    ) -> None:
        """Make the broker known, with a new broker epoch; also when it was registered before."""
        broker = BrokerImage(broker_id, -1, tuple(endpoints), rack, SUPPORTED)
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
            self._pipeline.ask(registered_alone(registered, result), refused, told)

        def registered_alone(
            registered: BrokerImage, result: RegisteredBroker
        ) -> Steps[RegisteredBroker]:
            yield Step([BrokerRegistered(registered)], [result], is_stored=True)
            levels = first_levels(self._pipeline.proposed, [registered])
            yield Step([] if levels is None else [levels], [result], is_last=True)

        def told(results: list[RegisteredBroker]) -> None:
            done(next((result for result in results if not result.is_success), results[0]))

        operations: list[Operation] = [self._fence()]
        if is_known:
            operations.append(Delete(path))
        operations.append(Create(path, data, is_ephemeral=True))
        self._store.submit(operations, written)

    # A cluster's brokers and leaders

    def brokers_seen(
        self, brokers: Mapping[BrokerId, BrokerImage], done: Callable[[bool], None]
    ) -> None:
        """The registrations that the store holds now. ``done(True)`` when the image says so, every
        ISR and leader fits, and those that registered anew may take part."""

        def refused(error: ErrorCode, message: str) -> list[SettledBrokers]:
            return [SettledBrokers(error=error, message=message)]

        def parted(results: list[SettledBrokers]) -> None:
            if all(result.is_success for result in results):
                self._pipeline.ask(
                    admit(self._pipeline.image, proposed, brokers, unclean), refused, admitted
                )
            else:
                done(False)

        def admitted(results: list[SettledBrokers]) -> None:
            done(all(result.is_success for result in results))

        def proposed() -> ClusterImage:
            return self._pipeline.proposed

        unclean = self._steps.may_be_unclean
        self._pipeline.ask(part_with(proposed, brokers, unclean), refused, parted)

    def alter_isr(
        self, topic: str, index: int, proposal: IsrProposal, done: Callable[[AlteredIsr], None]
    ) -> None:
        """AlterPartition. Only INELIGIBLE_REPLICA says that nothing was written, nor will be."""

        def refused(error: ErrorCode, message: str) -> list[AlteredIsr]:
            return [AlteredIsr(error=error, message=message)]

        self._pipeline.ask(
            alter_isr(lambda: self._pipeline.proposed, topic, index, proposal),
            refused,
            lambda results: done(results[0]),
        )

    def reassign(
        self,
        wanted: Sequence[Reassignment],
        done: Callable[[list[Reassigned]], None],
        *,
        may_change_factor: bool = True,
    ) -> None:
        """AlterPartitionReassignments: begun, not awaited; a result for each, in their order."""

        def refused(error: ErrorCode, message: str) -> list[Reassigned]:
            return [Reassigned(w.topic, w.index, error=error, message=message) for w in wanted]

        steps = reassign(lambda: self._pipeline.proposed, wanted, may_change_factor)
        self._pipeline.ask(steps, refused, done)

    def elect_leaders(
        self,
        wanted: Sequence[PartitionName],
        done: Callable[[list[ElectedLeader]], None],
        *,
        is_unclean: bool = False,
    ) -> None:
        """ElectLeaders, of preferred leaders unless ``is_unclean``; a result for each, in order."""

        def refused(error: ErrorCode, message: str) -> list[ElectedLeader]:
            return [ElectedLeader(w.topic, w.index, error=error, message=message) for w in wanted]

        steps = elect_leaders(lambda: self._pipeline.proposed, wanted, is_unclean)
        self._pipeline.ask(steps, refused, done)

    def update_features(
        self,
        updates: Sequence[FeatureUpdate],
        validate_only: bool,
        done: Callable[[UpdatedFeatures], None],
    ) -> None:
        """UpdateFeatures: all levels are finalised, or none."""

        def refused(error: ErrorCode, message: str) -> list[UpdatedFeatures]:
            return [UpdatedFeatures(error=error, message=message)]

        steps = update_features(
            lambda: self._pipeline.proposed, updates, validate_only, self._broker_id
        )
        self._pipeline.ask(steps, refused, lambda results: done(results[0]))

    # What the pipeline asks of us

    def submit(
        self, before: ClusterImage, changes: Sequence[Change], done: Callable[[Outcome], None]
    ) -> None:
        operations = operations_for(before, changes, self._broker_id)
        self._store.submit(chain((self._fence(),), operations), done)

    def reload(self, done: Callable[[ClusterImage | str], None]) -> None:
        def loaded(image: ClusterImage | str) -> None:
            if not isinstance(image, str) and (
                image.controller_epoch != self._pipeline.image.controller_epoch
            ):
                image = _REPLACED
            done(image)
            if isinstance(image, str):
                self._on_stopped(image)

        read_image(self._store, loaded)

    def proposed(self, changes: Sequence[Change]) -> None:
        self._steps.follow(changes)

    def published(self, before: ClusterImage, after: ClusterImage) -> None:
        self._on_image(before, after)

    def reset(self, image: ClusterImage) -> None:
        self._steps.reset(image)

    def _fence(self) -> Check:
        """In every write: we are still the controller that we were when we were elected."""
        return Check(znodes.CONTROLLER_EPOCH, self._epoch_version)


_REPLACED = "Another broker is the controller now."


def _refuser(
    resources: Sequence[ConfigAlteration] | Sequence[ConfigReplacement],
) -> Callable[[ErrorCode, str], list[AlteredConfig]]:
    def refused(error: ErrorCode, message: str) -> list[AlteredConfig]:
        return [not_altered(each, KafkaError(error, message)) for each in resources]

    return refused
