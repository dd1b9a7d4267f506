"""What the control socket tells of this node, its topics and a topic's partitions.

Commands as those in ``commands.py``. ``node`` is answered while the broker still recovers; the
others say then how far it is. Answers about many topics are pages: a page of ``MAX_PAGE``
partitions takes the loop about a millisecond. ``topics`` tells only what has changed since the
time (``now`` of an earlier answer) that the caller names, so that thousands of idle topics cost
next to nothing.
"""

from __future__ import annotations

import os
import resource
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from broker import VERSION, compiled
from broker.model.ids import TopicPartition
from broker.replication.replicated_partition import ReplicatedPartition
from broker.server.watchdog import BUCKETS_US
from broker.storage.filesystem import RealFileSystem

if TYPE_CHECKING:
    from broker.metadata.image import PartitionImage
    from broker.replication.partition import Partition
    from broker.replication.replica_manager import HostedTopic
    from broker.server.app import Broker

#: Partitions told of in one answer; a topic is never parted by ``topics``.
MAX_PAGE: Final = 300
#: Topics looked at for one answer, most of which have not changed.
MAX_LOOKED_AT: Final = 5000
#: Partitions of one topic in one answer of ``topics``; of more only the sums are told.
MAX_PARTITIONS_TOLD: Final = 2000
COUNTERS: Final = (
    "bytes_in", "bytes_out", "records_in", "records_out", "produce_requests",
    "failed_produce_requests", "fetch_requests", "failed_fetch_requests",
)  # fmt: skip


class StillRecovering(Exception):
    """Nothing can be told of logs yet; says how far recovery is."""


