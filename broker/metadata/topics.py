"""Verdicts on topic requests, in the words and the order of Apache Kafka 4.4.

Pure: image and request in; the topic (or partitions) to be out, or ``KafkaError`` with what the
client is told. The controller turns the rest into changes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from broker.config.broker_config import BrokerConfig
from broker.config.topic_config import validate_topic_overrides
from broker.metadata.image import NO_CONFIGS, ClusterImage, PartitionImage, TopicImage
from broker.metadata.placement import Candidate, check_replicas, place
from broker.metadata.requests import BROKER_DEFAULT, MorePartitions, NewTopic, TopicReference
from broker.metadata.topic_names import CLUSTER_METADATA_TOPIC, CollisionIndex, why_illegal
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.ids import ZERO_TOPIC_ID, BrokerId, TopicId

Assignment = Sequence[tuple[BrokerId, ...]]

#: Partitions of a topic beyond are not looked for among those of others: few topics have them.
SHARED_PARTITIONS = 1024


def duplicated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def asked_partition_count(topic: NewTopic, broker_config: BrokerConfig) -> int:
    """How many partitions the topic would have, legal or not."""
    if topic.assignments:
        return len(topic.assignments)
    if topic.partition_count == BROKER_DEFAULT:
        return broker_config.num_partitions
    return max(0, topic.partition_count)


def added_partition_count(image: ClusterImage, request: MorePartitions) -> int:
    """How many partitions would be added, legal or not."""
    topic = image.topics.get(request.name)
    return 0 if topic is None else max(0, request.partition_count - len(topic.partitions))


def judge_new_topic(
    image: ClusterImage,
    topic: NewTopic,
    existing_names: CollisionIndex,
    broker_config: BrokerConfig,
    new_topic_id: Callable[[], TopicId],
    dice: random.Random,
) -> TopicImage:
    """The topic that may be created."""
    if topic.name == CLUSTER_METADATA_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited.",
        )
    _check_name(image, topic.name, existing_names)
    configs = _check_configs(topic.configs, broker_config)
    if topic.assignments:
        assignment = _manual_assignment(image, topic)
    else:
        assignment = _automatic_assignment(image, topic, broker_config, dice)
    partitions = new_partitions(assignment, 0, image)
    return TopicImage(topic.name, new_topic_id(), partitions, configs)


def new_partitions(
    assignment: Assignment, first_index: int, image: ClusterImage
) -> tuple[PartitionImage, ...]:
    """Partitions as they begin: led by the first replica that is there, all others in the ISR."""
    in_sync: dict[tuple[BrokerId, ...], frozenset[BrokerId]] = {}
    made = []
    for index, replicas in enumerate(assignment, first_index):
        isr = in_sync.get(replicas)
        if isr is None:
            isr = in_sync[replicas] = frozenset(b for b in replicas if b in image.brokers)
        make = _new_partition if index < SHARED_PARTITIONS else _new_partition.__wrapped__
        made.append(make(index, replicas, isr))
    return tuple(made)


@lru_cache(maxsize=4 * SHARED_PARTITIONS)
def _new_partition(
    index: int, replicas: tuple[BrokerId, ...], isr: frozenset[BrokerId]
) -> PartitionImage:
    """Cached: equal partitions of different topics are one object."""
    leader_id = next(broker_id for broker_id in replicas if broker_id in isr)
    return PartitionImage(index, leader_id, 0, 0, replicas, isr)


def _check_name(image: ClusterImage, name: str, existing_names: CollisionIndex) -> None:
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    colliding = existing_names.colliding(name)
    if colliding is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {colliding}",
        )
    reason = why_illegal(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def _check_configs(
    configs: Sequence[tuple[str, str | None]], broker_config: BrokerConfig
) -> Mapping[str, str]:
    missing = [name for name, value in configs if value is None]
    if missing:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(missing)}",
        )
    given = {name: value for name, value in configs if value is not None}
    if not given:
        return NO_CONFIGS
    validate_topic_overrides(given, broker_config)
    return given


def _manual_assignment(image: ClusterImage, topic: NewTopic) -> Assignment:
    for what, given in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.partition_count),
    ):
        if given != BROKER_DEFAULT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    found: dict[int, tuple[BrokerId, ...]] = {}
    replication_factor: int | None = None
    for index, replicas in topic.assignments:
        if index in found:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        found[index] = check_replicas(replicas, image.brokers, replication_factor)
        replication_factor = len(replicas)
    if set(found) != set(range(len(found))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [found[index] for index in range(len(found))]


def judge_more_partitions(
    image: ClusterImage, request: MorePartitions, dice: random.Random
) -> tuple[PartitionImage, ...]:
    """The partitions that may be added."""
    topic = image.topics.get(request.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = len(topic.partitions)
    if request.partition_count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    added = request.partition_count - current
    if added < 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {current} partition(s); "
            f"{request.partition_count} would not be an increase.",
        )
    replication_factor = len(topic.partitions[0].replicas)
    if request.assignments is None:
        assignment = place_partitions(image, added, replication_factor, current, dice)
        return new_partitions(assignment, current, image)
    if len(request.assignments) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only "
            f"{len(request.assignments)} assignment(s) were specified.",
        )
    assignment = [
        check_replicas(replicas, image.brokers, replication_factor)
        for replicas in request.assignments
    ]
    return new_partitions(assignment, current, image)


def _automatic_assignment(
    image: ClusterImage, topic: NewTopic, broker_config: BrokerConfig, dice: random.Random
) -> Assignment:
    replication_factor, partition_count = topic.replication_factor, topic.partition_count
    if replication_factor == 0 or replication_factor < BROKER_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partition_count == 0 or partition_count < BROKER_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    if replication_factor == BROKER_DEFAULT:
        replication_factor = broker_config.default_replication_factor
    if partition_count == BROKER_DEFAULT:
        partition_count = broker_config.num_partitions
    return place_partitions(image, partition_count, replication_factor, 0, dice)


def place_partitions(
    image: ClusterImage,
    partition_count: int,
    replication_factor: int,
    start_index: int,
    dice: random.Random,
) -> Assignment:
    """Replicas for new partitions on the brokers that are there."""
    broker_count = len(image.brokers)
    if replication_factor > broker_count:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target "
            f"replication factor of {replication_factor} cannot be reached because only "
            f"{broker_count} broker(s) are registered or some brokers have all their log "
            "directories cordoned.",
        )
    candidates = [Candidate(broker.broker_id, broker.rack) for broker in image.brokers.values()]
    return place(candidates, partition_count, replication_factor, start_index, dice)


def find_topic(image: ClusterImage, reference: TopicReference) -> TopicImage:
    """The topic that is meant, by name or by id."""
    if reference.name is None:
        if reference.topic_id == ZERO_TOPIC_ID:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        found = image.topics_by_id.get(reference.topic_id)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        return found
    if reference.topic_id != ZERO_TOPIC_ID:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    found = image.topics.get(reference.name)
    if found is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        )
    return found


def name_once(
    image: ClusterImage, references: Sequence[TopicReference]
) -> Iterator[tuple[TopicReference, KafkaError | None]]:
    """Each topic to delete once; with an error if it was named twice, by name or by id or both."""
    names = Counter(r.name for r in references if r.topic_id == ZERO_TOPIC_ID)
    ids = Counter(r.topic_id for r in references if r.name is None)
    seen: set[TopicReference] = set()
    for reference in references:
        if reference in seen and not _is_contradiction(reference):
            continue
        seen.add(reference)
        name, topic_id = reference.name, reference.topic_id
        if _is_contradiction(reference):
            yield reference, None  # ``find_topic`` says what is wrong
        elif name is None:
            topic = image.topics_by_id.get(topic_id)
            if ids[topic_id] > 1:
                yield reference, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
            elif topic is None or topic.name not in names:
                yield reference, None
        elif names[name] > 1:
            yield reference, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        else:
            topic = image.topics.get(name)
            is_given = topic is not None and topic.topic_id in ids
            problem = KafkaError(ErrorCode.INVALID_REQUEST, _MAPS_TO_ID) if is_given else None
            yield reference, problem


def _is_contradiction(reference: TopicReference) -> bool:
    """Named in both ways, or in none."""
    return (reference.name is None) == (reference.topic_id == ZERO_TOPIC_ID)


_MAPS_TO_ID = "The provided topic name maps to an ID that was already supplied."


def deletion_disabled() -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
