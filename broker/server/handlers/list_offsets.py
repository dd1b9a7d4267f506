"""ListOffsets (key 2), versions 1-11.

Behaviour: a timestamp gives the first offset whose record is at or after it (-1/-1 without one).
Special timestamps: -1 latest (the high watermark, or the last stable offset for read_committed),
-2 earliest, -3 the record with the largest timestamp (7+), -4 earliest local (8+, equals earliest
here), -5 latest tiered (9+) and -6 earliest pending upload (11+): nothing is tiered, so -1.

Cold index or log pages make the request wait for a thread. A look-up opens a batch: many of them
take several turns of the loop. Left out: asking a follower.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from broker.model.error_code import ErrorCode
from broker.model.errors import CorruptLogError, KafkaError, NoDescriptorError, StorageError
from broker.protocol.hot.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    PartitionOffset,
    decode_request,
    encode_response,
)
from broker.server.tasks import Turn
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
    return handle_decoded(broker, connection, header, request, frame)


def handle_decoded(
    broker: Broker,
    connection: Connection,
    header: RequestHeader,
    request: ListOffsetsRequest,
    frame: memoryview,
) -> Answer | None:
    look_up = _LookUp(broker, header.api_version, request)
    if look_up.go_on():
        return [encode_response(header.api_version, header.correlation_id, 0, look_up.topics)]
    slot = connection.defer(header)
    broker.dispatcher.spawn(slot, _answer_later(broker, header, look_up, slot), "ListOffsets")
    return None


async def _answer_later(
    broker: Broker, header: RequestHeader, look_up: _LookUp, slot: ResponseSlot
) -> None:
    is_done = False
    while not is_done:
        if look_up.cold is None:
            await broker.next_turn()
        else:
            try:
                await broker.threads.call(look_up.cold.pull)
            except (NoDescriptorError, OSError) as error:
                look_up.fail(error)
        is_done = look_up.go_on()
    slot.complete([encode_response(header.api_version, header.correlation_id, 0, look_up.topics)])


class _LookUp:
    """One request on its way; ``topics`` are the results so far, in its order."""

    def __init__(self, broker: Broker, version: int, request: ListOffsetsRequest) -> None:
        self._broker = broker
        self._version = version
        self._is_read_committed = request.isolation_level == READ_COMMITTED
        self.topics: list[tuple[str, list[PartitionOffset]]] = []
        self._left: deque[tuple[str, list[PartitionOffset], ListOffsetsPartition]] = deque()
        for name, partitions in request.topics:
            results: list[PartitionOffset] = []
            self.topics.append((name, results))
            self._left.extend((name, results, wanted) for wanted in partitions)
        counts = Counter((name, wanted[0]) for name, _, wanted in self._left)
        self._named_twice = {each for each, count in counts.items() if count > 1}
        #: Pages that the next look-up misses; None when it had what it needs.
        self.cold: ColdRead | None = None

    def go_on(self) -> bool:
        """Look up what is left; False at pages that are cold, or when others want their turn."""
        left = self._left
        turn = Turn()
        while left:
            name, results, wanted = left[0]
            result = self._find(name, wanted)
            if self.cold is not None:
                return False
            results.append(result)
            left.popleft()
            if left and turn.is_over:
                return False
        return True

    def fail(self, error: Exception) -> None:
        """The cold pages cannot be read: that partition's result is an error."""
        name, results, wanted = self._left.popleft()
        self._broker.report_read_error(name, wanted[0], error)
        results.append(_failed(wanted[0], ErrorCode.KAFKA_STORAGE_ERROR))

    def _find(self, topic: str, wanted: ListOffsetsPartition) -> PartitionOffset:
        index, current_leader_epoch, timestamp = wanted
        self.cold = None
        if (topic, index) in self._named_twice:
            return _failed(index, ErrorCode.INVALID_REQUEST)
        try:
            partition = self._broker.replicas.find(topic, index)
            partition.check_leader_epoch(current_leader_epoch)
            found = self._offset(partition, timestamp)
        except KafkaError as error:
            return _failed(index, error.code)
        except CorruptLogError as error:
            self._broker.report_corruption(error)
            return _failed(index, ErrorCode.CORRUPT_MESSAGE)
        except (StorageError, NoDescriptorError, OSError) as error:
            self._broker.report_read_error(topic, index, error)
            return _failed(index, ErrorCode.KAFKA_STORAGE_ERROR)
        return (index, 0, *found)

    def _offset(self, partition: Partition, timestamp: int) -> Found:
        if self._version < SPECIAL_FROM.get(timestamp, 0):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        log = partition.log
        end_offset = partition.readable_end(self._is_read_committed)
        if timestamp == LATEST:
            partition.check_lease()
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


def _failed(index: int, code: ErrorCode) -> PartitionOffset:
    return (index, code, UNKNOWN, UNKNOWN, UNKNOWN)
