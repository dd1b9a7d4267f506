"""What a partition knows of its producers: sequences for idempotence, open transactions.

The last five batches of each producer id are remembered, so a repeated one is answered with its
first offset instead of being stored twice (KIP-98). Ongoing transactions, and ended ones whose
marker is not below the high watermark yet, hold the last stable offset back. The rules, and the
words of the errors, are those of Kafka's ``ProducerStateManager`` and ``ProducerAppendInfo``.

State changes only through batches that were appended (``update``), so that a refused or failed
append leaves no trace. It is derived from the log: snapshot files only spare reading all of it.

Hot path: ``check`` and ``update`` run per batch with a producer id, about 1 us together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.model.error_code import ErrorCode
from broker.model.errors import KafkaError
from broker.model.transaction_marker import TransactionMarker
from broker.records.header import NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader
from broker.storage.producer_snapshot import SnapshotEntry
from broker.storage.transaction_index import AbortedTransaction

BATCHES_TO_REMEMBER: Final = 5
#: Idle producers beyond this are forgotten, the longest idle first: a client that asks for
#: producer ids in a loop must not fill the memory.
MAX_PRODUCERS: Final = 50_000
_LAST_SEQUENCE: Final = 0x7FFF_FFFF


class RememberedBatch(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_sequence(self) -> int:
        """Sequences wrap to 0 behind 2^31-1."""
        return (self.last_sequence - self.offset_delta) & _LAST_SEQUENCE

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer id on one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        #: -1 without an ongoing transaction.
        self.transaction_first_offset = -1
        self.batches: list[RememberedBatch] = []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerState:
    """All producers of one partition, as of ``end_offset``."""

    __slots__ = ("_ended", "_ongoing", "end_offset", "entries")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.end_offset = 0
        #: First offset -> producer id, in rising order.
        self._ongoing: dict[int, int] = {}
        #: First offset -> marker's offset, of ended transactions at or above the high watermark.
        self._ended: dict[int, int] = {}

    # Before an append ------------------------------------------------------------------------

    def check(self, header: BatchHeader) -> RememberedBatch | None:
        """What a client's data batch meets: its duplicate, an error, or None if it may be stored."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            # Never seen, or forgotten since: any sequence may start (G29).
            return None
        last_sequence = header.last_sequence
        producer_epoch = header.producer_epoch
        if last_sequence == NO_SEQUENCE:
            # The group coordinator writes a transaction's offsets without sequences; no client can.
            self._check_producer_epoch(entry, producer_epoch)
            return None
        if producer_epoch == entry.producer_epoch:
            for batch in entry.batches:
                if batch.last_sequence == last_sequence and (
                    batch.base_sequence == header.base_sequence
                ):
                    return batch
        self._check_producer_epoch(entry, producer_epoch)
        self._check_sequence(entry, header)
        if entry.transaction_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {header.producer_id} has an open transaction here and sent a batch outside it",
            )
        return None

    def check_marker(self, header: BatchHeader, marker: TransactionMarker) -> None:
        """Whether the transaction coordinator may end this producer's transaction."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return
        self._check_producer_epoch(entry, header.producer_epoch)
        if entry.coordinator_epoch > marker.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Coordinator epoch {marker.coordinator_epoch} is older than {entry.coordinator_epoch}",
            )

    def _check_producer_epoch(self, entry: ProducerEntry, producer_epoch: int) -> None:
        if producer_epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {entry.producer_id} came with epoch {producer_epoch}, "
                f"{entry.producer_epoch} was seen before",
            )

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader) -> None:
        base_sequence = header.base_sequence
        if header.producer_epoch != entry.producer_epoch:
            if base_sequence != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Producer {entry.producer_id} began epoch {header.producer_epoch} with sequence "
                    f"{base_sequence} instead of 0",
                )
            return
        last_sequence = entry.last_sequence
        in_sequence = base_sequence == last_sequence + 1 or (
            base_sequence == 0 and last_sequence == _LAST_SEQUENCE
        )
        if not in_sequence and entry.producer_epoch != NO_PRODUCER_EPOCH:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {entry.producer_id} sent sequence {base_sequence}, {last_sequence} was its last",
            )

    # After an append -------------------------------------------------------------------------

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """A data batch was stored at ``base_offset``."""
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self._add(producer_id, header.producer_epoch)
        elif entry.producer_epoch != header.producer_epoch:
            entry.producer_epoch = header.producer_epoch
            entry.batches.clear()
        batches = entry.batches
        if len(batches) == BATCHES_TO_REMEMBER:
            del batches[0]
        delta = header.last_offset_delta
        batches.append(
            RememberedBatch(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
        )
        entry.last_timestamp = header.max_timestamp
        if header.attributes & 0x10 and entry.transaction_first_offset < 0:
            entry.transaction_first_offset = base_offset
            self._ongoing[base_offset] = producer_id

    def end_transaction(
        self, header: BatchHeader, marker: TransactionMarker, offset: int
    ) -> AbortedTransaction | None:
        """A marker was stored at ``offset``. Gives the entry that the transaction index needs."""
        producer_id = header.producer_id
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self._add(producer_id, header.producer_epoch)
        elif entry.producer_epoch != header.producer_epoch:
            entry.producer_epoch = header.producer_epoch
            entry.batches.clear()
        first_offset = entry.transaction_first_offset
        entry.transaction_first_offset = -1
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        if first_offset < 0:
            return None
        self._ongoing.pop(first_offset, None)
        self._ended[first_offset] = offset
        if marker.is_commit:
            return None
        last_stable_offset = next(iter(self._ongoing), offset + 1)
        return AbortedTransaction(producer_id, first_offset, offset, last_stable_offset)

    def _add(self, producer_id: int, producer_epoch: int) -> ProducerEntry:
        if len(self.entries) >= MAX_PRODUCERS:
            self._forget_idle()
        entry = self.entries[producer_id] = ProducerEntry(producer_id, producer_epoch)
        return entry

    def _forget_idle(self) -> None:
        """Make room: a tenth of the producers go, the longest idle ones without a transaction."""
        idle = [entry for entry in self.entries.values() if entry.transaction_first_offset < 0]
        idle.sort(key=lambda entry: entry.last_timestamp)
        for entry in idle[: MAX_PRODUCERS // 10]:
            del self.entries[entry.producer_id]

    # Stability -------------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int:
        """First offset whose transaction is open, or ended but not replicated; -1 if none."""
        ongoing = next(iter(self._ongoing), -1)
        if not self._ended:
            return ongoing
        ended = min(self._ended)
        return ended if ongoing < 0 else min(ongoing, ended)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Ended transactions whose marker is below ``high_watermark`` are stable now."""
        if self._ended:
            self._ended = {
                first: last for first, last in self._ended.items() if last >= high_watermark
            }

    # Time, snapshots, truncation -------------------------------------------------------------

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that were idle for ``expiration_ms``; gives how many."""
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.transaction_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)

    def snapshot(self) -> list[SnapshotEntry]:
        entries = []
        for entry in self.entries.values():
            last = entry.batches[-1] if entry.batches else RememberedBatch(NO_SEQUENCE, -1, 0, -1)
            entries.append(
                SnapshotEntry(
                    entry.producer_id,
                    entry.producer_epoch,
                    last.last_sequence,
                    last.last_offset,
                    last.offset_delta,
                    entry.last_timestamp,
                    entry.coordinator_epoch,
                    entry.transaction_first_offset,
                )
            )
        return entries

    def load(
        self,
        entries: list[SnapshotEntry],
        end_offset: int,
        is_expired: Callable[[SnapshotEntry], bool] = lambda entry: False,
    ) -> None:
        """Start from a snapshot that was taken at ``end_offset``."""
        self.clear(end_offset)
        for snapshot in entries:
            if snapshot.transaction_first_offset < 0 and is_expired(snapshot):
                continue
            entry = ProducerEntry(snapshot.producer_id, snapshot.producer_epoch)
            entry.coordinator_epoch = snapshot.coordinator_epoch
            entry.last_timestamp = snapshot.last_timestamp
            entry.transaction_first_offset = snapshot.transaction_first_offset
            if snapshot.last_offset >= 0:
                entry.batches.append(
                    RememberedBatch(
                        snapshot.last_sequence,
                        snapshot.last_offset,
                        snapshot.offset_delta,
                        snapshot.last_timestamp,
                    )
                )
            self.entries[entry.producer_id] = entry
        self._ongoing = dict(
            sorted(
                (entry.transaction_first_offset, entry.producer_id)
                for entry in self.entries.values()
                if entry.transaction_first_offset >= 0
            )
        )

    def clear(self, end_offset: int) -> None:
        self.entries.clear()
        self._ongoing.clear()
        self._ended.clear()
        self.end_offset = end_offset
