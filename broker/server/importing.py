"""What ``odradek import`` asks for: topics that become copies of others, offset for offset.

Such a topic has ``odradek.import.from`` set, the name of what it is a copy of; as long as it has, nobody can
produce to it. Batches come as bytes of a file, as the other cluster gave them; they are appended as a follower
appends: with their own offsets, markers of transactions and holes of compaction included. So where a copy
goes on is where its log ends, and each append says where it believes that to be: called twice, at the same
time by two, or after anybody was killed, nothing is there twice and nothing is left out.

In a cluster the broker that is asked passes it on to the partition's leader (``cluster/imports.py``). An append is
answered when it is committed, and positions are told of logs that are committed to their ends, so that no change of
leaders takes back what was told. What cannot be done at the moment is answered ``not_now``: whoever asked looks
where the copy ends, and goes on from there.

The leader epoch is this cluster's own: offsets alone are what the two logs have in common.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

from broker.model.error_code import ErrorCode
from broker.model.errors import CorruptLogError, KafkaError
from broker.model.ids import NO_BROKER, BrokerId
from broker.records.header import MalformedBatch, stamp, walk_headers
from broker.server.coordinator_log import when_committed
from broker.server.tasks import Turn

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from broker.server.app import Broker

#: What one turn of the loop appends; a larger batch goes alone.
BYTES_A_TURN: Final = 512 * 1024
MAX_APPEND_BYTES: Final = 1 << 31
#: How long replicas may take for what was appended, before it is asked for again.
COMMIT_MS: Final = 5000
#: Of a partition that is being led by somebody else.
_LED_ELSEWHERE: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS})


class NotNowError(Exception):
    """It may be possible in a moment, perhaps by another leader."""


# What the control socket understands ------------------------------------------------------------


async def import_positions(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Where each partition of ``topic``, or each of ``partitions``, begins and ends; refused for what is no copy
    of ``from``."""
    name = str(request.get("topic"))
    topic = broker.image.topics.get(name)
    if topic is None:
        raise ValueError(f"there is no topic {name!r}")
    indexes = [int(each) for each in request.get("partitions") or range(len(topic.partitions))]
    by_leader: dict[BrokerId, list[int]] = {}
    for index in indexes:
        by_leader.setdefault(_leader(broker, name, index), []).append(index)
    told: dict[int, dict[str, Any]] = {}

    async def ask(leader_id: BrokerId, of_leader: list[int]) -> None:
        question = {**request, "command": "import_positions", "partitions": of_leader}
        try:
            answer = await _ask(broker, leader_id, question)
            told.update(zip(of_leader, answer["partitions"], strict=True))
        except NotNowError as error:
            told.update((index, {"not_now": str(error)}) for index in of_leader)

    await asyncio.gather(*(ask(*each) for each in by_leader.items()))
    return {"partitions": [told[index] for index in indexes]}


