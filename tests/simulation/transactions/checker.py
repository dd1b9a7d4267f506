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
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from broker.coordinator.transaction.records import read_transaction, read_transactional_id
from broker.coordinator.transaction.states import TransactionState
from broker.coordinator.transaction.transaction import Transaction
from broker.metadata.tree import Effect
from broker.model.ids import BrokerId
from broker.model.internal_topics import TRANSACTION_STATE
from broker.model.transaction_marker import TransactionMarker
from broker.records.batch import iter_records
from broker.records.control import parse_marker
from broker.records.header import BatchHeader, walk_headers
from tests.simulation.checker import Checker
from tests.simulation.transactions.ledger import Part, Transfer, read_part

if TYPE_CHECKING:
    from tests.simulation.transactions.clients import ReadAnswer
    from tests.simulation.transactions.story import TransactionStory

_COMPLETED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class Batch(NamedTuple):
    header: BatchHeader
    data: bytes

    @property
    def marker(self) -> TransactionMarker:
        found = parse_marker(self.data)
        assert found is not None
        return found

    @property
    def values(self) -> list[bytes]:
        return [record.value or b"" for record in iter_records(self.data, 1 << 16)]


def batches_in(data: bytes) -> Iterator[Batch]:
    for position, header in walk_headers(memoryview(data)):
        yield Batch(header, data[position : position + header.size_in_bytes])


class TransactionChecker:
    """All topics of the story."""

    def __init__(self, story: TransactionStory) -> None:
        self._story = story
        self.coordinator = CoordinatorChecker(story, TRANSACTION_STATE)
        self.partitions = {
            topic: PartitionChecker(story, topic, self) for topic in story.topics[1:]
        }
        self._all: list[Checker] = [self.coordinator, *self.partitions.values()]
        self.transfers: dict[tuple[str, int, int], Transfer] = {}
        #: The highest epoch that a producer was initialised with, by transactional id.
        self._newest: dict[str, int] = {}
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

    def on_initialised(self, transactional_id: str, producer: int, producer_epoch: int) -> None:
        self._story.world.tell(f"{transactional_id}.{producer} has epoch {producer_epoch}")
        newest = max(self._newest.get(transactional_id, -1), producer_epoch)
        self._newest[transactional_id] = newest
        for transfer in self.transfers.values():
            if transfer.is_commit_asked is None and self.is_zombie(transfer):
                transfer.is_fenced = True

    def is_zombie(self, transfer: Transfer) -> bool:
        return self._newest[transfer.key[0]] > transfer.first_epoch

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

    # The end -----------------------------------------------------------------------------------

    def at_the_end(self) -> None:
        for each in self._all:
            each.at_the_end()
        missing = {owner.name for owner in self._story.owners} - self._committed_since_healing
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

    def describe(self) -> str:
        outcomes = Counter(transfer.outcome for transfer in self.transfers.values())
        producers = sum(owner.count for owner in self._story.owners)
        return (
            f"{outcomes[True]} transactions committed, {outcomes[False]} aborted, "
            f"{outcomes[None]} left by {producers} producers; {self.marker_count} markers, "
            f"{self.repeated_marker_count} of them repeated; coordinators of "
            f"{len(self.coordinator.leader_epochs)} epochs"
        )


