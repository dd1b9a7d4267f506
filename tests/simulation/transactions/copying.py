"""Copy jobs: members of one group, each with a transactional id, that take what is committed in the source, write it
to the target and commit the offsets within the transaction (KIP-447).

Members come, go, fall silent amid a transaction and go on as zombies; whoever has the source's partition changes with every
generation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from broker.coordinator.group.requests import (
    AskedTopic,
    CommitRequest,
    CommittedPartition,
    FetchedOffset,
    FetchedTopic,
    JoinAnswer,
    JoinRequest,
    Protocol,
    SyncAnswer,
    SyncRequest,
)
from broker.coordinator.result import Producer
from broker.model.error_code import ErrorCode
from broker.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.simulation.transactions.asking import PAUSE_MS, Fenced, Serve, TransactionalClient
from tests.simulation.transactions.batches import committed_batches
from tests.simulation.transactions.coordination import TransactingProcess
from tests.simulation.transactions.readers import ReadAnswer, read

GROUP: Final = "copiers"
SOURCE: Final = "orders"
TARGET: Final = "copies"
SESSION_TIMEOUT_MS: Final = 1500
#: The group answers a join when all its members have come, or are given up.
JOIN_TIMEOUT_MS: Final = 4000

_REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS})
_FORGOTTEN = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
)


class Copier(TransactionalClient):
    is_always_busy = False

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._member_id = ""
        self._generation_id = -1
        self._transfers = 0

    async def _work(self) -> None:
        while not self._owner.is_ending:
            has_partition = await self._join()
            if has_partition is None:
                await asyncio.sleep(PAUSE_MS / 1000)
            else:
                await self._live(has_partition)

    # The group ---------------------------------------------------------------------------------

    async def _join(self) -> bool | None:
        """Whether the partition is ours in the new generation; None: there is none for us."""
        protocol = Protocol("range", b"%d" % self._story.world.rng.randrange(1 << 16))
        request = JoinRequest(
            GROUP, self._member_id, None, "consumer", (protocol,),
            SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS, str(self), "host", False, False,
        )  # fmt: skip

        def join(to: TransactingProcess, answer: Callable[[JoinAnswer], None]) -> None:
            to.face.groups.join(request, answer)

        joined = await self._ask(CONSUMER_OFFSETS, join, JOIN_TIMEOUT_MS)
        if joined is None or joined.error is not ErrorCode.NONE:
            if joined is not None and joined.error in _FORGOTTEN:
                self._member_id = ""
            return None
        self._member_id, self._generation_id = joined.member_id, joined.generation_id
        members = sorted(member.member_id for member in joined.members)
        shares = [
            (member, b"yes" if place == joined.generation_id % len(members) else b"")
            for place, member in enumerate(members)
        ]
        return await self._sync(shares)

    async def _sync(self, shares: list[tuple[str, bytes]]) -> bool | None:
        request = SyncRequest(
            GROUP, self._member_id, None, self._generation_id, "consumer", "range", shares
        )

        def sync(to: TransactingProcess, answer: Callable[[SyncAnswer], None]) -> None:
            to.face.groups.sync(request, answer)

        synced = await self._ask(CONSUMER_OFFSETS, sync, JOIN_TIMEOUT_MS)
        if synced is None or synced.error is not ErrorCode.NONE:
            if synced is not None and synced.error in _FORGOTTEN:
                self._member_id = ""
            return None
        self._story.world.tell(
            f"{self} is in generation {self._generation_id}, has {synced.assignment!r}"
        )
        return synced.assignment == b"yes"

    async def _live(self, has_partition: bool) -> None:
        """Until the next rebalance."""
        rng, offset = self._story.world.rng, -1
        while not self._owner.is_ending:
            if self._story.is_healed and self._owner.current is not self:
                raise Fenced("replaced")  # or all zombies had the partition in turn
            error = await self._ask(CONSUMER_OFFSETS, self._heartbeat())
            if error in _FORGOTTEN:
                self._member_id = ""
                return
            if error in _REJOIN or rng.random() < 0.01:
                return
            if has_partition:
                if offset < 0:
                    offset = await self._committed_offset()
                offset = await self._copy(offset)
            await asyncio.sleep(rng.randrange(20, 150) / 1000)

    def _heartbeat(self) -> Serve[ErrorCode]:
        member_id, generation_id = self._member_id, self._generation_id

        def serve(to: TransactingProcess, answer: Callable[[ErrorCode], None]) -> None:
            to.face.groups.heartbeat(GROUP, member_id, None, generation_id, answer)

        return serve

    # Offsets -----------------------------------------------------------------------------------

    async def _committed_offset(self) -> int:
        """Once it is settled: no transaction that could change it is open."""
        story = self._story
        asked = [AskedTopic(SOURCE, story.topic_ids[SOURCE], [0])]

        def serve(
            to: TransactingProcess, answer: Callable[[FetchedOffset | ErrorCode], None]
        ) -> None:
            def told(error: ErrorCode, topics: list[FetchedTopic]) -> None:
                answer(topics[0].offsets[0] if error is ErrorCode.NONE else error)

            to.face.groups.fetch(GROUP, asked, True, told)  # type: ignore[arg-type]

        while True:
            known = story.checker.told_offset
            found = await self._ask(CONSUMER_OFFSETS, serve)
            if isinstance(found, FetchedOffset) and found.error is ErrorCode.NONE:
                story.checker.on_offset_told(found.offset, found.metadata, known)
                return max(found.offset, 0)
            await asyncio.sleep(PAUSE_MS / 1000)

    def _commit(self, offset: int, metadata: str) -> Serve[ErrorCode]:
        producer = Producer(self._producer_id, self._producer_epoch)
        part = CommittedPartition(SOURCE, self._story.topic_ids[SOURCE], 0, offset, -1, metadata)
        request = CommitRequest(
            GROUP, self._member_id, None, self._generation_id, None, [part], False
        )

        def serve(to: TransactingProcess, answer: Callable[[ErrorCode], None]) -> None:
            to.face.commit_offsets(
                self._owner.name, request, producer, self._owner.is_raising, answer
            )

        return serve

    # A transaction -----------------------------------------------------------------------------

    async def _copy(self, offset: int) -> int:
        """Where to go on; -1: where the group's committed offset says."""
        rng = self._story.world.rng
        found = await self._read(offset)
        found = found[: rng.choice((1, 4, 20))]
        if not found:
            return offset
        self._transfers += 1
        transfer = self._new_transfer(self._transfers, {TARGET: len(found), CONSUMER_OFFSETS: 1})
        transfer.end_offset = found[-1] + 1
        values = [b"%b.%d" % (transfer.value(part), at) for part, at in enumerate(found)]
        if self.is_classic:
            await self._until_known(TRANSACTION_STATE, self._add([TARGET]), "add")
        await self._write(transfer, TARGET, values)
        if rng.random() < 0.12 and self._story.may_dawdle:
            await asyncio.sleep(rng.randrange(20, 2500) / 1000)
        if self.is_classic:
            await self._until_known(TRANSACTION_STATE, self._add([CONSUMER_OFFSETS]), "add")
        was_zombie = self._story.checker.is_zombie(transfer)
        is_in_group = await self._commit_until_known(transfer.end_offset, str(transfer))
        if was_zombie and is_in_group:
            self._story.checker.fail(f"T2: {transfer} is a zombie's, and its offset was accepted")
        if rng.random() < 0.12 and self._story.may_dawdle:
            await asyncio.sleep(rng.randrange(SESSION_TIMEOUT_MS, 2 * SESSION_TIMEOUT_MS) / 1000)
        is_commit = is_in_group and rng.random() < 0.85
        await self._finish(transfer, is_commit)
        return transfer.end_offset if is_commit else -1

    async def _commit_until_known(self, offset: int, transfer: str) -> bool:
        """Whether we are still in the group, in its generation."""
        serve = self._commit(offset, f"{transfer}.0")
        while (error := await self._ask(CONSUMER_OFFSETS, serve)) is not ErrorCode.NONE:
            if error in _FORGOTTEN:
                return False
            await self._pause_or_end(error, "commit offsets")
        return True

    async def _read(self, offset: int) -> list[int]:
        """Offsets of committed records from there on."""

        def serve(to: TransactingProcess, answer: Callable[[ReadAnswer | None], None]) -> None:
            answer(read(to, SOURCE, None, offset))

        told = await self._ask(SOURCE, serve, 500)
        if told is None:
            return []
        return [
            record.offset
            for batch, is_visible in committed_batches(told.stable_data, told.aborted)
            if is_visible
            for record in batch.records
            if record.offset >= offset
        ]
