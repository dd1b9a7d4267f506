"""Transactions along the part of a log that is being cleaned, read front to back.

The rules are those of Kafka's ``CleanedTransactionMetadata``: records of aborted transactions go; a
marker stays for as long as any batch of its transaction was seen, and its entry in the transaction
index with it; afterwards it may go once its delete horizon has passed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from broker.records.control import parse_marker
from broker.records.header import BatchHeader
from broker.storage.transaction_index import AbortedTransaction


class CleanedTransactions:
    """Knows of every transaction that ended below the last stable offset; to be told of batches in
    order, and of aborted transactions before the segment in which they begin."""

    def __init__(self) -> None:
        #: By first offset: aborted ones that have not begun yet.
        self._coming: list[tuple[int, AbortedTransaction]] = []
        #: Producer id -> the aborted transaction under way, and whether a batch of it was seen.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        for transaction in transactions:
            heapq.heappush(self._coming, (transaction.first_offset, transaction))

    def _begin_up_to(self, offset: int) -> None:
        coming = self._coming
        while coming and coming[0][0] <= offset:
            _, transaction = heapq.heappop(coming)
            self._aborted.setdefault(transaction.producer_id, (transaction, False))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether this batch of data belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (found[0], True)
        return True

    def end(self, header: BatchHeader, batch: bytes) -> tuple[bool, AbortedTransaction | None]:
        """A control batch: whether nothing needs it any more, and what the index is to keep."""
        self._begin_up_to(header.last_offset)
        if not header.record_count:
            return True, None  # its marker is gone already
        marker = parse_marker(batch)
        if marker is None:
            return False, None
        if marker.is_commit:
            was_seen = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not was_seen, None
        transaction, was_seen = self._aborted.pop(header.producer_id, (None, False))
        return not was_seen, transaction if was_seen else None
