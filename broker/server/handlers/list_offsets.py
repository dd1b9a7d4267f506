"""ListOffsets (key 2), versions 1-11.

Behaviour: a timestamp gives the first offset whose record is at or after it (-1/-1 without one).
Special timestamps: -1 latest (the high watermark, or the last stable offset for read_committed),
-2 earliest, -3 the record with the largest timestamp (7+), -4 earliest local (8+, equals earliest
here), -5 latest tiered (9+) and -6 earliest pending upload (11+): nothing is tiered, so -1.

Cold index or log pages make the request wait for a reader thread. Left out: asking a follower.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.protocol.hot.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    PartitionOffset,
    decode_request,
    encode_response,
)
from broker.storage.cold import ColdRead

if TYPE_CHECKING:
    from broker.protocol.request import RequestHeader
    from broker.replication.partition import Partition
    from broker.server.app import Broker
    from broker.server.connection import Answer, Connection, ResponseSlot

#: timestamp, offset, leader epoch
Found = tuple[int, int, int]

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
#: First version that knows each special timestamp; asked for earlier it is UNSUPPORTED_VERSION.
SPECIAL_FROM: Final = {
    MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11,
}  # fmt: skip
READ_COMMITTED: Final = 1
UNKNOWN: Final = -1
NOTHING: Final[Found] = (UNKNOWN, UNKNOWN, UNKNOWN)


def handle(
    broker: Broker, connection: Connection, header: RequestHeader, frame: memoryview
) -> Answer | None:
    request = decode_request(header.api_version, frame, header.body_offset)
    look_up = _LookUp(broker, header.api_version, request)
    topics = [
        (name, [look_up.find(name, wanted) for wanted in partitions])
        for name, partitions in request.topics
    ]
    if look_up.cold is None:
        return [encode_response(header.api_version, header.correlation_id, 0, topics)]
    slot = connection.defer(header)
    broker.dispatcher.spawn(
        slot, _answer_later(broker, header, request, look_up, slot), "ListOffsets"
    )
    return None


async def _answer_later(
    broker: Broker,
    header: RequestHeader,
    request: ListOffsetsRequest,
    look_up: _LookUp,
    slot: ResponseSlot,
) -> None:
    topics = []
    for name, partitions in request.topics:
        results = []
        for wanted in partitions:
            result = look_up.find(name, wanted)
            while look_up.cold is not None:
                await broker.threads.call(look_up.cold.pull)
                result = look_up.find(name, wanted)
            results.append(result)
        topics.append((name, results))
    slot.complete([encode_response(header.api_version, header.correlation_id, 0, topics)])


class _LookUp:
    """``cold`` names the pages that the last ``find`` missed; None when it had what it needs."""

    def __init__(self, broker: Broker, version: int, request: ListOffsetsRequest) -> None:
        self._broker = broker
        self._version = version
        self._is_read_committed = request.isolation_level == READ_COMMITTED
        counts = Counter(
            (name, index) for name, partitions in request.topics for index, _, _ in partitions
        )
        self._named_twice = {each for each, count in counts.items() if count > 1}
        self.cold: ColdRead | None = None

    def find(self, topic: str, wanted: ListOffsetsPartition) -> PartitionOffset:
        index, current_leader_epoch, timestamp = wanted
        self.cold = None
        if (topic, index) in self._named_twice:
            return (index, ErrorCode.INVALID_REQUEST, UNKNOWN, UNKNOWN, UNKNOWN)
        try:
            partition = self._broker.replicas.find(topic, index)
            partition.check_leader_epoch(current_leader_epoch)
            found = self._offset(partition, timestamp)
        except KafkaError as error:
            return (index, error.code, UNKNOWN, UNKNOWN, UNKNOWN)
        return (index, 0, *found)

    def _offset(self, partition: Partition, timestamp: int) -> Found:
        if self._version < SPECIAL_FROM.get(timestamp, 0):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        log = partition.log
        end_offset = partition.readable_end(self._is_read_committed)
        if timestamp == LATEST:
            return UNKNOWN, end_offset, partition.leader_epoch
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            start = log.log_start_offset
            return UNKNOWN, start, partition.leader_epoch_at(start)
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return NOTHING
        if timestamp == MAX_TIMESTAMP:
            found = log.max_timestamp_offset()
        elif timestamp >= 0:
            found = log.offset_for_timestamp(timestamp, end_offset)
        else:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if isinstance(found, ColdRead):
            self.cold = found
            return NOTHING
        # The youngest record may not be committed yet; as in Kafka no older one stands in for it.
        return NOTHING if found is None or found.offset >= end_offset else found
