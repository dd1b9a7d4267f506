"""Transaction markers: what a control batch in a log means for its producer's transaction."""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from broker.records.batch import iter_records
from broker.records.header import Buffer, MalformedBatch
from broker.storage.producer_state import TransactionMarker

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1
_MAX_MARKER_BYTES: Final = 64 * 1024


def parse_marker(batch: Buffer) -> TransactionMarker | None:
    """The marker in a control batch; None for other control records and for emptied batches."""
    try:
        for record in iter_records(batch, _MAX_MARKER_BYTES):
            _, kind = _KEY.unpack_from(record.key or b"")
            if kind in (_ABORT, _COMMIT):
                _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
                return TransactionMarker(kind == _ABORT, coordinator_epoch)
    except (MalformedBatch, error):
        return None
    return None
