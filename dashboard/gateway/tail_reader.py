"""Reads what arrives in one topic, on the event loop: aiokafka, no group, read_committed.

Positions are the caller's: it gives them at the start and is told them with every read, so that a
reader that died is followed by one that goes on where it ended. What a read passes over without a
record (markers, aborted transactions, holes of compaction) shows in the offsets of its slice.
Never creates a topic, nor anything else in the cluster.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as ClientPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from dashboard.cluster import Record
from dashboard.gateway.async_client import client_failures, connection_options

FETCH_BYTES: Final = 4 * 1024 * 1024
PARTITION_FETCH_BYTES: Final = 1024 * 1024
REQUEST_TIMEOUT_MS: Final = 10_000
LOOK_AROUND: Final = 32
"""Every so many reads all partitions are looked at, not only those that brought records."""


class ReadSlice(NamedTuple):
    """Records of one partition, and the offsets that were passed to get them."""

    partition: int
    start: int
    records: list[Record]
    next_offset: int
    is_jump: bool = False
    """The offsets between were not looked at."""


class TailReader:
    """One topic from chosen positions on."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str], topic: str) -> None:
        self.topic = topic
        self.positions: dict[int, int] = {}
        self._is_connected = False
        self._reads = 0
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=[server.strip() for server in bootstrap.split(",")],
            client_id="odradek-tail",
            group_id=None,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="none",
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            retry_backoff_ms=200,
            **connection_options(properties),
        )

    async def start(self, positions: Mapping[int, int | None]) -> None:
        """Read these partitions from there on; None is the end (of what is committed)."""
        with client_failures():
            await self._connect()
            unset = [self._key(index) for index, position in positions.items() if position is None]
            ends = await self._consumer.end_offsets(unset) if unset else {}
            self.positions = {
                index: ends[self._key(index)] if position is None else position
                for index, position in positions.items()
            }
            self._consumer.assign([self._key(index) for index in self.positions])
            for index, position in self.positions.items():
                self._consumer.seek(self._key(index), position)

    async def first_offsets(self, partitions: Sequence[int]) -> dict[int, int]:
        """Where each partition begins; may be asked before ``start``."""
        with client_failures():
            await self._connect()
            found = await self._consumer.beginning_offsets([self._key(one) for one in partitions])
        return {key.partition: offset for key, offset in found.items()}

    async def _connect(self) -> None:
        if not self._is_connected:
            await self._consumer.start()
            self._is_connected = True

    async def close(self) -> None:
        with contextlib.suppress(KafkaError, OSError):
            await self._consumer.stop()

    async def read(self, timeout_ms: int, max_records: int) -> list[ReadSlice]:
        """What is there, waiting at most so long for the first of it."""
        with client_failures():
            try:
                found = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=max_records)
            except OffsetOutOfRangeError as error:
                return await self._back_in_range(key.partition for key in error.args[0])
            slices = [
                ReadSlice(
                    key.partition,
                    self.positions[key.partition],
                    [_record(message) for message in messages],
                    await self._consumer.position(key),
                )
                for key, messages in found.items()
            ]
            self._reads += 1
            if not found or self._reads % LOOK_AROUND == 0:
                slices += await self._passed_in_silence({key.partition for key in found})
        for piece in slices:
            self.positions[piece.partition] = piece.next_offset
        return slices

    async def _passed_in_silence(self, read: set[int]) -> list[ReadSlice]:
        """Partitions where nothing but markers and aborted records came."""
        slices = []
        for index, position in self.positions.items():
            moved = position if index in read else await self._consumer.position(self._key(index))
            if moved != position:
                slices.append(ReadSlice(index, position, [], moved))
        return slices

    def behind(self) -> dict[int, int]:
        """Offsets between here and the end, by partition, as of the last answers."""
        found = {}
        for index, position in self.positions.items():
            end = self._consumer.last_stable_offset(self._key(index))
            if end is not None and end > position:
                found[index] = end - position
        return found

    def skip(self, partition: int, count: int) -> ReadSlice:
        """Go on so many offsets further, without reading them."""
        start = self.positions[partition]
        self.positions[partition] = start + count
        self._consumer.seek(self._key(partition), start + count)
        return ReadSlice(partition, start, [], start + count, is_jump=True)

    async def _back_in_range(self, partitions: Iterable[int]) -> list[ReadSlice]:
        """Retention has passed us, or the log was cut: go on at what is there first."""
        slices = []
        for index in partitions:
            key = self._key(index)
            first = (await self._consumer.beginning_offsets([key]))[key]
            start = min(self.positions[index], first)
            slices.append(ReadSlice(index, start, [], first, is_jump=True))
            self._consumer.seek(key, first)
            self.positions[index] = first
        return slices

    def _key(self, partition: int) -> ClientPartition:
        return ClientPartition(self.topic, partition)


def _record(message: Any) -> Record:
    return Record(
        message.topic,
        message.partition,
        message.offset,
        2 if message.timestamp_type == 1 else 1,
        message.timestamp,
        message.key,
        message.value,
        list(message.headers),
    )
