"""The cluster image out of the store's tree: at start, and whenever the controller is in doubt.

Equal partitions are one object: on one broker the first partitions of all topics usually are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from broker.metadata import znodes
from broker.metadata.image import (
    NO_CONFIGS,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from broker.metadata.store import Failed, MetadataStore, Node
from broker.model.ids import NO_BROKER, BrokerId

#: Subtrees that make the image. The controller's epoch comes last: if it is still ours when all else
#: was read, nobody else had been elected, and nobody else can have written any of it.
SUBTREES = (
    znodes.CLUSTER_ID,
    znodes.CONTROLLER,
    znodes.BROKER_IDS,
    znodes.BROKER_EPOCHS,
    znodes.TOPICS,
    znodes.TOPIC_CONFIGS,
    znodes.BROKER_CONFIGS,
    znodes.GROUP_CONFIGS,
    znodes.PRODUCER_IDS,
    znodes.FEATURES,
    znodes.CONTROLLER_EPOCH,
)

Nodes = Mapping[str, list[tuple[str, Node]]]


def image_from_nodes(nodes: Nodes) -> ClusterImage:
    """``nodes``: for each of ``SUBTREES`` what lies in it. Raises ``ValueError`` on damage."""
    topics = _topics(nodes[znodes.TOPICS], _configs(nodes[znodes.TOPIC_CONFIGS]))
    broker_configs = _configs(nodes[znodes.BROKER_CONFIGS])
    epochs = _data(nodes, znodes.BROKER_EPOCHS)
    found = _data(nodes, znodes.FEATURES)
    features, features_epoch = ({}, -1) if found is None else znodes.decode_features(found)
    # In a cluster a registration holds once it was answered: until then its broker may still be
    # in an ISR that it belonged to in an earlier life.
    answered = None if epochs is None else znodes.decode_broker_epochs(epochs)
    brokers = [
        znodes.decode_broker(BrokerId(int(name)), node.creation_id, node.data)
        for name, node in _below(nodes[znodes.BROKER_IDS])
        if answered is None or answered.get(BrokerId(int(name))) == node.creation_id
    ]
    return ClusterImage(
        cluster_id=znodes.decode_cluster_id(_data(nodes, znodes.CLUSTER_ID) or b'{"id":""}'),
        controller_id=_controller_id(_data(nodes, znodes.CONTROLLER)),
        controller_epoch=znodes.decode_controller_epoch(
            _data(nodes, znodes.CONTROLLER_EPOCH) or b"0"
        ),
        topics={topic.name: topic for topic in topics},
        topics_by_id={topic.topic_id: topic for topic in topics},
        brokers={broker.broker_id: broker for broker in brokers},
        default_broker_configs=broker_configs.pop(znodes.DEFAULT_ENTITY, NO_CONFIGS),
        broker_configs={BrokerId(int(name)): value for name, value in broker_configs.items()},
        group_configs={
            znodes.group_of_path(name): value
            for name, value in _configs(nodes[znodes.GROUP_CONFIGS]).items()
        },
        next_producer_id=_next_producer_id(_data(nodes, znodes.PRODUCER_IDS)),
        features=features,
        features_epoch=features_epoch,
    )


def read_image(store: MetadataStore, done: Callable[[ClusterImage | str], None]) -> None:
    """Read all subtrees, one after the other; or say why that is not possible."""
    nodes: dict[str, list[tuple[str, Node]]] = {}
    left = list(SUBTREES)

    def received(found: list[tuple[str, Node]] | Failed) -> None:
        if isinstance(found, Failed):
            done(f"The metadata store cannot be read: {found.why}")
            return
        nodes[left.pop(0)] = found
        if left:
            store.read_subtree(left[0], received)
        else:
            done(_image_or_damage(nodes))

    store.read_subtree(left[0], received)


def _image_or_damage(nodes: Nodes) -> ClusterImage | str:
    try:
        return image_from_nodes(nodes)
    except ValueError as error:
        return f"The metadata store is damaged: {error}"


def _topics(
    nodes: Iterable[tuple[str, Node]], configs: Mapping[str, Mapping[str, str]]
) -> list[TopicImage]:
    assignments: dict[str, znodes.TopicAssignment] = {}
    states: dict[str, dict[int, Node]] = {}
    for name, node in _below(nodes):
        if "/" not in name:
            assignments[name] = znodes.decode_topic(node.data)
            states[name] = {}
        elif name.endswith("/state"):
            topic, _, index, _ = name.split("/")
            states[topic][int(index)] = node
    pool: dict[PartitionImage, PartitionImage] = {}
    return [
        TopicImage(
            name,
            assignment.topic_id,
            tuple(
                _partition(name, index, assignment, states[name], pool)
                for index in range(len(assignment.partitions))
            ),
            configs.get(name, NO_CONFIGS),
        )
        for name, assignment in assignments.items()
    ]


def _partition(
    topic: str,
    index: int,
    assignment: znodes.TopicAssignment,
    states: Mapping[int, Node],
    pool: dict[PartitionImage, PartitionImage],
) -> PartitionImage:
    node = states.get(index)
    if node is None or index not in assignment.partitions:
        raise ValueError(f"{topic}-{index}: no replicas or no state in the metadata store")
    state = znodes.decode_partition_state(node.data)
    partition = PartitionImage(
        index,
        state.leader_id,
        state.leader_epoch,
        node.version,
        tuple(assignment.partitions[index]),
        frozenset(state.isr),
        tuple(assignment.adding.get(index, ())),
        tuple(assignment.removing.get(index, ())),
    )
    return pool.setdefault(partition, partition)


def _configs(nodes: Iterable[tuple[str, Node]]) -> dict[str, Mapping[str, str]]:
    return {name: znodes.decode_configs(node.data) for name, node in _below(nodes)}


def _below(nodes: Iterable[tuple[str, Node]]) -> Iterable[tuple[str, Node]]:
    """Without the subtree's root; names relative to it."""
    root = ""
    for path, node in nodes:
        if root:
            yield path[len(root) :], node
        else:
            root = f"{path}/"


def _data(nodes: Nodes, path: str) -> bytes | None:
    found = nodes[path]
    return found[0][1].data if found else None


def _controller_id(data: bytes | None) -> BrokerId:
    return NO_BROKER if data is None else znodes.decode_controller(data)


def _next_producer_id(data: bytes | None) -> int:
    return 0 if data is None else znodes.decode_producer_ids(data).last + 1
