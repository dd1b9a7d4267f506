"""What a backup asks for: a cut through all partitions at one moment, and which bytes lie before it.

``backup_cut`` notes, in one turn of the loop, every partition's high watermark and the metadata store's
nodes: a transaction is on one side of the cut with all its markers or is told as under way, and no group
has committed an offset whose record lies behind it. What is appended later does not matter, for a log only grows.
What does is deletion and compaction: ``backup_files`` tells a partition's files as they are when it is asked, with
their inodes, so that the copier notices what was replaced under its hands and asks again. A partition that compaction
has been over beyond the cut has lost records that were still valid there: it says so, and the copier makes a new cut.

Nothing is locked and nothing written; of several cuts only the last counts.
"""

from __future__ import annotations

import asyncio
import base64
import os
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.metadata.journal import encode_frame, encode_nodes
from broker.metadata.store import Node
from broker.model.ids import TopicId, TopicPartition
from broker.storage.checkpoints import encode_epochs, encode_partition_metadata, encode_topic_id
from broker.storage.file_records import BatchPlace
from broker.storage.layout import LOG_SUFFIX
from broker.storage.log import Log

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.storage.segment import Segment

MAX_PAGE: Final = 300
NODES_A_PAGE: Final = 500
#: A swap of compacted segments takes some turns of the loop; it has more than enough time.
SWAP_TRIES: Final = 500
SWAP_PAUSE_S: Final = 0.02


class Mark(NamedTuple):
    """Where the cut goes through one partition."""

    topic_partition: TopicPartition
    topic_id: TopicId
    end_offset: int
    #: The active segment, and how long it was; -1: the cut lies before its end.
    active: int
    size: int


class Cut(NamedTuple):
    id: str
    marks: list[Mark]
    by_partition: dict[TopicPartition, Mark]
    nodes: list[tuple[str, Node]]


async def backup_cut(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Note where every log ends and what the metadata store holds, at this moment."""
    if not broker.is_ready:
        raise ValueError("the broker still recovers")
    nodes = broker.durable_metadata()
    image = broker.image
    marks = []
    for topic_partition, log in broker.logs.logs.items():
        topic = image.topics.get(topic_partition.topic)
        if topic is not None and topic.topic_id == log.topic_id and not log.is_deleted:
            marks.append(_mark(broker, log, topic.topic_id))
    by_partition = {mark.topic_partition: mark for mark in marks}
    broker.cut = Cut(uuid.uuid4().hex, marks, by_partition, list(nodes.items()))
    return {
        "id": broker.cut.id,
        "cluster_id": broker.cluster_id,
        "node_id": broker.config.node_id,
        "log_dirs": [os.path.abspath(each) for each in broker.config.log_dirs],
        "partitions": len(marks),
        "now_ms": broker.clock.wall_ms(),
        "offline": [str(each) for each in list(broker.logs.offline_partitions)[:MAX_PAGE]],
    }


def _mark(broker: Broker, log: Log, topic_id: TopicId) -> Mark:
    partition = broker.replicas.partition_of(log)
    # One that nobody has used since the start: all of it was recovered, and is committed.
    end = log.log_end_offset if partition is None else partition.high_watermark
    active = log.segments.active
    size = active.size if end == log.log_end_offset else -1
    return Mark(log.topic_partition, topic_id, end, active.base_offset, size)


async def backup_partitions(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """A page of the cut's partitions, from number ``from`` on."""
    cut = _cut(broker, request)
    first = int(request.get("from", 0))
    return {
        "partitions": [
            {
                "topic": mark.topic_partition.topic,
                "partition": mark.topic_partition.partition,
                "topic_id": encode_topic_id(mark.topic_id),
                "end_offset": mark.end_offset,
            }
            for mark in cut.marks[first : first + MAX_PAGE]
        ]
    }


async def backup_metadata(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Page ``page`` of the metadata store's snapshot, as bytes of such a file; the last says so."""
    cut = _cut(broker, request)
    page = int(request.get("page", 0))
    nodes = cut.nodes[page * NODES_A_PAGE : (page + 1) * NODES_A_PAGE]
    frame = encode_frame(page, 1, 1, encode_nodes(nodes))
    return {"frame": base64.b64encode(frame).decode(), "is_last": not nodes}


async def backup_files(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Which bytes of which files of ``topic`` and ``partition`` lie before the cut, as of now."""
    topic_partition = TopicPartition(str(request.get("topic")), int(request.get("partition", -1)))
    mark = _cut(broker, request).by_partition.get(topic_partition)
    log = broker.logs.logs.get(topic_partition)
    for _ in range(SWAP_TRIES):
        if log is None or log.swap is None:
            break
        await asyncio.sleep(SWAP_PAUSE_S)
        log = broker.logs.logs.get(topic_partition)
    if mark is None or log is None or log.topic_id != mark.topic_id or log.is_deleted:
        return {"is_gone": True}
    if log.cleaned_offset > mark.end_offset:
        return {"is_compacted_beyond": True}
    start = max(log.log_start_offset, log.condemned_offset)
    end = max(mark.end_offset, start)
    segments = []
    for slot, segment in enumerate(log.segments):
        if segment.base_offset >= end:
            break
        segment_end = log.segments.end_of(slot, log.log_end_offset)
        if segment_end <= end:
            size = segment.size
        elif segment.base_offset == mark.active and mark.size >= 0:
            size = mark.size
        else:
            size = await broker.threads.call(lambda each=segment: _size_before(each, end))  # type: ignore[misc]
        if segment_end > start:
            segments.append(_told(segment, size))
    return {
        "directory": os.path.abspath(log.directory),
        "log_start_offset": start,
        "end_offset": end,
        "segments": segments,
        "epochs": encode_epochs(
            entry for entry in log.leader_epochs.entries() if entry[1] <= end
        ).decode(),
        "metadata": encode_partition_metadata(mark.topic_id).decode(),
    }


def _told(segment: Segment, size: int) -> dict[str, Any]:
    try:
        inode = os.stat(segment.path(LOG_SUFFIX)).st_ino
    except FileNotFoundError:
        inode = 0  # going: the copier will not find it either, and asks again
    return {"base_offset": segment.base_offset, "size": size, "inode": inode}


def _size_before(segment: Segment, end_offset: int) -> int:
    """Bytes of the batches that end before ``end_offset``. Waits for the disk: in a thread."""
    place: BatchPlace
    for place in segment.records.walk_waiting(0, segment.size):
        if place.last_offset >= end_offset:
            return place.position
    return segment.size


async def backup_end(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """The cut is not needed any more."""
    _cut(broker, request)
    broker.cut = None
    return {}


def _cut(broker: Broker, request: dict[str, Any]) -> Cut:
    if broker.cut is None or broker.cut.id != request.get("id"):
        raise ValueError(
            "this backup's cut is gone: another backup began, or the broker started anew"
        )
    return broker.cut
