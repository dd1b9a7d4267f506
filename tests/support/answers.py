"""Everything that a broker tells about its topics, so that two brokers can be compared.

`observe(address)` asks over the wire, partition by partition: what a consumer of either isolation
level gets, answer by answer; offsets by timestamp; leader epochs; producers; sizes; configs.

A start raises the current leader epoch, in Kafka as here. So what is compared of epochs is what
they say about records: where each ended, and which one wrote an offset below the log end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support import record_batches, requests
from tests.support.record_batches import Record
from tests.support.wire import Struct, Wire

SPECIAL_TIMESTAMPS = (
    requests.LATEST,
    requests.EARLIEST,
    requests.MAX_TIMESTAMP,
    requests.EARLIEST_LOCAL,
    requests.LATEST_TIERED,
)
MOST_TIMESTAMPS = 40
Cell = Any


@dataclass
class PartitionAnswers:
    """`fetches[isolation level]`: (offset, records, aborted, high watermark, last stable offset,
    log start offset) of each fetch on the way from the log start to the end. `offsets`: (timestamp,
    isolation level) to (error, timestamp, offset, leader epoch)."""

    fetches: list[list[tuple[Cell, ...]]] = field(default_factory=list)
    offsets: dict[tuple[int, int], tuple[Cell, ...]] = field(default_factory=dict)
    epoch_ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    producers: list[tuple[Cell, ...]] = field(default_factory=list)
    size: int = -1

    @property
    def end_offset(self) -> int:
        """High watermark of the last fetch."""
        end: int = self.fetches[0][-1][3]
        return end

    def records(self, isolation_level: int) -> list[Record]:
        """What a consumer hands to its application."""
        found: list[Record] = []
        for offset, data, aborted, *_ in self.fetches[isolation_level]:
            found += _visible(data, aborted, offset)
        return found


@dataclass
class TopicAnswers:
    topic_id: str
    configs: dict[str, tuple[Cell, ...]]
    partitions: list[PartitionAnswers]
    leader_epochs: list[int]


def observe(address: tuple[str, int], names: Iterable[str]) -> dict[str, TopicAnswers]:
    with Wire(address, timeout=60) as wire:
        sizes = _sizes(wire)
        return {name: _observe_topic(wire, name, sizes) for name in sorted(names)}


def topic_names(address: tuple[str, int]) -> list[str]:
    with Wire(address) as wire:
        answer = wire.request("metadata", 12, topics=None, allow_auto_topic_creation=False)
        return sorted(topic.name for topic in answer.topics)


def differences(before: TopicAnswers, after: TopicAnswers, *ignored: str) -> list[str]:
    """What differs, in words short enough to read. `ignored`: "topic_id", "configs", "size"."""
    found = []
    if "topic_id" not in ignored and before.topic_id != after.topic_id:
        found.append(f"topic id {before.topic_id} != {after.topic_id}")
    for name in sorted(before.configs.keys() | after.configs.keys()):
        if "configs" not in ignored and before.configs.get(name) != after.configs.get(name):
            found.append(f"{name}: {before.configs.get(name)} != {after.configs.get(name)}")
    if len(before.partitions) != len(after.partitions):
        return [*found, f"{len(before.partitions)} != {len(after.partitions)} partitions"]
    for index, (one, other) in enumerate(zip(before.partitions, after.partitions, strict=True)):
        more = partition_differences(one, other, before.leader_epochs[index], *ignored)
        found += [f"partition {index}: {text}" for text in more]
    return found


def partition_differences(
    before: PartitionAnswers, after: PartitionAnswers, leader_epoch: int, *ignored: str
) -> list[str]:
    found = []
    for key in before.offsets.keys() | after.offsets.keys():
        one, other = before.offsets.get(key), after.offsets.get(key)
        if one != other:
            found.append(f"offsets {key}: {one} != {other}")
    for key in range(leader_epoch + 1):
        ends = before.epoch_ends.get(key), after.epoch_ends.get(key)
        if ends[0] != ends[1]:
            found.append(f"end of epoch {key}: {ends}")
    if before.producers != after.producers:
        found.append(f"producers: {before.producers} != {after.producers}")
    if "size" not in ignored and before.size != after.size:
        found.append(f"size: {before.size} != {after.size}")
    for level, (ones, others) in enumerate(zip(before.fetches, after.fetches, strict=True)):
        if [_short(one) for one in ones] != [_short(other) for other in others]:
            found.append(f"fetches at level {level}: {_first_pair(ones, others)}")
        if b"".join(one[1] for one in ones) != b"".join(other[1] for other in others):
            found.append(f"bytes at level {level} differ")
    return found


def _short(fetch: tuple[Cell, ...]) -> tuple[Cell, ...]:
    return (fetch[0], len(fetch[1]), *fetch[2:])


def _first_pair(ones: Sequence[tuple[Cell, ...]], others: Sequence[tuple[Cell, ...]]) -> str:
    for one, other in zip(ones, others, strict=False):
        if _short(one) != _short(other):
            return f"{_short(one)} != {_short(other)}"
    return f"{len(ones)} != {len(others)} of them"


# ------------------------------------------------------------------------------------- asking


def _observe_topic(wire: Wire, name: str, sizes: dict[tuple[str, int], int]) -> TopicAnswers:
    topic = requests.describe_topic(wire, name)
    assert topic.error_code == 0, topic
    count = len(topic.partitions)
    by_index = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    assert all(p.error_code == 0 and p.leader_id == p.replica_nodes[0] for p in by_index), topic
    partitions = []
    for index in range(count):
        found = PartitionAnswers(size=sizes[name, index])
        for level in (0, 1):
            found.fetches.append(_fetches(wire, name, index, level))
        for timestamp in (*SPECIAL_TIMESTAMPS, *_timestamps(found)):
            for level in (0, 1):
                answer = _list_offset(wire, name, index, timestamp, level)
                is_record = answer.offset < found.end_offset
                found.offsets[timestamp, level] = (
                    answer.error_code,
                    answer.timestamp,
                    answer.offset,
                    answer.leader_epoch if is_record and timestamp != requests.LATEST else None,
                )
        found.epoch_ends = _epoch_ends(wire, name, index, by_index[index].leader_epoch)
        found.producers = _producers(wire, name, index)
        partitions.append(found)
    return TopicAnswers(
        str(topic.topic_id),
        _configs(wire, name),
        partitions,
        [partition.leader_epoch for partition in by_index],
    )


def _fetches(wire: Wire, name: str, index: int, level: int) -> list[tuple[Cell, ...]]:
    offset = requests.start_offset(wire, name, partition=index)
    found = []
    while True:
        part = requests.fetch(
            wire,
            name,
            offset,
            partition=index,
            isolation_level=level,
            max_wait=0,
            partition_max_bytes=50 * requests.MIB,
        )
        assert part.error_code == 0, part
        data = bytes(part.records or b"")
        batches = list(record_batches.batches(data))
        # Kafka tells of some that begin behind these records, too: as far as its index entry goes.
        aborted = sorted(
            (transaction.first_offset, transaction.producer_id)
            for transaction in part.aborted_transactions or ()
            if batches and transaction.first_offset <= batches[-1].last_offset
        )
        found.append(
            (
                offset,
                data,
                aborted,
                part.high_watermark,
                part.last_stable_offset,
                part.log_start_offset,
            )
        )
        if not batches:
            return found
        offset = batches[-1].last_offset + 1


def _timestamps(found: PartitionAnswers) -> list[int]:
    """Those of the records, and one beside each; not too many."""
    all_of_them = sorted({record.timestamp for record in found.records(0)})
    step = max(1, len(all_of_them) // MOST_TIMESTAMPS)
    chosen = {*all_of_them[::step], *all_of_them[-1:]}
    return sorted({timestamp + more for timestamp in chosen for more in (-1, 0, 1)} - {-1, -2, -3})


def _list_offset(wire: Wire, name: str, index: int, timestamp: int, level: int) -> Struct:
    answer = wire.request(
        "list_offsets",
        9,
        replica_id=-1,
        isolation_level=level,
        topics=[
            {
                "name": name,
                "partitions": [
                    {"partition_index": index, "timestamp": timestamp, "current_leader_epoch": -1}
                ],
            }
        ],
    )
    found = answer.topics[0].partitions[0]
    assert isinstance(found, Struct)
    return found


def _epoch_ends(wire: Wire, name: str, index: int, newest: int) -> dict[int, tuple[int, int]]:
    """Leader epoch to (error, end offset)."""
    found = {}
    for leader_epoch in range(newest + 1):
        answer = wire.request(
            "offset_for_leader_epoch",
            4,
            replica_id=-1,
            topics=[
                {
                    "topic": name,
                    "partitions": [
                        {
                            "partition": index,
                            "current_leader_epoch": -1,
                            "leader_epoch": leader_epoch,
                        }
                    ],
                }
            ],
        )
        part = answer.topics[0].partitions[0]
        found[leader_epoch] = (part.error_code, part.end_offset)
    return found


def _producers(wire: Wire, name: str, index: int) -> list[tuple[Cell, ...]]:
    answer = wire.request(
        "describe_producers", 0, topics=[{"name": name, "partition_indexes": [index]}]
    )
    part = answer.topics[0].partitions[0]
    assert part.error_code == 0, part
    return sorted(
        (
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.current_txn_start_offset,
        )
        for producer in part.active_producers
    )


def _configs(wire: Wire, name: str) -> dict[str, tuple[Cell, ...]]:
    answer = requests.describe_configs(
        wire, requests.TOPIC_RESOURCE, name, include_synonyms=True, include_documentation=False
    )
    assert answer.error_code == 0, answer
    return {
        entry.name: (
            entry.value,
            entry.config_source,
            entry.read_only,
            entry.is_sensitive,
            [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms],
        )
        for entry in answer.configs
        if not entry.name.startswith(requests.NOT_KAFKAS)
    }


def _sizes(wire: Wire) -> dict[tuple[str, int], int]:
    answer = wire.request("describe_log_dirs", 4, topics=None)
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for directory in answer.results
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }


def _visible(data: bytes, aborted: Iterable[tuple[int, int]], start: int) -> list[Record]:
    """Data records as a consumer sees them: aborted transactions left out (KIP-98)."""
    waiting = sorted(aborted)
    inside: set[int] = set()
    found: list[Record] = []
    for batch in record_batches.batches(data):
        while waiting and waiting[0][0] <= batch.last_offset:
            inside.add(waiting.pop(0)[1])
        if batch.is_control:
            if int.from_bytes(batch.records()[0].key[2:4], "big") == 0:  # type: ignore[index]
                inside.discard(batch.producer_id)
        elif not (batch.attributes & record_batches.TRANSACTIONAL and batch.producer_id in inside):
            found += [record for record in batch.records() if record.offset >= start]
    return found
