"""A coordinator's log: a partition of an internal topic, written by the broker itself, and read back.

``LoadingLog`` gives what is in it, batch by batch; the bytes are read (and decompressed) in threads,
the records are looked at in turns of the loop.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.coordinator.result import CoordinatorRecord, Producer
from broker.coordinator.transaction.transaction import RAISES_EPOCH
from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.records.batch import iter_payload
from broker.records.builder import build_batch
from broker.records.compression import Codec, decompress
from broker.records.control import build_marker, parse_marker
from broker.records.header import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    MalformedBatch,
    peek_header,
)
from broker.records.record import Record
from broker.replication.delayed import DelayedProduce
from broker.server.tasks import Turn
from broker.storage.cold import ColdRead

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.coordinator.runtime import Shard
    from broker.model.file_region import FileRegion
    from broker.model.transaction_marker import TransactionMarker
    from broker.replication.partition import Partition
    from broker.server.app import Broker

logger = logging.getLogger(__name__)

#: Read at a time while loading; a larger batch is read whole.
LOAD_BYTES: Final = 256 * 1024
#: A batch of an internal topic decompresses to this at most.
MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024


class CoordinatorLog:
    """Implements ``coordinator.ports.PartitionLog``."""

    def __init__(
        self,
        broker: Broker,
        partition: Partition,
        *,
        codec: Callable[[], Codec],
        timeout_ms: Callable[[], int],
    ) -> None:
        self._broker = broker
        self.partition = partition
        self._codec = codec
        #: How long a commit may take.
        self._timeout_ms = timeout_ms

    @property
    def leader_epoch(self) -> int:
        return self.partition.leader_epoch

    @property
    def max_batch_bytes(self) -> int:
        return self.partition.rules.max_message_bytes

    @property
    def may_answer(self) -> bool:
        return self.partition.may_coordinate

    def append(self, records: Sequence[CoordinatorRecord], producer: Producer | None = None) -> int:
        now_ms = self._broker.clock.wall_ms()
        batch = build_batch(
            [Record(index, now_ms, *record) for index, record in enumerate(records)],
            codec=self._codec(),
            producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.producer_epoch,
            is_transactional=producer is not None,
            log_append_time_ms=now_ms if self.partition.rules.log_append_time else None,
        )
        if len(batch) > self.max_batch_bytes:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"a batch of {len(batch)} bytes")
        return append_own(self._broker, self.partition, batch, now_ms)

    def append_marker(self, marker: TransactionMarker) -> None:
        append_marker(self._broker, self.partition, marker)

    def when_committed(self, done: Callable[[ErrorCode], None]) -> None:
        when_committed(self._broker, self.partition, self._timeout_ms(), done)


def append_own(broker: Broker, partition: Partition, batch: bytearray, now_ms: int) -> int:
    """Append a batch that this broker made; its first offset. Raises ``KafkaError``."""
    if partition.is_closed:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.is_guarded:
        partition.check_append(is_acks_all=True)
    header = peek_header(batch)
    return broker.replicas.append_own(partition, memoryview(batch), header, now_ms).base_offset


def append_marker(broker: Broker, partition: Partition, marker: TransactionMarker) -> None:
    """Append the end of a producer's transaction. Raises ``KafkaError``."""
    if marker.transaction_version >= RAISES_EPOCH:
        entry = partition.log.producers.entries.get(marker.producer_id)
        if (
            entry is not None
            and entry.transaction_first_offset >= 0
            and entry.producer_epoch == marker.producer_epoch
        ):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"the marker is of the transaction before that of epoch {entry.producer_epoch}",
            )
    now_ms = broker.clock.wall_ms()
    append_own(broker, partition, build_marker(marker, now_ms), now_ms)
    broker.transactions.verifications.on_marker(partition.topic_partition, marker.producer_id)


def when_committed(
    broker: Broker, partition: Partition, timeout_ms: int, done: Callable[[ErrorCode], None]
) -> None:
    """``PartitionLog.when_committed``."""
    end_offset = partition.log.log_end_offset
    if partition.is_closed:
        done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif partition.high_watermark >= end_offset:
        done(ErrorCode.NONE)
    else:

        def finish(failed: Mapping[Partition, ErrorCode]) -> None:
            done(failed.get(partition, ErrorCode.NONE))

        DelayedProduce({partition: end_offset}, timeout_ms, broker.scheduler, finish)


class LoadingLog:
    """Replays a partition's log into a shard."""

    def __init__(self, broker: Broker, partition: Partition, shard: Shard) -> None:
        self._broker = broker
        self._partition = partition
        self._shard = shard
        self._turn = Turn()
        self.record_count = 0

    async def load(self) -> None:
        """Raises ``KafkaError``, ``StorageError`` or ``OSError`` when the log cannot be read."""
        log = self._partition.log
        position, end_offset = log.log_start_offset, log.log_end_offset
        while position < end_offset:
            if self._partition.is_closed:
                raise KafkaError(self._partition.close_reason)
            read = log.read(position, LOAD_BYTES, end_offset, True)
            if isinstance(read, ColdRead):
                await self._broker.threads.call(read.pull)
                continue
            if read.region is None:
                break
            data = await self._read(read.region)
            await self._replay_batches(data, log.log_start_offset)
            position = read.next_offset

    async def _read(self, region: FileRegion) -> bytes:
        descriptor = region.file.pin()
        try:
            return await self._broker.threads.call(
                partial(os.pread, descriptor, region.length, region.position)
            )
        finally:
            region.file.unpin()

    async def _replay_batches(self, data: bytes, log_start_offset: int) -> None:
        for header, batch in _batches(data):
            try:
                if header.is_control:
                    self._replay_marker(batch)
                else:
                    await self._replay_batch(header, batch, log_start_offset)
            except MalformedBatch as error:
                logger.error(
                    "%s: the batch at offset %d is passed over: %s",
                    self._partition.topic_partition, header.base_offset, error,
                )  # fmt: skip
            if self._turn.is_over:
                await self._turn.pass_on()

    def _replay_marker(self, batch: memoryview) -> None:
        marker = parse_marker(batch)
        if marker is not None:
            self._shard.replay_marker(marker.producer_id, marker.is_commit)

    async def _replay_batch(
        self, header: BatchHeader, batch: memoryview, log_start_offset: int
    ) -> None:
        payload: bytes | memoryview = batch[HEADER_SIZE:]
        if header.codec != Codec.NONE:
            payload = await self._broker.threads.call(
                partial(_decompressed, header.codec, batch[HEADER_SIZE:])
            )
        producer_id = header.producer_id if header.is_transactional else -1
        turn, shard = self._turn, self._shard
        for record in iter_payload(payload, header):
            if record.offset >= log_start_offset and record.key is not None:
                self._replay(shard, record, producer_id)
            if turn.is_over:
                await turn.pass_on()

    def _replay(self, shard: Shard, record: Record, producer_id: int) -> None:
        assert record.key is not None
        self.record_count += 1
        try:
            shard.replay(record.offset, record.key, record.value, producer_id)
        except ValueError as error:
            logger.error(
                "%s: the record at offset %d is passed over: %s",
                self._partition.topic_partition, record.offset, error,
            )  # fmt: skip


def _decompressed(codec: int, data: memoryview) -> bytes:
    return bytes(decompress(codec, data, MAX_DECOMPRESSED_BYTES))


def _batches(data: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    view = memoryview(data)
    position = 0
    while len(view) - position >= HEADER_SIZE:
        header = peek_header(view[position:])
        end = position + header.size_in_bytes
        yield header, view[position:end]
        position = end
