"""What the control socket understands. Each command is a coroutine (broker, request) -> answer."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any, Final

from broker import compiled
from broker.config.topic_config import resolve_topic_config
from broker.model.ids import TopicPartition
from broker.model.internal_topics import CONSUMER_OFFSETS
from broker.server.control import Command
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.metadata.image import TopicImage
    from broker.server.app import Broker


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
    partitions = list(broker.replicas.partitions())
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
    """Delete what retention allows, now; tells what went and why."""
    return {"deleted": await broker.maintenance.run_retention()}


async def stop(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Begin a clean stop."""
    broker.request_stop()
    return {}


async def offline(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Partitions that recovery refused to open, and where it found the damage."""
    return {
        "partitions": [
            {
                "topic": topic,
                "partition": index,
                "path": error.path,
                "position": error.position,
                "offset": error.offset,
                "reason": str(error),
            }
            for (topic, index), error in broker.logs.offline_partitions.items()
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
    log = broker.replicas.find(topic_partition.topic, topic_partition.partition).log
    if topic_partition.topic == CONSUMER_OFFSETS:
        broker.coordination.on_repaired()
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
    "trim": trim,
    "flush": flush,
    "retention": retention,
    "stop": stop,
    "offline": offline,
    "repair": repair,
}