class PartitionChecker(Checker):
    """One topic with transactions."""

    def __init__(self, story: TransactionStory, topic: str, whole: TransactionChecker) -> None:
        super().__init__(story, topic)
        self._whole_story = whole
        #: First offset of what is open, as all batches up to the reader's place say, by producer id.
        self._open: dict[int, int] = {}
        #: Whether the transaction of a data batch was committed, by the batch's offset.
        self._outcomes: dict[int, bool] = {}
        self._in_transaction: dict[int, list[int]] = {}
        self._told_stable_offset = 0
        #: Where the next stable read begins.
        self.stable_offset = 0
        #: Parts in order, by transaction.
        self.visible: dict[tuple[str, int, int], list[int]] = {}
        self._last_place: dict[str, tuple[int, int]] = {}
        self._markers: list[TransactionMarker] = []
        self._epochs: dict[int, tuple[int, int]] = {}

    # Reading -----------------------------------------------------------------------------------

    def on_answer(self, answer: ReadAnswer) -> None:
        self.on_read(answer.leader_epoch, answer.high_watermark, answer.data)
        for batch in batches_in(answer.data):
            self._follow(batch)
        if answer.last_stable_offset < self._told_stable_offset:
            self.fail(
                f"T3: last stable offset {answer.last_stable_offset} of {self._topic} "
                f"after {self._told_stable_offset}"
            )
        self._told_stable_offset = answer.last_stable_offset
        if self.consumer_offset == answer.high_watermark and self._open:
            first = min(self._open.values())
            if answer.last_stable_offset > first:
                self.fail(
                    f"T3: last stable offset {answer.last_stable_offset} of {self._topic} is beyond "
                    f"the open transaction at {first}"
                )
        self._take_stable(answer.stable_data, answer.aborted)

    def _follow(self, batch: Batch) -> None:
        """The truth by the markers: which transaction is open, how each has ended."""
        header = batch.header
        producer_id = header.producer_id
        if not header.is_control:
            self._open.setdefault(producer_id, header.base_offset)
            self._in_transaction.setdefault(producer_id, []).append(header.base_offset)
            self._check_epochs(header, None)
            return
        marker = batch.marker
        self._check_epochs(header, marker)
        self._markers.append(marker)
        whole = self._whole_story
        whole.marker_count += 1
        if self._open.pop(producer_id, None) is None:
            whole.repeated_marker_count += 1
        for offset in self._in_transaction.pop(producer_id, ()):
            self._outcomes[offset] = marker.is_commit

    def _check_epochs(self, header: BatchHeader, marker: TransactionMarker | None) -> None:
        epoch, coordinator_epoch = self._epochs.get(header.producer_id, (-1, -1))
        new = coordinator_epoch if marker is None else marker.coordinator_epoch
        if header.producer_epoch < epoch or new < coordinator_epoch:
            self.fail(
                f"T5: {header.producer_id} in {self._topic} at {header.base_offset}: epoch "
                f"{header.producer_epoch} after {epoch}, coordinator {new} after {coordinator_epoch}"
            )
        self._epochs[header.producer_id] = (header.producer_epoch, new)

    def _take_stable(self, data: bytes, aborted: list[tuple[int, int]]) -> None:
        """As Kafka's clients do: by the list that came with the data."""
        left, skipped = sorted(aborted, key=lambda each: each[1]), set[int]()
        for batch in batches_in(data):
            header = batch.header
            while left and left[0][1] <= header.last_offset:
                skipped.add(left.pop(0)[0])
            if header.is_control:
                if not batch.marker.is_commit:
                    skipped.discard(header.producer_id)
            else:
                is_visible = header.producer_id not in skipped
                if is_visible is not self._outcomes.get(header.base_offset):
                    self.fail(
                        f"T4: offset {header.base_offset} of {self._topic}: visible {is_visible}, "
                        f"by its marker {self._outcomes.get(header.base_offset)}"
                    )
                if is_visible:
                    for value in batch.values:
                        self._see(read_part(value))
            self.stable_offset = header.last_offset + 1

    def _see(self, part: Part) -> None:
        transfer = self._whole_story.transfers[part.transfer]
        if transfer.is_commit_asked is not True:
            self.fail(f"T1: {transfer} is visible in {self._topic}, and was never to be committed")
        if transfer.is_fenced:
            self.fail(f"T2: {transfer} of a zombie is visible in {self._topic}")
        seen = self.visible.setdefault(part.transfer, [])
        if part.part != len(seen):
            self.fail(f"T1: part {part.part} of {transfer} in {self._topic} after {seen}")
        seen.append(part.part)
        if transfer.place < self._last_place.get(part.transactional_id, transfer.place):
            self.fail(f"T1: {transfer} in {self._topic} comes after a later one")
        self._last_place[part.transactional_id] = transfer.place

    # The end -----------------------------------------------------------------------------------

    def _check_records(self, data: bytes) -> None:
        """Of the whole log: nothing is open."""
        first: dict[int, Batch] = {}
        for batch in batches_in(data):
            if batch.header.is_control:
                first.pop(batch.header.producer_id, None)
            else:
                first.setdefault(batch.header.producer_id, batch)
        for batch in first.values():
            transfer = self._whole_story.transfers[read_part(batch.values[0]).transfer]
            self.fail(
                f"T7: {transfer} is open in {self._topic} since {transfer.began_ms}, "
                f"from offset {batch.header.base_offset}"
            )

    def check_markers(self, decided: set[tuple[int, int, bool]]) -> None:
        for marker in self._markers:
            if marker[:3] not in decided:
                self.fail(f"T5: {marker} in {self._topic} was never decided")


class CoordinatorChecker(Checker):
    """``__transaction_state``."""

    def __init__(self, story: TransactionStory, topic: str) -> None:
        super().__init__(story, topic)
        #: Producer id and epoch of markers, and whether they commit.
        self.decided: set[tuple[int, int, bool]] = set()
        self.leader_epochs: set[int] = set()

    def _check_records(self, data: bytes) -> None:
        histories: dict[str, list[Transaction]] = {}
        for batch in batches_in(data):
            self.leader_epochs.add(batch.header.partition_leader_epoch)
            for record in iter_records(batch.data, 1 << 16):
                assert record.key is not None
                assert record.value is not None
                transactional_id = read_transactional_id(record.key)
                assert transactional_id is not None
                after = read_transaction(record.value)
                self._follow(transactional_id, histories.setdefault(transactional_id, []), after)
        for transactional_id, history in histories.items():
            if not history[-1].state.is_at_rest:
                self.fail(f"T7: {transactional_id} stays {history[-1]}")

    def _follow(
        self, transactional_id: str, history: list[Transaction], after: Transaction
    ) -> None:
        """A record that was not committed in time is replaced by the next, and nobody may have acted on it."""
        while history and history[-1].state.is_prepared:
            before = history[-1]
            if after.state is _COMPLETED[before.state]:
                is_commit = before.state is TransactionState.PREPARE_COMMIT
                self.decided.add((before.producer_id, before.producer_epoch, is_commit))
                break
            history.pop()
        before_state = history[-1].state if history else None
        if after.state in _COMPLETED.values() and (
            before_state is None or after.state not in (before_state, _COMPLETED.get(before_state))
        ):
            self.fail(f"T6: {transactional_id}: {after} after {before_state!r}")
        history.append(after)