async def import_start(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Nothing below ``offset`` is there in the other log (any more), so not in this one either.

    Beyond the log end the log goes on, empty, from there: all that it holds lies before.
    """
    return await _pass_on(broker, request)


async def import_append(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    """Append ``size`` bytes at ``position`` of the file ``path``, whole batches; ``at`` is the log end.

    Tells where the log ends then.
    """
    path, position, size = request["path"], int(request["position"]), int(request["size"])
    if not 0 < size <= MAX_APPEND_BYTES:
        raise ValueError(f"cannot append {size} bytes at once")
    data = await broker.threads.call(lambda: _read(path, position, size))
    return await _pass_on(broker, request, data)


# Where the partition is led ---------------------------------------------------------------------


def _leader(broker: Broker, name: str, index: int) -> BrokerId:
    if broker.cluster is None:
        return BrokerId(broker.config.node_id)
    found = broker.image.partition(name, index)
    return NO_BROKER if found is None else found.leader_id


async def _pass_on(
    broker: Broker, request: dict[str, Any], data: bytearray | None = None
) -> dict[str, Any]:
    leader_id = _leader(broker, str(request.get("topic")), _index(request))
    try:
        return await _ask(broker, leader_id, request, data)
    except NotNowError as error:
        return {"not_now": str(error)}


async def _ask(
    broker: Broker, leader_id: BrokerId, request: dict[str, Any], data: bytearray | None = None
) -> dict[str, Any]:
    if leader_id == broker.config.node_id:
        return await answer_here(broker, request, data)
    if broker.cluster is None or leader_id == NO_BROKER:
        raise NotNowError("nobody leads the partition")
    return await broker.cluster.imports.ask(leader_id, request, data)


async def answer_here(
    broker: Broker, request: dict[str, Any], data: bytearray | None
) -> dict[str, Any]:
    """For partitions that this broker leads. Raises NotNowError, and ValueError where that is for good."""
    command = request.get("command")
    try:
        if command == "import_positions":
            return await _tell_positions(broker, request)
        if command == "import_start":
            return await _start(broker, request)
        if command == "import_append" and data is not None:
            return await _append(broker, request, memoryview(data))
    except KafkaError as error:
        if error.code in _LED_ELSEWHERE:
            raise NotNowError(
                f"{request.get('topic')}-{request.get('partition')}: {error}"
            ) from error
        raise ValueError(str(error)) from error
    raise ValueError(f"an import does not ask for {command!r}")


async def _tell_positions(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    positions: list[dict[str, Any]] = []
    turn = Turn()
    for index in request["partitions"]:
        try:
            partition = _partition(broker, request, int(index))
        except NotNowError as error:
            positions.append({"not_now": str(error)})
            continue
        log = partition.log
        if partition.high_watermark < log.log_end_offset:
            positions.append({"not_now": "not all replicas have what was copied before"})
        else:
            positions.append(
                {"start_offset": log.log_start_offset, "end_offset": log.log_end_offset}
            )
        if turn.is_over:
            await turn.pass_on()
    return {"partitions": positions}


async def _start(broker: Broker, request: dict[str, Any]) -> dict[str, Any]:
    partition = _partition(broker, request, _index(request))
    offset = int(request["offset"])
    log = partition.log
    if offset > log.log_end_offset:
        partition.check_copies()
        partition.check_lease()  # a leader that was replaced must not empty a log of which others have more
        partition.restart_at(offset)
        await _until_committed(broker, partition)
    elif offset > log.log_start_offset:
        partition.delete_records(min(offset, partition.high_watermark))
    await broker.checkpoint_log_start_offsets()
    return {"start_offset": log.log_start_offset, "end_offset": log.log_end_offset}


async def _append(broker: Broker, request: dict[str, Any], data: memoryview) -> dict[str, Any]:
    partition = _partition(broker, request, _index(request))
    log = partition.log
    if log.log_end_offset != request.get("at"):
        raise NotNowError(
            f"{log.topic_partition} ends at {log.log_end_offset}, not at {request.get('at')}"
        )
    turn = Turn()
    try:
        for first, end in _pieces(data, partition.leader_epoch):
            if partition.is_closed:
                raise NotNowError(f"{log.topic_partition} is led by another broker now")
            if not log.config.import_from:
                raise ValueError("the import has ended meanwhile")
            partition.check_copies()
            broker.replicas.append_copies(partition, data[first:end], broker.clock.wall_ms())
            if turn.is_over:
                await turn.pass_on()
    except (CorruptLogError, MalformedBatch) as error:
        raise ValueError(f"the source gave what cannot be stored: {error}") from error
    end_offset = log.log_end_offset
    await _until_committed(broker, partition)
    return {"end_offset": end_offset}


async def _until_committed(broker: Broker, partition: Partition) -> None:
    outcome: asyncio.Future[ErrorCode] = broker.loop.create_future()

    def done(code: ErrorCode) -> None:
        if not outcome.done():
            outcome.set_result(code)

    when_committed(broker, partition, COMMIT_MS, done)
    code = await outcome
    if code is not ErrorCode.NONE:
        raise NotNowError(f"{partition.topic_partition}: not committed: {code.name}")


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
        # Of several brokers, one may not have heard of a topic yet.
        is_later = broker.cluster is not None and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_later or error.code in _LED_ELSEWHERE:
            raise NotNowError(f"{name}-{index}: {error}") from error
        raise ValueError(f"{name}-{index}: {error}") from error
    if not source or partition.log.config.import_from != source:
        raise ValueError(f"{name} is no copy of {source!r} that is being made")
    return partition
