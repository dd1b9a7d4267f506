"""What ``odradek import`` asks for: topics that become copies of others, offset for offset.

Such a topic has ``odradek.import.from`` set, the name of what it is a copy of; as long as it has, nobody can
produce to it. Batches come as bytes of a file, as the other cluster gave them; they are appended as a follower
appends: with their own offsets, markers of transactions and holes of compaction included. So where a copy
goes on is where its log ends, and each append says where it believes that to be: called twice, at the same
time by two, or after anybody was killed, nothing is there twice and nothing is left out.

The leader epoch is this broker's own: offsets alone are what the two logs have in common.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from broker.model.errors import CorruptLogError, KafkaError
from broker.records.header import MalformedBatch, stamp, walk_headers
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from broker.server.app import Broker

#: What one turn of the loop appends; a larger batch goes alone.
BYTES_A_TURN: Final = 512 * 1024
MAX_APPEND_BYTES: Final = 1 << 31


async def import_positions(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Where each partition of ``topic`` begins and ends; refused for what is no copy of ``from``."""
    name = str(request.get("topic"))
    topic = broker.image.topics.get(name)
    if topic is None:
        raise ValueError(f"there is no topic {name!r}")
    positions = []
    turn = Turn()
    for index in range(len(topic.partitions)):
        partition = _partition(broker, request, index)
        log = partition.log
        positions.append({"start_offset": log.log_start_offset, "end_offset": log.log_end_offset})
        if turn.is_over:
            await turn.pass_on()
    return {"partitions": positions}


async def import_start(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Nothing below ``offset`` is there in the other log (any more), so not in this one either.

    Beyond the log end the log goes on, empty, from there: all that it holds lies before.
    """
    partition = _partition(broker, request, _index(request))
    offset = int(request["offset"])
    log = partition.log
    if offset > log.log_end_offset:
        log.truncate_fully_and_start_at(offset)
        partition.advance_high_watermark()
    elif offset > log.log_start_offset:
        partition.delete_records(min(offset, partition.high_watermark))
    await broker.checkpoint_log_start_offsets()
    return {"start_offset": log.log_start_offset, "end_offset": log.log_end_offset}


async def import_append(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Append ``size`` bytes at ``position`` of the file ``path``, whole batches; ``at`` is the log end.

    Tells where the log ends then.
    """
    partition = _partition(broker, request, _index(request))
    path, position, size = request["path"], int(request["position"]), int(request["size"])
    if not 0 < size <= MAX_APPEND_BYTES:
        raise ValueError(f"cannot append {size} bytes at once")
    data = memoryview(await broker.threads.call(lambda: _read(path, position, size)))
    if partition.is_closed:
        raise ValueError("the partition has gone meanwhile")
    log = partition.log
    if log.log_end_offset != request.get("at"):
        raise ValueError(
            f"{log.topic_partition} ends at {log.log_end_offset}, not at {request.get('at')}:"
            " does another import run?"
        )
    turn = Turn()
    try:
        for first, end in _pieces(data, partition.leader_epoch):
            if partition.is_closed or not log.config.import_from:
                raise ValueError("the partition or its import has gone meanwhile")
            broker.replicas.append_copies(partition, data[first:end], broker.clock.wall_ms())
            if turn.is_over:
                await turn.pass_on()
    except (CorruptLogError, MalformedBatch) as error:
        raise ValueError(f"the source gave what cannot be stored: {error}") from error
    return {"end_offset": log.log_end_offset}


def _pieces(data: memoryview, leader_epoch: int) -> list[tuple[int, int]]:
    """Runs of whole batches, their leader epoch stamped. Raises ``MalformedBatch`` if some byte is in none."""
    pieces = []
    first = end = 0
    for position, header in walk_headers(data):
        stamp(data, position, header.base_offset, leader_epoch)
        if position > first and position + header.size_in_bytes - first > BYTES_A_TURN:
            pieces.append((first, position))
            first = position
        end = position + header.size_in_bytes
    if end != len(data):
        raise MalformedBatch(f"{len(data) - end} bytes behind the last whole batch")
    return [*pieces, (first, end)]


def _read(path: str, position: int, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        done = 0
        while done < size:
            count = os.preadv(descriptor, [view[done:]], position + done)
            if not count:
                raise ValueError(f"{path} has no {size} bytes at {position}")
            done += count
    finally:
        os.close(descriptor)
        view.release()
    return data


def _index(request: dict[str, Any]) -> int:
    return int(request.get("partition", -1))


def _partition(broker: Broker, request: dict[str, Any], index: int) -> Partition:
    name, source = str(request.get("topic")), request.get("from")
    try:
        partition = broker.replicas.find(name, index)
    except KafkaError as error:
        raise ValueError(f"{name}-{index}: {error}") from error
    if not source or partition.log.config.import_from != source:
        raise ValueError(f"{name} is no copy of {source!r} that is being made")
    return partition
