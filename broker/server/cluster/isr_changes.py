"""Proposes ISRs to the controller, and asks the store whether a leader is alone still.

Leaders are looked at when a follower outside of the ISR has fetched, and all that are not at rest by a timer. One
request is under way at a time, with everything that was proposed meanwhile in the next one. An answer
that does not come leaves every proposal in it in doubt (``replication/isr.py``).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from broker.metadata import znodes
from broker.metadata.requests import AlteredIsr
from broker.metadata.store import Failed, Node
from broker.model.error_code import ErrorCode
from broker.model.leadership import LeaderAndIsr
from broker.replication.replicated_partition import ReplicatedPartition
from broker.server.cluster.isr_wire import AskedIsr, decode_altered, encode_proposals
from broker.server.cluster.peer import Peer, PeerError
from broker.server.cluster.private_wire import PrivateKey
from broker.server.tasks import Turn, called_back

if TYPE_CHECKING:
    from broker.server.app import Broker
    from broker.server.cluster.membership import Membership

logger: Final = logging.getLogger(__name__)

#: All leaders are looked at so often, at least.
LOOK_SECONDS: Final = 0.5
#: A leader that is alone needs the store's word within the lease of 3 s.
CONFIRM_SECONDS: Final = 1.0
MAX_PROPOSALS: Final = 500
#: Of one request that are logged each; the rest is counted.
MAX_TOLD: Final = 8
#: Asked of the store at a time; more take their turns.
MAX_CONFIRMATIONS: Final = 500
#: Between proposals after one that was not answered, or not written.
BACK_OFF_SECONDS: Final = 0.1
#: Also where this broker is the controller: a store that does not answer must not end all proposing.
ANSWER_SECONDS: Final = 15.0


class IsrChanges:
    """Everything on the loop."""

    def __init__(self, broker: Broker, membership: Membership) -> None:
        self._broker = broker
        self._membership = membership
        self._wanted: dict[ReplicatedPartition, None] = {}
        self._is_wanted = asyncio.Event()
        self._peer: Peer | None = None
        #: Where the last round of confirmations ended.
        self._confirmed_up_to = 0

    def start(self) -> None:
        tasks = self._broker.tasks
        tasks.keep(self._keep_proposing, "propose ISRs", is_vital=True)
        tasks.keep(self._keep_looking, "look at ISRs", is_vital=True)
        tasks.keep(self._keep_confirming, "confirm leaders that are alone", is_vital=True)

    def look_at(self, partition: ReplicatedPartition) -> None:
        self._wanted[partition] = None
        self._is_wanted.set()

    def on_controller(self) -> None:
        """Who is asked now is not the controller any more."""
        self._close_peer()

    # Proposals ---------------------------------------------------------------------------------

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for partition in self._broker.replicas.replicated_partitions():
                if not partition.leader.is_at_rest:
                    self._wanted[partition] = None
            self._is_wanted.set()

    async def _keep_proposing(self) -> None:
        try:
            while True:
                await self._is_wanted.wait()
                self._is_wanted.clear()
                while self._wanted:
                    proposed = await self._proposals()
                    if proposed and not await self._propose(proposed):
                        await asyncio.sleep(BACK_OFF_SECONDS)
        finally:
            self._close_peer()

    async def _proposals(self) -> list[tuple[ReplicatedPartition, AskedIsr]]:
        """What is worth proposing now, of those that are to be looked at. A failure proposes none of it: what
        is taken for proposed, and never ends, would be the partition's last proposal."""
        proposed: list[tuple[ReplicatedPartition, AskedIsr]] = []
        try:
            await self._find_proposals(proposed)
        except BaseException:
            self._end_without_answer(proposed, self._broker.clock.monotonic_ms())
            raise
        return proposed

    async def _find_proposals(self, proposed: list[tuple[ReplicatedPartition, AskedIsr]]) -> None:
        epochs = self._broker.replicas.broker_epochs
        turn = Turn()
        while self._wanted and len(proposed) < MAX_PROPOSALS:
            partition = next(iter(self._wanted))
            del self._wanted[partition]
            proposal = None if partition.is_closed else partition.propose(epochs)
            if proposal is not None:
                topic, index = partition.topic_partition
                proposed.append((partition, AskedIsr(topic, index, proposal)))
            if turn.is_over:
                if proposed:
                    break
                await turn.pass_on()
                epochs = self._broker.replicas.broker_epochs

    def _end_without_answer(
        self, proposed: list[tuple[ReplicatedPartition, AskedIsr]], asked_ms: int
    ) -> None:
        for partition, _ in proposed:
            partition.on_proposal_ended(None, None, asked_ms)

    async def _propose(self, proposed: list[tuple[ReplicatedPartition, AskedIsr]]) -> bool:
        """Gives whether all of them were written."""
        for _, asked in proposed[:MAX_TOLD]:
            logger.info("%s-%d: %s", asked.topic, asked.index, asked.proposal)
        if len(proposed) > MAX_TOLD:
            logger.info("and the ISRs of %d partitions more", len(proposed) - MAX_TOLD)
        asked_ms = self._broker.clock.monotonic_ms()
        results: list[tuple[ErrorCode, LeaderAndIsr | None]] | None = None
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                results = await self._ask([asked for _, asked in proposed])
        except (PeerError, ValueError, KeyError, TypeError, TimeoutError) as error:
            logger.info("no answer to %d proposed ISRs: %r", len(proposed), error)
            self._close_peer()
        finally:
            if results is None or len(results) != len(proposed):
                self._end_without_answer(proposed, asked_ms)
        if results is None or len(results) != len(proposed):
            return False
        for (partition, _), (code, state) in zip(proposed, results, strict=True):
            partition.on_proposal_ended(code, state, asked_ms)
        return all(code is ErrorCode.NONE for code, _ in results)

    async def _ask(self, asked: list[AskedIsr]) -> list[tuple[ErrorCode, LeaderAndIsr | None]]:
        membership = self._membership
        if membership.is_in_office:
            altered: list[AlteredIsr] = await called_back(membership.alter_isrs, asked)
            return [(each.error, each.state) for each in altered]
        peer = self._peer
        if peer is None:
            peer = self._peer = await membership.connect_to_controller()
        answer = await peer.ask_json(PrivateKey.ALTER_ISR, encode_proposals(asked))
        return decode_altered(answer)

    def _close_peer(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            peer.close()

    # Alone -------------------------------------------------------------------------------------

    async def _keep_confirming(self) -> None:
        broker_id = self._membership.broker_id
        while True:
            await asyncio.sleep(CONFIRM_SECONDS)
            alone = [
                partition
                for partition in self._broker.replicas.replicated_partitions()
                if partition.is_alone(broker_id)
            ]
            first = self._confirmed_up_to if self._confirmed_up_to < len(alone) else 0
            self._confirmed_up_to = first + MAX_CONFIRMATIONS
            for partition in alone[first : first + MAX_CONFIRMATIONS]:
                self._confirm(partition)

    def _confirm(self, partition: ReplicatedPartition) -> None:
        asked_ms = self._broker.clock.monotonic_ms()

        def found(node: Node | Failed | None) -> None:
            if isinstance(node, Node) and not partition.is_closed:
                partition.leader.on_alone_confirmed(node.version, asked_ms)

        topic, index = partition.topic_partition
        self._membership.store.get(znodes.partition_state_path(topic, index), found)
