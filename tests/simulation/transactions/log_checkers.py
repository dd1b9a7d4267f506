"""Checkers of single logs: of any topic with transactions, and of the coordinator's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from broker.coordinator.transaction.records import read_transaction, read_transactional_id
from broker.coordinator.transaction.states import TransactionState
from broker.coordinator.transaction.transaction import Transaction
from broker.model.transaction_marker import TransactionMarker
from broker.records.header import BatchHeader
from broker.records.record import Record
from tests.simulation.checker import Checker
from tests.simulation.partition import HostedPartition
from tests.simulation.transactions.batches import Batch, batches_in, committed_batches
from tests.simulation.transactions.effective import Effective, Value
from tests.simulation.transactions.ledger import Name, Part, read_part

if TYPE_CHECKING:
    from tests.simulation.transactions.checker import TransactionChecker
    from tests.simulation.transactions.readers import ReadAnswer
    from tests.simulation.transactions.story import TransactionStory

_COMPLETED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class FollowingChecker(Checker):
    """Of a log that a reader follows: it has seen everything, also what is compacted since."""

    def __init__(self, story: TransactionStory, topic: str) -> None:
        super().__init__(story, topic)
        self._story = story
        #: Where the next read of what is committed begins.
        self.stable_offset = 0
        self._is_compacted = story.config_of(topic).is_compacted
        self._effective = Effective()

    def on_answer(self, answer: ReadAnswer) -> None:
        self.on_read(answer.leader_epoch, answer.high_watermark, answer.data)
        for batch in batches_in(answer.data):
            self._follow(batch)
            if self._is_compacted:
                self._effective.follow(batch)
        for batch in batches_in(answer.stable_data):
            self.stable_offset = batch.header.last_offset + 1

    def _follow(self, batch: Batch) -> None:
        """The next one, in order."""
        raise NotImplementedError

    def _whole(self, hosted: HostedPartition, end_offset: int) -> Any:
        """Compacted, logs differ from broker to broker: what they come to must not."""
        if not self._is_compacted:
            return super()._whole(hosted, end_offset)
        return self._comes_to(hosted, self.consumer_offset)

    def _comes_to(self, hosted: HostedPartition, end_offset: int) -> Mapping[bytes, Value]:
        effective = Effective()
        for batch in batches_in(super()._whole(hosted, end_offset)):
            effective.follow(batch)
        return effective.values()

    def clean(self, hosted: HostedPartition, clean: Callable[[int], bool]) -> bool:
        """``clean`` goes up to that offset: what nobody has followed yet must stay whole."""
        end_offset = min(self.consumer_offset, self.stable_offset)
        before = self._comes_to(hosted, end_offset)
        is_alive = clean(end_offset)
        if is_alive and (after := self._comes_to(hosted, end_offset)) != before:
            keys = [key for key in {**before, **after} if before.get(key) != after.get(key)]
            self.fail(f"C1: {hosted.broker_id} has cleaned {self._topic}, and {keys} are others")
        return is_alive

    def _check_compacted(self) -> None:
        if self._is_compacted:
            for hosted in self._story.leaders(self._topic):
                found, expected = self._whole(hosted, 0), self._effective.values()
                if found != expected:
                    keys = [key for key in expected if found.get(key) != expected[key]]
                    self.fail(
                        f"C1: {self._topic} on {hosted.broker_id} differs from what was written: "
                        f"{keys or set(found) - set(expected)}"
                    )


class PartitionChecker(FollowingChecker):
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
        #: Of committed records.
        self.visible_offsets: list[int] = []
        #: Parts in order, by transaction.
        self.visible: dict[tuple[str, int, int], list[int]] = {}
        self._last_place: dict[str, tuple[Name, int]] = {}
        self._markers: list[TransactionMarker] = []
        self._epochs: dict[int, tuple[int, int]] = {}

    # Reading -----------------------------------------------------------------------------------

    def on_answer(self, answer: ReadAnswer) -> None:
        super().on_answer(answer)
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
        if not header.is_transactional:
            return
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
        for batch, is_visible in committed_batches(data, aborted):
            header = batch.header
            is_right = self._outcomes.get(header.base_offset) if header.is_transactional else True
            if is_visible is not is_right:
                self.fail(
                    f"T4: offset {header.base_offset} of {self._topic}: visible {is_visible}, "
                    f"by its marker {is_right}"
                )
            for record in batch.records if is_visible else ():
                self.see_record(record)

    def see_record(self, record: Record) -> None:
        """It is committed."""
        self.visible_offsets.append(record.offset)
        assert record.value is not None
        self.see(read_part(record.value))

    def see(self, part: Part) -> None:
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
        for producer_id, offset in self._open.items():
            self.fail(f"T7: {producer_id} is open in {self._topic} from offset {offset}")
        self._check_compacted()

    def check_markers(self, decided: set[tuple[int, int, bool]]) -> None:
        for marker in self._markers:
            if marker[:3] not in decided:
                self.fail(f"T5: {marker} in {self._topic} was never decided")


class CoordinatorChecker(FollowingChecker):
    """``__transaction_state``."""

    def __init__(self, story: TransactionStory, topic: str) -> None:
        super().__init__(story, topic)
        #: Producer id and epoch of markers, and whether they commit.
        self.decided: set[tuple[int, int, bool]] = set()
        self.leader_epochs: set[int] = set()
        self._histories: dict[str, list[Transaction]] = {}
        #: Ids that had not been used for long.
        self.forgotten_count = 0

    def _follow(self, batch: Batch) -> None:
        self.leader_epochs.add(batch.header.partition_leader_epoch)
        for record in batch.records:
            assert record.key is not None
            transactional_id = read_transactional_id(record.key)
            assert transactional_id is not None
            history = self._histories.setdefault(transactional_id, [])
            if record.value is None:
                history.clear()
                self.forgotten_count += 1
            else:
                self._note(transactional_id, history, read_transaction(record.value))

    def _check_records(self, data: bytes) -> None:
        for transactional_id, history in self._histories.items():
            if history and not history[-1].state.is_at_rest:
                self.fail(f"T7: {transactional_id} stays {history[-1]}")
        self._check_compacted()

    def _note(self, transactional_id: str, history: list[Transaction], after: Transaction) -> None:
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
