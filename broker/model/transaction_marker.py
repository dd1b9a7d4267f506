"""What a transaction marker says, wherever it is on its way to a log or back."""

from __future__ import annotations

from typing import NamedTuple


class TransactionMarker(NamedTuple):
    """How a producer's transaction ended, and who said so."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    #: ``transaction.version``: from 2 on the epoch must be above that of the transaction which it ends
    #: (KIP-1228). Not in the log.
    transaction_version: int = 0
