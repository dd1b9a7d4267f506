"""Fetches from the source's leaders and has the broker here append; one task for each of the source's brokers.

While one answer's batches are appended the next answer is fetched, so that two of them are in memory at most
for each broker. A leader that changes or cannot be reached is looked for again until ``patience_ms`` have
passed without anything having come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from appliance import control
from appliance.failure import CommandError
from appliance.importing.batches import Ready, is_part_of_one, make_ready
from appliance.importing.progress import PartitionCopy, Refused, Verdict, verdict_of
from appliance.importing.spool import Spool
from broker.clock import Clock
from broker.model.ids import TopicPartition
from broker.records.header import MalformedBatch
from dashboard.cluster import KafkaFailure
from dashboard.gateway import Gateway, OffsetAt
from dashboard.gateway.batch_reader import BatchReader, BatchSlice

PAUSE_S: Final = 0.3
Piece = tuple[PartitionCopy, Ready]


@dataclass(slots=True)
class Totals:
    records: int = 0
    size: int = 0


class Copying:
    """One run over ``copies``; ``totals`` counts what was appended."""

    def __init__(
        self,
        data: Path,
        source: Gateway,
        reader: BatchReader,
        spool: Spool,
        clock: Clock,
        patience_ms: int,
        progress: Callable[[], None],
    ) -> None:
        self._data = data
        self._source = source
        self._reader = reader
        self._spool = spool
        self._clock = clock
        self._patience_ms = patience_ms
        self._progress = progress
        self._ends_here: dict[TopicPartition, int] = {}
        self._came_ms = clock.monotonic_ms()
        self.totals = Totals()

    async def run(self, copies: Sequence[PartitionCopy]) -> None:
        """Until every partition is done or has failed."""
        self._came_ms = self._clock.monotonic_ms()
        for copy in copies:
            self._ends_here.setdefault(copy.partition, copy.first_offset)
        for copy in copies:
            if copy.source_start > copy.first_offset and copy.failure is None and copy.is_done:
                await asyncio.to_thread(self._begin_at, copy, copy.source_start)
        while left := _left(copies):
            by_leader: dict[int, list[PartitionCopy]] = {}
            for copy in left:
                leader = self._reader.leader(copy.partition)
                if leader is not None:
                    by_leader.setdefault(leader, []).append(copy)
            tasks = [
                asyncio.create_task(self._drain(node_id, of_node))
                for node_id, of_node in by_leader.items()
            ]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            if _left(copies):
                await self._look_again()

    async def _look_again(self) -> None:
        if self._clock.monotonic_ms() - self._came_ms > self._patience_ms:
            raise CommandError(
                "the source gives nothing any more: its leaders cannot be found or reached",
                hint="Called again, the import goes on where it is.",
                code="NOT_CONNECTED",
            )
        await asyncio.sleep(PAUSE_S)
        try:
            await self._reader.look_again()
        except KafkaFailure:
            return  # it is tried again, until the patience has ended

    async def _drain(self, node_id: int, copies: list[PartitionCopy]) -> None:
        """From one broker, until it has nothing more of these or something has to be looked at."""
        appending: asyncio.Task[None] | None = None
        order = {copy.partition: copy for copy in copies}
        try:
            while True:
                order = {key: copy for key, copy in order.items() if _is_open(copy)}
                if not order:
                    return
                positions = {key: copy.position for key, copy in order.items()}
                try:
                    slices = await self._reader.fetch(node_id, positions)
                except KafkaFailure:
                    return
                pieces, is_well = await self._taken(slices, order)
                if appending is not None:
                    await appending
                appending = asyncio.create_task(
                    asyncio.to_thread(self._append, f"from-{node_id}", pieces)
                )
                if not is_well:
                    return
        finally:
            if appending is not None:
                await appending

    async def _taken(
        self, slices: Iterable[BatchSlice], order: dict[TopicPartition, PartitionCopy]
    ) -> tuple[list[Piece], bool]:
        """The batches of an answer; and whether no leader has to be looked for again."""
        pieces: list[Piece] = []
        is_well = True
        given = [each for each in slices if _is_open(order[each.partition])]
        is_silent = not any(each.data or each.error for each in given)
        for each in given:
            copy = order[each.partition]
            verdict = verdict_of(each.error)
            try:
                if verdict is Verdict.GO_ON and each.data:
                    ready = make_ready(each.data, copy.position, copy.end_offset)
                    if ready.data:
                        pieces.append((copy, ready))
                        copy.on_ready(ready)
                        order[copy.partition] = order.pop(copy.partition)
                    elif not is_part_of_one(each.data):
                        copy.on_nothing()
                elif verdict is Verdict.GO_ON:
                    if is_silent and each.last_stable_offset >= copy.end_offset:
                        copy.on_nothing()
                elif verdict is Verdict.OUT_OF_RANGE:
                    await asyncio.to_thread(self._find_start, copy)
                elif verdict is Verdict.FAILED:
                    raise Refused(f"the source answers {each.error.name}")
                else:
                    is_well = False
            except (Refused, MalformedBatch) as error:
                copy.failure = str(error)
        return pieces, is_well

    def _find_start(self, copy: PartitionCopy) -> None:
        key = copy.partition
        first = self._source.offsets([key], OffsetAt.EARLIEST)[key]
        stable = self._source.offsets([key], OffsetAt.LATEST, read_committed=True)[key]
        if isinstance(first, KafkaFailure) or isinstance(stable, KafkaFailure):
            raise Refused(f"the source does not tell where it begins: {first}")
        copy.on_out_of_range(first.offset, stable.offset)

    # In a thread

    def _append(self, name: str, pieces: Sequence[Piece]) -> None:
        if not pieces:
            return
        path = self._spool.write(name, [ready.data for _, ready in pieces])
        position = 0
        for copy, ready in pieces:
            if copy.failure is None:
                self._append_one(copy, ready, path, position)
            position += len(ready.data)
        self._came_ms = self._clock.monotonic_ms()
        self._progress()

    def _append_one(self, copy: PartitionCopy, ready: Ready, path: Path, position: int) -> None:
        key = copy.partition
        start = copy.start_before(ready, self._ends_here[key])
        if start is not None and not self._begin_at(copy, start):
            return
        answer = self._ask(
            copy,
            "import_append",
            path=str(path),
            position=position,
            size=len(ready.data),
            at=self._ends_here[key],
        )
        if answer is not None:
            self._ends_here[key] = answer["end_offset"]
            copy.is_empty = False
            self.totals.records += ready.record_count
            self.totals.size += len(ready.data)

    def _begin_at(self, copy: PartitionCopy, offset: int) -> bool:
        answer = self._ask(copy, "import_start", offset=offset)
        if answer is None:
            return False
        self._ends_here[copy.partition] = answer["end_offset"]
        return True

    def trim(self, copy: PartitionCopy) -> None:
        """What the source has deleted is deleted here, too."""
        if copy.source_start > 0 and copy.failure is None:
            self._begin_at(copy, min(copy.source_start, self.end_here(copy)))

    def end_here(self, copy: PartitionCopy) -> int:
        """Where the copy ends now."""
        return self._ends_here.get(copy.partition, copy.first_offset)

    def _ask(self, copy: PartitionCopy, command: str, **arguments: Any) -> dict[str, Any] | None:
        topic, index = copy.partition
        try:
            return control.ask(
                self._data,
                command,
                topic=topic,
                partition=index,
                **{"from": copy.source},
                **arguments,
            )
        except CommandError as error:
            if error.item.code == "NOT_CONNECTED":
                raise
            copy.failure = error.item.message
            return None


def _is_open(copy: PartitionCopy) -> bool:
    return not copy.is_done and copy.failure is None


def _left(copies: Iterable[PartitionCopy]) -> list[PartitionCopy]:
    return [copy for copy in copies if _is_open(copy)]
