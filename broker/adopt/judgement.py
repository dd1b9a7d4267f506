"""What the directories and the metadata mean: a plan, or a refusal. Changes nothing.

One broker becomes the whole cluster. So every partition must be here, in a replica that was in
sync; what is here beyond that (leftovers of deleted topics, half-made copies) is left where it is
and named. A topic's retention may stand in its overrides, in the cluster's dynamic settings or in
``server.properties``; where the last one is not given and the others say nothing, retention was not
found: such a topic is *held*, it gets overrides of -1, and it is named.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from broker.adopt.kafka_metadata import KafkaMetadata, KafkaPartition, KafkaTopic
from broker.adopt.metadata_log import MetadataHistory
from broker.adopt.partition_files import TakenFiles, choose_files
from broker.adopt.plan import Mode, PartitionPlan, Plan, Report, TopicPlan
from broker.adopt.refusal import Refusal
from broker.adopt.settings import Settings, with_node_id
from broker.adopt.source import (
    CHECKPOINTS,
    MOVED_META_PROPERTIES,
    PartitionDirectory,
    SourceDirectory,
)
from broker.config.broker_config import BrokerConfig, resolve_broker_config
from broker.config.definition import ConfigError
from broker.config.topic_config import resolve_topic_config
from broker.model.ids import TopicPartition
from broker.records.header import MAGIC
from broker.storage.checkpoints import encode_topic_id, parse_epochs
from broker.storage.layout import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
)

#: Ids below it are reserved: "no directory", "lost", "migrating".
_FIRST_DIRECTORY_ID: Final = 100
#: Where nobody knows which producer ids were given out, ours begin beyond any that could be.
UNKNOWN_PRODUCER_IDS: Final = 1 << 40
_PRODUCER_ID_BLOCK: Final = 1000
_NAMED_AT_MOST: Final = 5
#: Overrides of a topic on which nothing may be deleted.
_HOLD: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


class Circumstances(NamedTuple):
    """What was found and asked for. ``settings`` is None without a ``server.properties``."""

    sources: Sequence[SourceDirectory]
    fingerprint: str
    metadata: KafkaMetadata | None
    history: MetadataHistory | None
    settings: Settings | None
    mode: Mode
    is_salvage: bool
    #: Above every producer id in the partitions' snapshots; asked for without metadata only.
    next_seen_producer_id: int


@dataclass(slots=True)
class _Draft:
    """What comes together while the topics are looked at."""

    topics: list[TopicPlan] = field(default_factory=list)
    taken: dict[TopicPartition, PartitionDirectory] = field(default_factory=dict)
    topic_ids: dict[TopicPartition, str] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    unlisted: list[str] = field(default_factory=list)
    leftovers: list[tuple[str, str]] = field(default_factory=list)
    #: Partitions of the metadata without a directory.
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge(given: Circumstances) -> Plan:
    """Raises ``Refusal``."""
    return _Judge(given).judge()


class _Judge:
    def __init__(self, given: Circumstances) -> None:
        self._given = given
        self._metadata = given.metadata or KafkaMetadata()
        self._home = _home_of(given.sources, self._metadata)
        self._node_id = self._home.meta.node_id
        self._directory_ids = {source.meta.directory_id for source in given.sources}
        self._found = _by_partition(given.sources)
        self._draft = _Draft()
        self._config = self._resolve_broker_config()

    def judge(self) -> Plan:
        draft = self._draft
        self._check_magic()
        for topic in sorted(self._metadata.topics.values(), key=lambda topic: topic.name):
            self._take_topic(topic)
        self._look_at_the_rest()
        for source in self._given.sources:
            draft.leftovers += [(f"{source.path}/{name}", why) for name, why in source.leftovers]
        self._note_cluster()
        return self._plan()

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
                f"{name} is not on broker {node_id}: its replicas are on {_list(partition.replicas)}",
                "One broker must hold every partition: reassign them to it while Kafka runs.",
            )
        in_sync = {*partition.isr, *partition.eligible}
        if len(partition.replicas) > 1 and node_id not in in_sync:
            raise Refusal(
                f"{name}: broker {node_id} was not in sync, it may lack records"
                f" (in sync: {_list(partition.isr)})",
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
        return max(leader_epoch, _newest_epoch(directory), 0)

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
        if "retention.ms" in configs or self._given.settings is not None:
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
        if not self._given.is_salvage:
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
        epochs = tuple(_newest_epoch(directories.get(index)) for index in range(count))
        draft.topics.append(
            TopicPlan(topic, topic_id, epochs, {"cleanup.policy": "delete", **_HOLD})
        )
        draft.unlisted.append(topic)
        if len(directories) < count:
            draft.notes.append(f"{topic}: {count - len(directories)} partitions have no directory")

    # All of it -------------------------------------------------------------------------------

    def _check_magic(self) -> None:
        for directory in self._found.values():
            magic = directory.oldest_magic()
            if magic is not None and magic < MAGIC:
                raise Refusal(
                    f"{directory.path} holds records in format {magic}, from before Kafka 0.11",
                    "Let Kafka rewrite or expire them first.",
                )

    def _resolve_broker_config(self) -> BrokerConfig:
        settings = self._given.settings
        dynamic = self._metadata.broker_configs
        return resolve_broker_config(
            with_node_id(settings.taken if settings is not None else {}, self._node_id),
            dynamic.get("", {}),
            dynamic.get(str(self._node_id), {}),
        )

    def _note_cluster(self) -> None:
        notes, history = self._draft.notes, self._given.history
        others = sorted(id_ for id_ in self._metadata.brokers if id_ != self._node_id)
        if self._draft.missing:
            notes.append(f"without a directory, so they begin empty: {_named(self._draft.missing)}")
        if others:
            notes.append(f"brokers {_list(others)} of the cluster are left behind")
        if history is not None and history.voter_count > 1:
            notes.append(
                f"the metadata was read from one of {history.voter_count} controllers; its very "
                "end may not have been agreed on"
            )
        if history is not None and history.torn_bytes:
            notes.append(f"{history.torn_bytes} bytes of an interrupted write end the metadata log")
        for error in self._config.ignored:
            notes.append(f"a stored broker setting is not used: {error.reason}")
        wanted = [
            t.name for t in self._draft.topics if t.configs.get("min.insync.replicas", "1") != "1"
        ]
        if wanted or self._config.min_insync_replicas > 1:
            notes.append(
                "min.insync.replicas is above 1, which this single node cannot meet with acks=all"
                + (f" ({_named(wanted)})" if wanted else "")
            )

    def _plan(self) -> Plan:
        given, draft = self._given, self._draft
        holders = [source for source in given.sources if source.partitions] or [self._home]
        is_clean = all(source.is_clean for source in holders)
        settings = given.settings or Settings({}, ())
        partitions = tuple(
            self._partition_plan(name, directory, is_clean)
            for name, directory in sorted(draft.taken.items())
        )
        dynamic = self._metadata.broker_configs
        clean_mark = None
        if is_clean:
            clean_mark = (holders[0].path / CLEAN_SHUTDOWN_FILE).read_text(encoding="utf-8")
        return Plan(
            fingerprint=given.fingerprint,
            mode=given.mode,
            sources=tuple(str(source.path) for source in given.sources),
            cluster_id=self._home.meta.cluster_id,
            node_id=self._node_id,
            meta_properties=_meta_text(self._home.path),
            settings=with_node_id(settings.taken, self._node_id),
            topics=tuple(draft.topics),
            default_broker_configs=dynamic.get("", {}),
            broker_configs=dynamic.get(str(self._node_id), {}),
            next_producer_id=self._next_producer_id(),
            features=self._metadata.features,
            partitions=partitions,
            offsets=self._offsets(),
            clean_mark=clean_mark,
            report=self._report(partitions, is_clean, settings),
        )

    def _partition_plan(
        self, name: TopicPartition, directory: PartitionDirectory, is_clean: bool
    ) -> PartitionPlan:
        source = self._source_of(directory)
        recovery_point = source.offsets[RECOVERY_POINT_CHECKPOINT].get(name, 0)
        files: TakenFiles = choose_files(
            directory, is_clean=is_clean, recovery_point=recovery_point
        )
        copy, copied_bytes = files.copy, files.copied_bytes
        link = files.link
        if self._given.mode is Mode.COPY:
            copy, link, copied_bytes = {**link, **copy}, {}, files.total_bytes
        elif self._given.mode is Mode.MOVE:
            copied_bytes = 0
        return PartitionPlan(
            str(source.path),
            directory.path.name,
            link,
            copy,
            self._draft.topic_ids.get(name),
            copied_bytes,
            files.total_bytes,
        )

    def _source_of(self, directory: PartitionDirectory) -> SourceDirectory:
        return next(s for s in self._given.sources if s.path == directory.path.parent)

    def _offsets(self) -> dict[str, tuple[tuple[str, int, int], ...]]:
        merged: dict[str, tuple[tuple[str, int, int], ...]] = {}
        for name in CHECKPOINTS:
            merged[name] = tuple(
                (partition.topic, partition.partition, offset)
                for partition, directory in sorted(self._draft.taken.items())
                if (offset := self._source_of(directory).offsets[name].get(partition)) is not None
            )
        return merged

    def _next_producer_id(self) -> int:
        if self._given.metadata is not None:
            return self._metadata.next_producer_id
        above_seen = self._given.next_seen_producer_id + _PRODUCER_ID_BLOCK
        return max(UNKNOWN_PRODUCER_IDS, above_seen)

    def _report(
        self, partitions: Sequence[PartitionPlan], is_clean: bool, settings: Settings
    ) -> Report:
        draft, given = self._draft, self._given
        return Report(
            sources=tuple(str(source.path) for source in given.sources),
            mode=given.mode.value,
            cluster_id=self._home.meta.cluster_id,
            node_id=self._node_id,
            was_clean=is_clean,
            topic_count=len(draft.topics),
            partition_count=sum(len(topic.leader_epochs) for topic in draft.topics),
            total_bytes=sum(partition.total_bytes for partition in partitions),
            next_producer_id=self._next_producer_id(),
            metadata_end_offset=given.history.end_offset if given.history is not None else -1,
            features=dict(sorted(self._metadata.features.items())),
            held=tuple(draft.held),
            unlisted=tuple(draft.unlisted),
            leftovers=tuple(draft.leftovers),
            not_taken={kind: len(keys) for kind, keys in sorted(self._metadata.others.items())},
            settings_left=settings.left,
            notes=tuple(draft.notes),
        )


def _home_of(sources: Sequence[SourceDirectory], metadata: KafkaMetadata) -> SourceDirectory:
    """The directory whose node is adopted: the one with partitions, else the broker's."""
    clusters = Counter(source.meta.cluster_id for source in sources)
    if len(clusters) > 1:
        raise Refusal(f"the directories belong to different clusters: {_named(list(clusters))}")
    holders = [source for source in sources if source.partitions]
    nodes = sorted({source.meta.node_id for source in holders})
    if len(nodes) > 1:
        raise Refusal(
            f"the directories hold partitions of different brokers ({_list(nodes)})",
            "Adopt one broker, the one that holds every partition.",
        )
    brokers = [source for source in sources if source.meta.node_id in metadata.brokers]
    return (holders or brokers or list(sources))[0]


def _by_partition(
    sources: Iterable[SourceDirectory],
) -> dict[TopicPartition, PartitionDirectory]:
    found: dict[TopicPartition, PartitionDirectory] = {}
    for source in sources:
        for directory in source.partitions:
            other = found.setdefault(directory.partition, directory)
            if other is not directory:
                raise Refusal(
                    f"{directory.partition} is there twice: {other.path} and {directory.path}",
                    "Take the one away that Kafka did not use.",
                )
    return found


def _newest_epoch(directory: PartitionDirectory | None) -> int:
    if directory is None or LEADER_EPOCH_CHECKPOINT not in directory.files:
        return 0
    entries = parse_epochs((directory.path / LEADER_EPOCH_CHECKPOINT).read_bytes())
    return max((epoch for epoch, _ in entries or ()), default=0)


def _meta_text(path: Path) -> str:
    for name in (META_PROPERTIES, MOVED_META_PROPERTIES):
        if (path / name).exists():
            return (path / name).read_text(encoding="utf-8")
    raise Refusal(f"{path / META_PROPERTIES} has gone")


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
