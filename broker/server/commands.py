"""What the control socket understands. Each command is a coroutine (broker, request) -> answer."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING, Any, Final

from broker import compiled
from broker.server.control import Command
from broker.server.tasks import Turn

if TYPE_CHECKING:
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


COMMANDS: Final[dict[str, Command]] = {
    "stats": stats,
    "trim": trim,
    "flush": flush,
    "retention": retention,
    "stop": stop,
}
