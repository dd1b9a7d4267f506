"""What must hold of transactions, besides what holds of any partition (I2 to I8).

T1  a transaction's records are all there for read_committed, or none, each once, in order; what was
    answered, of a commit or an abort, is what came
T2  a producer commits nothing, and writes nothing, that it asked for after a later one was initialised
T3  the last stable offset never passes an open transaction, and never goes back
T4  what readers are told of aborted transactions is what the markers say
T5  markers say only what the coordinator's log has decided; a producer's epochs, and its coordinators',
    never go back in a partition
T6  the coordinator's log: what is prepared is completed, or replaced before anybody acted on it; nothing
    else is completed
T7  after everything has healed no transaction stays open, and every id commits again

Of copy jobs (``copying.py``):

E1  what is committed in the target is what is committed in the source: all of it, once, in order
E2  an offset that was committed in a transaction is told, and stays, if and only if that was committed (T1 of
    ``__consumer_offsets``); what a group is told never goes back

Of compacted topics, on each broker:

C1  what is left of a log comes to the same as all that was ever in it
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.metadata.tree import Effect
from broker.model.ids import BrokerId
from broker.model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from tests.simulation.checker import Checker
from tests.simulation.transactions.copy_checkers import TARGET, CopiesChecker, OffsetsChecker
from tests.simulation.transactions.ledger import Name, Transfer, read_part
from tests.simulation.transactions.log_checkers import (
    CoordinatorChecker,
    FollowingChecker,
    PartitionChecker,
)

if TYPE_CHECKING:
    from tests.simulation.transactions.story import TransactionStory

_SPECIAL: dict[str, type[PartitionChecker]] = {
    CONSUMER_OFFSETS: OffsetsChecker,
    TARGET: CopiesChecker,
}


class TransactionChecker:
    """All topics of the story."""

    def __init__(self, story: TransactionStory) -> None:
        self._story = story
        self.coordinator = CoordinatorChecker(story, TRANSACTION_STATE)
        self.partitions = {
            topic: _SPECIAL.get(topic, PartitionChecker)(story, topic, self)
            for topic in story.topics
            if topic != TRANSACTION_STATE
        }
        #: What readers follow.
        self.followed: dict[str, FollowingChecker] = {
            TRANSACTION_STATE: self.coordinator,
            **self.partitions,
        }
        self._all: list[Checker] = [self.coordinator, *self.partitions.values()]
        self.transfers: dict[tuple[str, int, int], Transfer] = {}
        #: The highest that a producer was initialised with, by transactional id.
        self._newest: dict[str, Name] = {}
        #: The highest committed offset of the group that anybody was told.
        self.told_offset = -1
        self._committed_since_healing: set[str] = set()
        self.marker_count = self.repeated_marker_count = 0

    def fail(self, what: str) -> None:
        self.coordinator.fail(what)

    def on_store_change(self, effect: Effect) -> None:
        for each in self._all:
            each.on_store_change(effect)

    def on_crash(self, broker_id: BrokerId, is_power_lost: bool) -> None:
        """Excuses nothing."""

    def on_answered(self, broker_id: BrokerId) -> None:
        pass

    def after_event(self) -> None:
        for each in self._all:
            each.after_event()

    # Producers ---------------------------------------------------------------------------------

    def on_initialised(self, transactional_id: str, producer: int, name: Name) -> None:
        self._story.world.tell(f"{transactional_id}.{producer} is {name[0]} of epoch {name[1]}")
        self._newest[transactional_id] = max(self._newest.get(transactional_id, name), name)
        for transfer in self.transfers.values():
            if transfer.is_commit_asked is None and self.is_zombie(transfer):
                transfer.is_fenced = True

    def is_zombie(self, transfer: Transfer) -> bool:
        return self._newest[transfer.key[0]] > transfer.first_name

    def on_begun(self, transfer: Transfer) -> None:
        transfer.is_fenced = self.is_zombie(transfer)
        self.transfers[transfer.key] = transfer

    def on_end_asked(self, transfer: Transfer) -> None:
        self._story.world.tell(f"{transfer}: commit {transfer.is_commit_asked} is asked for")

    def on_ended(self, transfer: Transfer, is_commit: bool) -> None:
        self._story.world.tell(f"{transfer}: commit {is_commit} is answered")
        if is_commit and transfer.is_fenced:
            self.fail(f"T2: {transfer} was committed by a zombie")
        transfer.outcome = is_commit
        if is_commit and self._story.is_healed:
            self._committed_since_healing.add(transfer.key[0])

    # Copies ------------------------------------------------------------------------------------

    def on_offset_told(self, offset: int, metadata: str | None, known: int) -> None:
        """``known``: what anybody had been told before this was asked."""
        self._story.world.tell(f"committed offset {offset} of {metadata!r}")
        if offset < known:
            self.fail(f"E2: committed offset {offset} is told after {known}")
        self.told_offset = max(self.told_offset, offset)
        if offset >= 0:
            assert metadata is not None
            transfer = self.transfers[read_part(metadata.encode()).transfer]
            if transfer.is_commit_asked is not True or transfer.outcome is False:
                self.fail(f"E2: offset {offset} of {transfer} is told, which was not committed")
            if transfer.end_offset != offset:
                self.fail(f"E2: offset {offset} is told, {transfer} had {transfer.end_offset}")

    # The end -----------------------------------------------------------------------------------

    def at_the_end(self) -> None:
        for each in self._all:
            each.at_the_end()
        missing = {
            owner.name for owner in self._story.owners if owner.is_always_busy
        } - self._committed_since_healing
        if missing:
            self.fail(f"T7: {sorted(missing)} could not commit after healing")
        for partition in self.partitions.values():
            partition.check_markers(self.coordinator.decided)
        for transfer in self.transfers.values():
            self._check_outcome(transfer)

    def _check_outcome(self, transfer: Transfer) -> None:
        seen = {
            topic: partition.visible.get(transfer.key, [])
            for topic, partition in self.partitions.items()
        }
        found = {topic: parts for topic, parts in seen.items() if parts}
        if not found:
            if transfer.outcome:
                self.fail(f"T1: {transfer} was answered as committed, and is nowhere")
            return
        if transfer.is_commit_asked is not True or transfer.outcome is False:
            self.fail(f"T1: {transfer} was not committed, but there is {found}")
        expected = {topic: list(range(count)) for topic, count in transfer.counts.items()}
        if found != expected:
            self.fail(f"T1: of {transfer} there is {found}, not {expected}")

    @property
    def copied_count(self) -> int:
        return sum(
            len(each.copied) for each in self.partitions.values() if isinstance(each, CopiesChecker)
        )

    def describe(self) -> str:
        outcomes = Counter(transfer.outcome for transfer in self.transfers.values())
        producers = sum(owner.count for owner in self._story.owners)
        return (
            f"{outcomes[True]} transactions committed, {outcomes[False]} aborted, "
            f"{outcomes[None]} left by {producers} producers; {self.marker_count} markers, "
            f"{self.repeated_marker_count} of them repeated; coordinators of "
            f"{len(self.coordinator.leader_epochs)} epochs; {self.coordinator.forgotten_count} ids "
            f"forgotten, {self._story.cleaned_records} records compacted, {self.copied_count} copied"
        )
