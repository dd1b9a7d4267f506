"""Transaction markers as storage meets them: in batches that lie in a log already.

What is no marker, or makes no sense, ends no transaction; it is stored and served all the same.
"""

from __future__ import annotations

from broker.model.transaction_marker import TransactionMarker
from broker.records.control import parse_marker
from broker.records.header import Buffer, MalformedBatch


def marker_in(batch: Buffer) -> TransactionMarker | None:
    """The marker that a control batch holds."""
    try:
        return parse_marker(batch)
    except MalformedBatch:
        return None
