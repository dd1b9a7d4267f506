"""Readers of everything, and of what is committed, as Kafka's clients filter that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from broker.model.errors import KafkaError
from broker.storage.cold import ColdRead
from tests.simulation.broker import Process
from tests.simulation.clients import Metadata
from tests.simulation.transactions.batches import batches_in
from tests.simulation.transactions.coordination import CoordinatedPartition, TransactingProcess

if TYPE_CHECKING:
    from tests.simulation.transactions.story import TransactionStory

Aborted = list[tuple[int, int]]


class ReadAnswer(NamedTuple):
    leader_epoch: int
    high_watermark: int
    last_stable_offset: int
    #: From the reader's place on, up to the high watermark.
    data: bytes
    #: From the place of what it takes as committed, up to the last stable offset.
    stable_data: bytes
    aborted: Aborted


class Reader:
    """Reads a topic twice: all of it, and what is committed, as a client filters that."""

    def __init__(self, story: TransactionStory, topic: str) -> None:
        self._story = story
        self._topic = topic
        self._metadata = Metadata(story, topic)
        story.world.call_later(250, self._read)

    def _read(self) -> None:
        partition = self._story.checker.followed[self._topic]
        offset, stable_offset = partition.consumer_offset, partition.stable_offset

        def serve(to: Process, answer: Callable[[ReadAnswer | None], None]) -> None:
            assert isinstance(to, TransactingProcess)
            answer(read(to, self._topic, offset, stable_offset))

        self._story.client_request(self._metadata.refresh(), serve, self._ended, timeout_ms=500)

    def _ended(self, answer: ReadAnswer | None) -> None:
        if answer is not None and answer.leader_epoch >= self._metadata.leader_epoch:
            self._metadata.leader_epoch = answer.leader_epoch
            self._story.checker.followed[self._topic].on_answer(answer)
        self._story.world.call_later(120, self._read)


def read(
    process: TransactingProcess, topic: str, offset: int | None, stable_offset: int
) -> ReadAnswer | None:
    """``offset`` None: only what is committed."""
    hosted = process.partitions[topic]
    partition = hosted.current
    if partition is None:
        return None
    try:
        end = partition.readable_end(is_read_committed=False)
        stable_end = partition.readable_end(is_read_committed=True)
    except KafkaError:
        return None
    data = b"" if offset is None else _read_through(hosted, offset, end)
    stable = _read_through(hosted, stable_offset, stable_end)
    aborted = partition.log.aborted_transactions(stable_offset, stable_end)
    while isinstance(aborted, ColdRead):
        aborted.pull()
        aborted = partition.log.aborted_transactions(stable_offset, stable_end)
    return ReadAnswer(partition.leader_epoch, end, stable_end, data, stable, aborted)


def _read_through(hosted: CoordinatedPartition, offset: int, end: int) -> bytes:
    """A read ends with its segment."""
    found = b""
    while offset < end and (part := hosted.read(offset, end)):
        found += part
        for batch in batches_in(part):
            offset = batch.header.last_offset + 1
    return found
