"""What each topic means: which directories are its partitions, in which epoch, under which settings.

Beside the topics of the metadata there are directories that no topic claims: leftovers, which are
named, or topics of their own where salvage was asked for. Pure but for small files that it reads.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.adopt.kafka_metadata import KafkaMetadata, KafkaPartition, KafkaTopic
from broker.adopt.plan import TopicPlan
from broker.adopt.refusal import Refusal
from broker.adopt.source import PartitionDirectory
from broker.config.broker_config import BrokerConfig
from broker.config.definition import ConfigError
from broker.config.topic_config import resolve_topic_config
from broker.model.ids import TopicId, TopicPartition
from broker.storage.checkpoints import encode_topic_id, parse_epochs
from broker.storage.layout import LEADER_EPOCH_CHECKPOINT

#: Ids below it are reserved: "no directory", "lost", "migrating".
_FIRST_DIRECTORY_ID: Final = 100
_NAMED_AT_MOST: Final = 5
#: Overrides of a topic on which nothing may be deleted.
_HOLD: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


@dataclass(slots=True)
class Draft:
    """What comes together while the topics are looked at. ``topic_ids``: of partitions whose
    directory does not name its topic yet."""

    topics: list[TopicPlan] = field(default_factory=list)
    taken: dict[TopicPartition, PartitionDirectory] = field(default_factory=dict)
    topic_ids: dict[TopicPartition, str] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    leftovers: list[tuple[str, str]] = field(default_factory=list)
    #: Partitions of the metadata without a directory.
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class TopicJudge:
    """Looks at one topic after the other, then at what is left over."""

    def __init__(
        self,
        metadata: KafkaMetadata,
        node_id: int,
        directory_ids: set[TopicId],
        found: Mapping[TopicPartition, PartitionDirectory],
        config: BrokerConfig,
        *,
        has_settings: bool,
        is_salvage: bool,
    ) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._directory_ids = directory_ids
        self._found = found
        self._config = config
        self._has_settings = has_settings
        self._is_salvage = is_salvage
        self._draft = Draft()

    def judge(self) -> Draft:
        """Raises ``Refusal``."""
        for topic in sorted(self._metadata.topics.values(), key=lambda topic: topic.name):
            self._take_topic(topic)
        self._look_at_the_rest()
        return self._draft

    # Topics of the metadata ------------------------------------------------------------------

    def _take_topic(self, topic: KafkaTopic) -> None:
        if sorted(topic.partitions) != list(range(len(topic.partitions))):
            raise Refusal(f"the metadata of topic {topic.name} lacks a partition")
        directories = []
        for index, partition in sorted(topic.partitions.items()):
            name = TopicPartition(topic.name, index)
            self._check_replica(name, partition)
            directories.append(self._directory_of(name, topic, partition))
        lone = [i for i, p in topic.partitions.items() if len(p.replicas) > 1]
        if lone:
            self._draft.notes.append(
                f"{topic.name}: {len(lone)} partitions had replicas on other brokers too; "
                "from here on this node is the only one"
            )
        self._draft.topics.append(
            TopicPlan(
                topic.name,
                encode_topic_id(topic.topic_id),
                tuple(
                    self._leader_epoch(topic.partitions[index], directory)
                    for index, directory in enumerate(directories)
                ),
                self._configs(topic.name),
            )
        )

    def _check_replica(self, name: TopicPartition, partition: KafkaPartition) -> None:
        node_id = self._node_id
        if node_id not in partition.replicas:
            raise Refusal(
                f"{name} is not on broker {node_id}: its replicas are on {listed(partition.replicas)}",
                "One broker must hold every partition: reassign them to it while Kafka runs.",
            )
        in_sync = {*partition.isr, *partition.eligible}
        if len(partition.replicas) > 1 and node_id not in in_sync:
            raise Refusal(
                f"{name}: broker {node_id} was not in sync, it may lack records"
                f" (in sync: {listed(partition.isr)})",
                "Start Kafka, wait until all replicas are in sync, and stop it again.",
            )

    def _directory_of(
        self, name: TopicPartition, topic: KafkaTopic, partition: KafkaPartition
    ) -> PartitionDirectory | None:
        found = self._found.get(name)
        if found is not None and found.topic_id in (None, topic.topic_id):
            self._draft.taken[name] = found
            if found.topic_id is None:
                self._draft.topic_ids[name] = encode_topic_id(topic.topic_id)
            return found
        directory_id = dict(zip(partition.replicas, partition.directories, strict=False)).get(
            self._node_id
        )
        if (
            directory_id is not None
            and directory_id.int >= _FIRST_DIRECTORY_ID
            and directory_id not in self._directory_ids
        ):
            raise Refusal(
                f"{name} lies in a log directory that was not named"
                f" (directory.id {encode_topic_id(directory_id)})",
                "Name all directories of log.dirs.",
            )
        self._draft.missing.append(str(name))
        return None

    def _leader_epoch(self, partition: KafkaPartition, directory: PartitionDirectory | None) -> int:
        """As recorded, or the next one where this node is to be elected anew; never below what
        the log has seen."""
        leader_epoch = partition.leader_epoch
        if partition.leader_id != self._node_id:
            leader_epoch += 1
        return max(leader_epoch, newest_epoch(directory), 0)

    def _configs(self, topic: str) -> dict[str, str]:
        configs = dict(self._metadata.topic_configs.get(topic, {}))
        for name, value in list(configs.items()):
            try:
                resolve_topic_config({name: value}, self._config)
            except ConfigError as error:
                del configs[name]
                self._draft.notes.append(f"{topic}: {error.reason}; this setting is left out")
        if configs.get("remote.storage.enable") == "true":
            self._draft.notes.append(
                f"{topic} was tiered: what lies in the remote store only cannot be read here"
            )
        if self._deletes(configs) and not self._has_retention(configs):
            configs = {**_HOLD, **configs}
            self._draft.held.append(topic)
        return configs

    def _deletes(self, configs: Mapping[str, str]) -> bool:
        return "delete" in configs.get("cleanup.policy", "delete").split(",")

    def _has_retention(self, configs: Mapping[str, str]) -> bool:
        """Whether anything says how long the topic's records live."""
        if "retention.ms" in configs or self._has_settings:
            return True
        dynamic = self._metadata.broker_configs
        resources = ("", str(self._node_id))
        return any("log.retention.ms" in dynamic.get(resource, {}) for resource in resources)

    # What the metadata does not know ---------------------------------------------------------

    def _look_at_the_rest(self) -> None:
        """Directories that no topic claimed: leftovers, or topics of their own when asked for."""
        rest: dict[str, dict[int, PartitionDirectory]] = {}
        for name, directory in self._found.items():
            if name not in self._draft.taken:
                rest.setdefault(name.topic, {})[name.partition] = directory
        known = {topic.name for topic in self._draft.topics}
        for topic, directories in sorted(rest.items()):
            why = self._why_left(topic, directories, known)
            if why is None:
                self._take_unlisted(topic, directories)
            else:
                self._draft.leftovers += [(str(d.path), why) for d in directories.values()]

    def _why_left(
        self, topic: str, directories: Mapping[int, PartitionDirectory], known: set[str]
    ) -> str | None:
        if not self._is_salvage:
            return "its topic is not in the metadata (--salvage would take it)"
        if topic in known:
            return "another topic has its name now"
        if len({d.topic_id for d in directories.values() if d.topic_id is not None}) > 1:
            return "its partitions are of different topics"
        return None

    def _take_unlisted(self, topic: str, directories: Mapping[int, PartitionDirectory]) -> None:
        draft = self._draft
        ids = [d.topic_id for d in directories.values() if d.topic_id is not None]
        topic_id = encode_topic_id(ids[0] if ids else uuid.uuid4())
        count = max(directories) + 1
        for index, directory in directories.items():
            name = TopicPartition(topic, index)
            draft.taken[name] = directory
            if directory.topic_id is None:
                draft.topic_ids[name] = topic_id
        epochs = tuple(newest_epoch(directories.get(index)) for index in range(count))
        draft.topics.append(
            TopicPlan(topic, topic_id, epochs, {"cleanup.policy": "delete", **_HOLD})
        )
        draft.unlisted.append(topic)
        if len(directories) < count:
            draft.notes.append(f"{topic}: {count - len(directories)} partitions have no directory")


def newest_epoch(directory: PartitionDirectory | None) -> int:
    if directory is None or LEADER_EPOCH_CHECKPOINT not in directory.files:
        return 0
    entries = parse_epochs((directory.path / LEADER_EPOCH_CHECKPOINT).read_bytes())
    return max((epoch for epoch, _ in entries or ()), default=0)


def listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def named(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
