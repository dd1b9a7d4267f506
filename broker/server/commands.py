"""What the control socket understands. Each command is a coroutine (broker, request) -> answer."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any, Final

from broker import compiled
from broker.config.topic_config import resolve_topic_config
from broker.model.ids import TopicPartition
from broker.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker.replication.background import Flushed
from broker.server import backup, importing, reports
from broker.server.control import Command
from broker.server.retention import answer as retention_answer
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.metadata.image import TopicImage
    from broker.server.app import Broker

#: Told of by ``expire_offsets``, which sums over all.
MAX_GROUPS_TOLD: Final = 200


async def stats(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Counters and the loop-lag histogram; ``"reset": true`` empties the histogram afterwards."""
    answer = {
        "pid": os.getpid(),
        "is_ready": broker.is_ready,
        "is_compiled": compiled.reason is None,
        "node_id": broker.config.node_id,
        "cluster_id": broker.cluster_id,
        "recovery": {"opened": broker.recovery[0], "total": broker.recovery[1]},
        "connections": sum(len(listener.connections) for listener in broker.listeners),
        "refused_connections": broker.quota.refused_count,
        "requests": {str(key): count for key, count in broker.dispatcher.request_counts.items()},
        "fetch_sessions": len(broker.fetch_sessions),
        "receive_budget_used_bytes": broker.receive_budget.used_bytes,
        "loop": broker.watchdog.stats(),
        "max_rss_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }
    if request.get("reset"):
        broker.watchdog.reset()
    return answer


async def trim(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Cut the grown tails of all active segments, so that other tools can read them whole."""
    replicas = broker.replicas
    partitions: list[Flushed] = [*replicas.partitions(), *replicas.followed_partitions()]
    turn = Turn()
    for partition in partitions:
        if not partition.is_closed:
            partition.log.trim()
        if turn.is_over:
            await turn.pass_on()
    return {"partitions": len(partitions)}


async def flush(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Sync everything that was appended so far."""
    partitions = list(broker.replicas.partitions())
    for partition in partitions:
        broker.replicas.request_flush(partition)
    without_room = await broker.maintenance.flushes_done(partitions)
    return {"partitions": len(partitions), "without_room": without_room}


async def retention(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Delete what retention allows, now, of ``topics`` (null: all); tells what went and why.

    With ``"dry_run": true`` nothing goes, and it is told what would.
    """
    topics = topic_names(broker, request)
    runs = broker.maintenance.retention
    results = await (runs.rehearse(topics) if request.get("dry_run") else runs.run(topics))
    return retention_answer(results)


async def retention_runs(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Runs of retention that nobody asked for and that deleted something, the newest last."""
    return {"runs": list(broker.maintenance.retention.unasked)}


async def expire_offsets(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Delete committed offsets that ``offsets.retention.minutes`` has passed, now.

    Tells the tombstones that were written: of the ``MAX_GROUPS_TOLD`` groups with the most, and of all.
    """
    written = await broker.coordination.expire_offsets()
    most = sorted(written.items(), key=lambda item: -item[1])[:MAX_GROUPS_TOLD]
    return {"groups": dict(most), "group_count": len(written), "records": sum(written.values())}


def topic_names(broker: Broker, request: dict[str, Any]) -> set[str] | None:
    """The ``topics`` of a request; None for all. Raises ValueError for one that does not exist."""
    names = request.get("topics")
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("topics: a list of names, or null for all")
    for name in names:
        if name not in broker.image.topics:
            raise ValueError(f"there is no topic {name!r}")
    return set(names)


async def compact(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Compact ``topics`` (null: all that are compacted) soon, however little of them is dirty.

    Active segments are never compacted; with ``"roll": true`` those that hold records are sealed first.
    """
    cleaning = broker.maintenance.cleaning
    if not cleaning.is_enabled:
        raise ValueError("compaction is off (log.cleaner.enable, log.cleaner.threads)")
    topics = topic_names(broker, request)
    if request.get("roll"):
        await _roll_compacted(broker, topics)
    asked = cleaning.ask(topics)
    return {"queued": [{"topic": topic, "partition": index} for topic, index in asked]}


async def _roll_compacted(broker: Broker, topics: set[str] | None) -> None:
    """Seal what is active; returns when it is on disk, where compaction may have it."""
    rolled = []
    turn = Turn()
    for partition in list(broker.replicas.partitions()):
        log = partition.log
        is_meant = topics is None or log.topic_partition.topic in topics
        if is_meant and log.config.is_compacted and not partition.is_closed:
            flush = log.roll(broker.clock.wall_ms())
            if flush is not None:
                broker.replicas.sync_rolled(partition, flush)
                rolled.append(partition)
        if turn.is_over:
            await turn.pass_on()
    for partition in rolled:
        broker.replicas.request_flush(partition)
    await broker.maintenance.flushes_done(rolled)


async def cleaner(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Compaction: what runs, what is queued, the last run of each partition, what cannot be cleaned
    and when it is tried again."""
    cleaning = broker.maintenance.cleaning
    return {
        "is_enabled": cleaning.is_enabled,
        **cleaning.reports.describe(
            cleaning.running.values(), cleaning.queued, broker.clock.monotonic_ms()
        ),
    }


async def stop(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Begin a clean stop."""
    broker.request_stop()
    return {}


async def clocks(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """How far the clocks of the cluster's other brokers are ahead of this one's."""
    if broker.cluster is None:
        return {"brokers": []}
    # Here: a broker without a cluster imports nothing of it.
    from broker.server.cluster.clocks import compare_clocks

    return {"brokers": await compare_clocks(broker.cluster)}


async def offline(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Partitions that recovery refused to open, and where and when it found the damage."""
    return {
        "partitions": [
            {
                "topic": topic,
                "partition": index,
                "path": offline.error.path,
                "position": offline.error.position,
                "offset": offline.error.offset,
                "reason": str(offline.error),
                "since_ms": offline.since_ms,
            }
            for (topic, index), offline in broker.logs.offline_partitions.items()
        ]
    }


async def repair(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Bring an offline partition back: ``"how": "cut"`` ends its log before the first damage,
    ``"set-aside"`` puts its directory by and begins an empty one."""
    topic_partition = TopicPartition(str(request.get("topic")), int(request.get("partition", -1)))
    topic = broker.image.topics.get(topic_partition.topic)
    if topic is None or topic_partition not in broker.logs.offline_partitions:
        raise ValueError(f"{topic_partition} is not offline")
    how = request.get("how")
    if how == "set-aside":
        work = broker.logs.set_aside(topic_partition)
        if work is not None:
            await broker.threads.call(work.run)
        lost: dict[str, Any] = {}
    elif how == "cut":
        lost = await _cut(broker, topic_partition, topic)
    else:
        raise ValueError("how shall it be repaired: by cut, or by set-aside?")
    broker.replicas.materialise(topic_partition.topic, topic_partition.partition)
    log = broker.logs.logs[topic_partition]
    if topic_partition.topic == CONSUMER_OFFSETS:
        broker.coordination.on_repaired()
    elif topic_partition.topic == TRANSACTION_STATE:
        broker.transactions.on_repaired()
    return {"start_offset": log.log_start_offset, "end_offset": log.log_end_offset, **lost}


async def _cut(
    broker: Broker, topic_partition: TopicPartition, topic: TopicImage
) -> dict[str, Any]:
    work = broker.logs.repair(topic_partition, resolve_topic_config(topic.configs, broker.config))
    if work is None or topic_partition in broker.repairing:
        raise ValueError(f"{topic_partition} is being repaired")
    broker.repairing.add(topic_partition)
    try:
        await broker.threads.call(work.run)
    finally:
        broker.repairing.discard(topic_partition)
    log = broker.logs.finish_repair(work)
    if log is None:
        raise ValueError(f"{topic_partition} was deleted meanwhile")
    return {"lost_bytes": work.bytes_before - log.size_in_bytes}


COMMANDS: Final[dict[str, Command]] = {
    "stats": stats,
    "node": reports.node,
    "topics": reports.topics,
    "partitions": reports.partitions,
    "trim": trim,
    "flush": flush,
    "retention": retention,
    "retention_runs": retention_runs,
    "expire_offsets": expire_offsets,
    "compact": compact,
    "cleaner": cleaner,
    "stop": stop,
    "clocks": clocks,
    "offline": offline,
    "repair": repair,
    "import_positions": importing.import_positions,
    "import_start": importing.import_start,
    "import_append": importing.import_append,
    "backup_cut": backup.backup_cut,
    "backup_partitions": backup.backup_partitions,
    "backup_metadata": backup.backup_metadata,
    "backup_files": backup.backup_files,
    "backup_end": backup.backup_end,
}
