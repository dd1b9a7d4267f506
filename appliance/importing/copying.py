"""Fetches from the source's leaders and has the broker here append; one task for each of the source's brokers.

While one answer's batches are appended the next answer is fetched, so that two of them are in memory at most
for each broker. A leader that changes or cannot be reached, there or here, is looked for again until ``patience_ms``
have passed without anything having come; meanwhile the others go on, a moment at a time. Where the broker here could
not take a piece, the copy is adrift until its end has been asked for, and goes on from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.failure import CommandError
from appliance.importing.batches import Ready, is_part_of_one, make_ready
from appliance.importing.here import Here, NotNow, Position
from appliance.importing.patience import PAUSE_S, passes
from appliance.importing.progress import PartitionCopy, Refused, Verdict, verdict_of
from appliance.importing.spool import Spool
from broker.clock import Clock
from broker.model.ids import TopicPartition
from broker.records.header import MalformedBatch
from dashboard.cluster import KafkaFailure
from dashboard.gateway import Gateway, OffsetAt
from dashboard.gateway.batch_reader import BatchReader, BatchSlice

#: How long the others go on, while some partitions have to be looked for.
LOOK_AGAIN_MS: Final = 1000
Piece = tuple[PartitionCopy, Ready]


@dataclass(slots=True)
class Totals:
    records: int = 0
    size: int = 0


class Copying:
    """One run over ``copies``; ``totals`` counts what was appended."""

    def __init__(
        self,
        here: Here,
        source: Gateway,
        reader: BatchReader,
        spool: Spool,
        clock: Clock,
        patience_ms: int,
        progress: Callable[[], None],
    ) -> None:
        self._here = here
        self._source = source
        self._reader = reader
        self._spool = spool
        self._clock = clock
        self._patience_ms = patience_ms
        self._progress = progress
        self._ends_here: dict[TopicPartition, int] = {}
        self._came_ms = clock.monotonic_ms()
        self._look_at_ms: int | None = None
        """When those that fetch stop for a moment, because somebody waits."""
        self._waits_for = ""
        """What the broker here last said why not now."""
        self.totals = Totals()

    async def run(self, copies: Sequence[PartitionCopy]) -> None:
        """Until every partition is done or has failed."""
        self._came_ms = self._clock.monotonic_ms()
        for copy in copies:
            self._ends_here.setdefault(copy.partition, copy.first_offset)
        while True:
            await asyncio.to_thread(self._settle, copies)
            if not any(copy.is_left for copy in copies):
                return
            await self._drain_all([copy for copy in copies if copy.is_open])
            if any(copy.is_left for copy in copies):
                await self._look_again()

    async def _drain_all(self, copies: Sequence[PartitionCopy]) -> None:
        """From all leaders that are known, until they have nothing more or somebody has to be looked for."""
        by_leader: dict[int, list[PartitionCopy]] = {}
        for copy in copies:
            leader = self._reader.leader(copy.partition)
            if leader is not None:
                by_leader.setdefault(leader, []).append(copy)
        self._look_at_ms = None
        if sum(map(len, by_leader.values())) < len(copies):
            self._look_soon()
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

    def _look_soon(self) -> None:
        if self._look_at_ms is None:
            self._look_at_ms = self._clock.monotonic_ms() + LOOK_AGAIN_MS

    async def _look_again(self) -> None:
        if self._clock.monotonic_ms() - self._came_ms > self._patience_ms:
            raise CommandError(
                f"the broker here does not take any more: {self._waits_for}"
                if self._waits_for
                else "the source gives nothing any more: its leaders cannot be found or reached",
                hint="Called again, the import goes on where it is.",
                code="NOT_CONNECTED",
            )
        self._progress()
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
                order = {key: copy for key, copy in order.items() if copy.is_open}
                is_awaited = (
                    self._look_at_ms is not None and self._clock.monotonic_ms() >= self._look_at_ms
                )
                if not order or is_awaited:
                    return
                positions = {key: copy.position for key, copy in order.items()}
                try:
                    slices = await self._reader.fetch(node_id, positions)
                except KafkaFailure:
                    self._look_soon()
                    return
                pieces, is_well = await self._taken(slices, order)
                if appending is not None:
                    await appending
                appending = asyncio.create_task(
                    asyncio.to_thread(self._append, f"from-{node_id}", pieces)
                )
                if not is_well:
                    self._look_soon()
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
        given = [each for each in slices if order[each.partition].is_open]
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
                    is_well = await asyncio.to_thread(self._find_start, copy) and is_well
                elif verdict is Verdict.FAILED:
                    raise Refused(f"the source answers {each.error.name}")
                else:
                    is_well = False
            except (Refused, MalformedBatch) as error:
                copy.failure = str(error)
        return pieces, is_well

    def _find_start(self, copy: PartitionCopy) -> bool:
        """Whether the source could tell."""
        key = copy.partition
        try:
            first = self._source.offsets([key], OffsetAt.EARLIEST)[key]
            stable = self._source.offsets([key], OffsetAt.LATEST, read_committed=True)[key]
        except KafkaFailure as failure:
            first = stable = failure
        for told in (first, stable):
            if isinstance(told, KafkaFailure):
                if passes(told):
                    return False
                raise Refused(f"the source does not tell where it begins: {told}")
        assert not isinstance(first, KafkaFailure)
        assert not isinstance(stable, KafkaFailure)
        copy.on_out_of_range(first.offset, stable.offset)
        return True

    # In a thread

    def _append(self, name: str, pieces: Sequence[Piece]) -> None:
        if not pieces:
            return
        path = self._spool.write(name, [ready.data for _, ready in pieces])
        position = 0
        for copy, ready in pieces:
            if copy.failure is None and not copy.is_adrift:
                self._append_one(copy, ready, path, position)
            position += len(ready.data)
        self._progress()

    def _append_one(self, copy: PartitionCopy, ready: Ready, path: Path, position: int) -> None:
        key = copy.partition
        start = copy.start_before(ready, self._ends_here[key])
        if start is not None and not self._begin_at(copy, start):
            return
        size, at = len(ready.data), self._ends_here[key]
        try:
            outcome = self._here.append(key, copy.source, path, position, size, at)
        except CommandError as error:
            self._on_refused(copy, error)
        else:
            if self._note_end(copy, outcome):
                copy.is_empty = False
                self.totals.records += ready.record_count
                self.totals.size += size

    def _begin_at(self, copy: PartitionCopy, offset: int) -> bool:
        try:
            return self._note_end(copy, self._here.start(copy.partition, copy.source, offset))
        except CommandError as error:
            self._on_refused(copy, error)
            return False

    def _note_end(self, copy: PartitionCopy, outcome: int | NotNow) -> bool:
        if isinstance(outcome, NotNow):
            copy.is_adrift = True
            self._waits_for = outcome.reason
            self._look_soon()
            return False
        self._ends_here[copy.partition] = outcome
        self._came_ms = self._clock.monotonic_ms()
        self._waits_for = ""
        return True

    def _settle(self, copies: Sequence[PartitionCopy]) -> None:
        """Ask where copies that are adrift end; and those of which the source has nothing left go on where it does."""
        adrift: dict[tuple[str, str], list[PartitionCopy]] = {}
        for copy in copies:
            if copy.is_adrift and copy.failure is None:
                adrift.setdefault((copy.partition.topic, copy.source), []).append(copy)
        for (topic, source), of_topic in adrift.items():
            indexes = [copy.partition.partition for copy in of_topic]
            told = self._here.positions(topic, source, indexes)
            for copy, position in zip(of_topic, told, strict=True):
                if isinstance(position, Position):
                    copy.go_on_from(position.start_offset, position.end_offset)
                    self._ends_here[copy.partition] = position.end_offset
                else:
                    self._waits_for = position.reason
        for copy in copies:
            is_behind = copy.source_start > self.end_here(copy)
            if is_behind and copy.is_done and not copy.is_adrift and copy.failure is None:
                self._begin_at(copy, copy.source_start)

    async def trim(self, copies: Sequence[PartitionCopy]) -> None:
        """What the source has deleted is deleted here, too."""
        self._came_ms = self._clock.monotonic_ms()
        left = [copy for copy in copies if copy.source_start > 0 and copy.failure is None]
        while left:
            left = await asyncio.to_thread(self._trim_each, left)
            if left:
                await self._look_again()

    def _trim_each(self, copies: Sequence[PartitionCopy]) -> list[PartitionCopy]:
        """Those that have to be tried again."""
        self._settle(copies)
        for copy in copies:
            if not copy.is_adrift:
                self._begin_at(copy, min(copy.source_start, self.end_here(copy)))
        return [copy for copy in copies if copy.is_adrift and copy.failure is None]

    def end_here(self, copy: PartitionCopy) -> int:
        """Where the copy ends now."""
        return self._ends_here.get(copy.partition, copy.first_offset)

    @staticmethod
    def _on_refused(copy: PartitionCopy, error: CommandError) -> None:
        if error.item.code == "NOT_CONNECTED":
            raise error
        copy.failure = error.item.message
