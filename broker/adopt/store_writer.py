"""A metadata store for a data directory, written by the store's own code.

Everything in it is decided by the plan: the cluster's id, topics with their ids, leader epochs and
configs, dynamic broker settings, the next producer id. The broker that starts on it is elected
controller and finds what it would have written itself. Features are finalised by that start, at the
levels of this version: those of Kafka's that we have mean the same, and nothing of a log says more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from broker.adopt.plan import Plan, TopicPlan
from broker.metadata import znodes
from broker.metadata.changes import (
    BrokerConfigsChanged,
    Change,
    ProducerIdsAllocated,
    TopicCreated,
)
from broker.metadata.files import DiskDirectory
from broker.metadata.image import ClusterImage, PartitionImage, TopicImage
from broker.metadata.local_store import LocalStore
from broker.metadata.store import Create, Done, Operation, Outcome, run_at_once
from broker.metadata.writes import operations_for
from broker.model.ids import BrokerId

_TOPICS_A_SUBMISSION: Final = 100


class StoreFailed(Exception):
    """The store took nothing: a full disk, or a fault of ours."""


class _Turns:
    """Callbacks in order: there is no loop yet."""

    def __init__(self) -> None:
        self._posted: deque[Callable[[], None]] = deque()

    def post(self, callback: Callable[[], None]) -> None:
        self._posted.append(callback)

    def run(self) -> None:
        while self._posted:
            self._posted.popleft()()


def write_store(directory: Path, plan: Plan) -> None:
    """Into an empty or missing ``directory``. Durable when it returns."""
    turns = _Turns()
    store = LocalStore(DiskDirectory(str(directory)), run_at_once(turns.post), turns.post)
    store.open()
    try:
        for operations in _submissions(plan):
            _submit(store, turns, operations)
    finally:
        turns.run()
        store.close()


def _submit(store: LocalStore, turns: _Turns, operations: Sequence[Operation]) -> None:
    outcomes: list[Outcome] = []
    store.submit(operations, outcomes.append)
    turns.run()
    if not outcomes or not isinstance(outcomes[0], Done):
        raise StoreFailed(f"the metadata could not be stored: {outcomes}")


def _submissions(plan: Plan) -> list[list[Operation]]:
    first: list[Operation] = [Create(path) for path in znodes.SKELETON]
    first.append(Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(plan.cluster_id)))
    node_id = BrokerId(plan.node_id)
    changes: list[Change] = []
    if plan.default_broker_configs:
        changes.append(BrokerConfigsChanged(None, plan.default_broker_configs))
    if plan.broker_configs:
        changes.append(BrokerConfigsChanged(node_id, plan.broker_configs))
    if plan.next_producer_id:
        changes.append(ProducerIdsAllocated(plan.next_producer_id))
    # Nothing of it touches another: each is written as into an empty cluster.
    image = ClusterImage(cluster_id=plan.cluster_id)
    submissions = [first, list(operations_for(image, changes, node_id))]
    topics = iter(plan.topics)
    while portion := list(islice(topics, _TOPICS_A_SUBMISSION)):
        created = [TopicCreated(_image_of(topic, node_id)) for topic in portion]
        submissions.append(list(operations_for(image, created, node_id)))
    return [operations for operations in submissions if operations]


def _image_of(topic: TopicPlan, node_id: BrokerId) -> TopicImage:
    return TopicImage(
        topic.name,
        znodes.parse_topic_id(topic.topic_id),
        tuple(
            PartitionImage(index, node_id, leader_epoch, 0, (node_id,), frozenset((node_id,)))
            for index, leader_epoch in enumerate(topic.leader_epochs)
        ),
        dict(topic.configs),
    )
