"""What the directories and the metadata mean: a plan, or a refusal. Changes nothing.

One broker becomes the whole cluster. So every partition must be here, in a replica that was in
sync; what is here beyond that (leftovers of deleted topics, half-made copies) is left where it is
and named. A topic's retention may stand in its overrides, in the cluster's dynamic settings or in
``server.properties``; where the last one is not given and the others say nothing, retention was not
found: such a topic is *held*, it gets overrides of -1, and it is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from broker.adopt.kafka_metadata import KafkaMetadata
from broker.adopt.metadata_log import MetadataHistory
from broker.adopt.partition_files import TakenFiles, choose_files
from broker.adopt.plan import Mode, PartitionPlan, Plan, Report
from broker.adopt.refusal import Refusal
from broker.adopt.settings import Settings, with_node_id
from broker.adopt.source import CHECKPOINTS, PartitionDirectory, SourceDirectory, meta_file
from broker.adopt.topic_judgement import TopicJudge, listed, named
from broker.config.broker_config import BrokerConfig, resolve_broker_config
from broker.model.ids import TopicPartition
from broker.records.header import MAGIC
from broker.storage.layout import (
    CLEAN_SHUTDOWN_FILE,
    RECOVERY_POINT_CHECKPOINT,
)

#: Where nobody knows which producer ids were given out, ours begin beyond any that could be.
UNKNOWN_PRODUCER_IDS: Final = 1 << 40
_PRODUCER_ID_BLOCK: Final = 1000


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


def judge(given: Circumstances) -> Plan:
    """Raises ``Refusal``."""
    return _Judge(given).judge()


class _Judge:
    def __init__(self, given: Circumstances) -> None:
        self._given = given
        self._metadata = given.metadata or KafkaMetadata()
        self._home = _home_of(given.sources, self._metadata)
        self._node_id = self._home.meta.node_id
        self._config = self._resolve_broker_config()
        found = _by_partition(given.sources)
        _check_magic(found.values())
        self._draft = TopicJudge(
            self._metadata,
            self._node_id,
            {source.meta.directory_id for source in given.sources},
            found,
            self._config,
            has_settings=given.settings is not None,
            is_salvage=given.is_salvage,
        ).judge()

    def judge(self) -> Plan:
        for source in self._given.sources:
            self._draft.leftovers += [(f"{source.path}/{n}", why) for n, why in source.leftovers]
        self._note_cluster()
        return self._plan()

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
            notes.append(f"without a directory, so they begin empty: {named(self._draft.missing)}")
        if others:
            notes.append(f"brokers {listed(others)} of the cluster are left behind")
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
                + (f" ({named(wanted)})" if wanted else "")
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
            meta_properties=meta_file(self._home.path).read_text(encoding="utf-8"),
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
        raise Refusal(f"the directories belong to different clusters: {named(list(clusters))}")
    holders = [source for source in sources if source.partitions]
    nodes = sorted({source.meta.node_id for source in holders})
    if len(nodes) > 1:
        raise Refusal(
            f"the directories hold partitions of different brokers ({listed(nodes)})",
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


def _check_magic(directories: Iterable[PartitionDirectory]) -> None:
    for directory in directories:
        magic = directory.oldest_magic()
        if magic is not None and magic < MAGIC:
            raise Refusal(
                f"{directory.path} holds records in format {magic}, from before Kafka 0.11",
                "Let Kafka rewrite or expire them first.",
            )