async def node(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """This broker: life, recovery, disks, load, and what it has counted since it started."""
    opened, total = broker.recovery
    usage = resource.getrusage(resource.RUSAGE_SELF)
    answer: dict[str, Any] = {
        "pid": os.getpid(),
        "version": VERSION,
        "is_compiled": compiled.reason is None,
        "is_ready": broker.is_ready,
        "node_id": broker.config.node_id,
        "cluster_id": broker.cluster_id,
        "started_ms": broker.started_ms,
        "recovery": {"opened": opened, "total": total},
        "connections": sum(len(listener.connections) for listener in broker.listeners),
        "refused_connections": broker.quota.refused_count,
        "listeners": [
            {
                "name": each.name,
                "host": each.host,
                "port": each.port,
                "security_protocol": each.security_protocol,
            }
            for each in broker.config.listeners
        ],
        "requests": {str(key): count for key, count in broker.dispatcher.request_counts.items()},
        "receive_budget_used_bytes": broker.receive_budget.used_bytes,
        "loop": {
            **broker.watchdog.stats(),
            "counts": broker.watchdog.histogram()[0],
            "bounds_us": BUCKETS_US,
        },
        "rss_bytes": _resident_bytes(),
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "log_dirs": _directories(broker),
        "task_troubles": [
            {
                "task": each.name,
                "failures": each.failures,
                "restarts": each.restarts,
                "last_ms": each.last_ms,
                "last_error": each.last_error,
            }
            for each in broker.tasks.troubles.values()
        ],
        "zookeeper": None if broker.cluster is None else broker.cluster.describe_session(),
    }
    if broker.is_hosting:
        replicas = broker.replicas
        answer["traffic"] = {name: getattr(replicas.traffic, name) for name in COUNTERS}
        answer["now"] = replicas.traffic.now
        answer["topics"] = len(replicas.topics)
        answer["retention"] = broker.maintenance.retention.describe()
        answer["offline_partitions"] = len(broker.logs.offline_partitions)
    return answer


async def topics(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Counters and partitions of topics that changed at ``since`` or later, from place ``from``.

    ``next`` is the place of the next page, None after the last one. Places shift when topics go:
    a walk over which ``deleted`` has changed may have missed one. Partitions are ``[index, log start
    offset, high watermark, bytes, segments]``; those that recovery refused to open are left out.
    """
    replicas = _replicas(broker)
    since, place = int(request.get("since", 0)), max(0, int(request.get("from", 0)))
    rows: list[dict[str, Any]] = []
    left, looked_at = MAX_PAGE, 0
    for topic in islice(replicas.topics.values(), place, place + MAX_LOOKED_AT):
        if left <= 0:
            break
        looked_at += 1
        if topic.traffic.changed >= since:
            rows.append(_topic(broker, topic))
            left -= len(topic.partitions) + 3
    place += looked_at
    return {
        "now": replicas.traffic.now,
        "total": len(replicas.topics),
        "deleted": replicas.traffic.deleted_topics,
        "next": place if place < len(replicas.topics) else None,
        "counters": COUNTERS,
        "topics": rows,
    }


async def partitions(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """The partitions of one ``topic`` from index ``from``, with what only their broker knows."""
    replicas = _replicas(broker)
    name, first = str(request.get("topic")), max(0, int(request.get("from", 0)))
    topic = replicas.topics.get(name)
    if topic is None:
        raise ValueError(f"there is no topic {name!r}")
    end = min(first + MAX_PAGE, len(topic.partitions))
    return {
        "topic": name,
        "next": end if end < len(topic.partitions) else None,
        "partitions": [_partition(broker, topic, index) for index in range(first, end)],
    }


def _replicas(broker: Broker) -> Any:
    if not broker.is_hosting:
        opened, total = broker.recovery
        raise StillRecovering(f"still recovering, {opened} of {total} logs are open")
    return broker.replicas


def _topic(broker: Broker, topic: HostedTopic) -> dict[str, Any]:
    traffic = topic.traffic
    told: list[list[int]] | None = None
    if len(topic.partitions) <= MAX_PARTITIONS_TOLD:
        told = []
        for index, partition in enumerate(topic.partitions):
            figures = _figures(broker, topic.name, index, partition)
            if figures is not None:
                told.append(figures)
    return {
        "name": topic.name,
        "counters": [
            traffic.bytes_in,
            traffic.bytes_out,
            traffic.records_in,
            traffic.records_out,
            traffic.produce_requests,
            traffic.failed_produce_requests,
            traffic.fetch_requests,
            traffic.failed_fetch_requests,
        ],
        "partitions": told,
        "min_isr": topic.config.min_insync_replicas,
        "cleanup_policy": ",".join(sorted(topic.config.cleanup_policy)),
    }


def _figures(
    broker: Broker, name: str, index: int, partition: Partition | None
) -> list[int] | None:
    if partition is not None:
        log, high_watermark = partition.log, partition.high_watermark
    else:
        # Not used since the start: its log is open all the same, unless it is new, or damaged.
        topic_partition = TopicPartition(name, index)
        found = broker.logs.logs.get(topic_partition)
        if found is None:
            return (
                None if topic_partition in broker.logs.offline_partitions else [index, 0, 0, 0, 0]
            )
        is_followed = broker.replicas.followed_of(found) is not None
        log = found
        high_watermark = found.high_watermark if is_followed else found.log_end_offset
    return [index, log.log_start_offset, high_watermark, log.size_in_bytes, len(log.segments)]


def _partition(broker: Broker, topic: HostedTopic, index: int) -> dict[str, Any]:
    offline = broker.logs.offline_partitions.get(TopicPartition(topic.name, index))
    image = broker.image.partition(topic.name, index)
    answer: dict[str, Any] = {
        "partition": index,
        "leader_epoch": topic.states[index].leader_epoch,
        "offline_reason": None if offline is None else str(offline.error),
        "offline_since_ms": None if offline is None else offline.since_ms,
        "out_of_sync": []
        if image is None
        else _out_of_sync(broker, image, topic.partitions[index]),
    }
    partition = topic.partitions[index]
    if partition is None:
        return answer
    log = partition.log
    return {
        **answer,
        "log_start_offset": log.log_start_offset,
        "log_end_offset": log.log_end_offset,
        "high_watermark": partition.high_watermark,
        "last_stable_offset": partition.last_stable_offset,
        "flushed_offset": log.flushed_offset,
        "size_bytes": log.size_in_bytes,
        "directory": log.directory,
        "segments": [
            {"base_offset": segment.base_offset, "size_bytes": segment.size}
            for segment in islice(log.segments, MAX_PAGE)
        ],
        "segment_count": len(log.segments),
    }


def _out_of_sync(
    broker: Broker, image: PartitionImage, partition: Partition | None
) -> list[dict[str, Any]]:
    """``since_ms``: when the replica was in sync last, or since when this broker leads; None: it does not."""
    out = [each for each in image.replicas if each not in image.isr]
    seen: dict[int, int | None] = {}
    if out and isinstance(partition, ReplicatedPartition):
        ahead_ms = broker.clock.wall_ms() - broker.clock.monotonic_ms()
        for each in partition.leader.progress():
            at_ms = each.observed_since_ms if each.caught_up_ms is None else each.caught_up_ms
            seen[each.replica_id] = None if at_ms is None else at_ms + ahead_ms
    return [{"broker_id": each, "since_ms": seen.get(each)} for each in out]


def _directories(broker: Broker) -> list[dict[str, Any]]:
    """Each log directory and the room of its volume; also before the logs are open."""
    floor = broker.config.disk_floor_bytes
    if broker.is_hosting:
        return [
            {
                "path": each.path,
                "is_offline": each.is_offline,
                "total_bytes": each.total_bytes,
                "free_bytes": each.usable_bytes,
                "floor_bytes": floor,
            }
            for each in broker.logs.describe_directories()
        ]
    files = RealFileSystem()
    told = []
    for path in broker.config.log_dirs:
        try:
            there = _existing(path)
            total, free = files.total_bytes(there), files.free_bytes(there)
        except OSError:
            total = free = -1
        told.append(
            {
                "path": path,
                "is_offline": False,
                "total_bytes": total,
                "free_bytes": free,
                "floor_bytes": floor,
            }
        )
    return told


def _existing(path: str) -> str:
    """A first start has yet to make its directories: the nearest that is there."""
    while not os.path.exists(path):
        path = os.path.dirname(path) or "/"
    return path


def _resident_bytes() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
