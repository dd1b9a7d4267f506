"""A record as the live tail keeps it: cut to what a row shows, encoded once for all its viewers."""

from __future__ import annotations

import base64
import json
from typing import Final

from dashboard.cluster import Record
from dashboard.payloads import Bytes, Header, Row

VALUE_SHOWN: Final = 2_048
KEY_SHOWN: Final = 256
HEADERS_SHOWN: Final = 20
HEADER_SHOWN: Final = 128
"""Of a header's name, and of its value."""

_encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), check_circular=False).encode


class TailRecord:
    """``number`` counts the records of a feed, those that it jumped over included."""

    __slots__ = ("_encoded", "_record", "_sizes", "arrival", "number")

    def __init__(self, record: Record, number: int, arrival: int) -> None:
        self.number = number
        self.arrival = arrival
        """Orders the records of several feeds."""
        key, value = record.key, record.value
        self._sizes = (
            0 if key is None else len(key),
            0 if value is None else len(value),
            len(record.headers),
        )
        if self._sizes[0] > KEY_SHOWN or self._sizes[1] > VALUE_SHOWN or record.headers:
            record = _cut(record)
        self._record = record
        self._encoded: str | None = None

    @property
    def partition(self) -> int:
        return self._record.partition

    @property
    def offset(self) -> int:
        return self._record.offset

    def encoded(self) -> str:
        """The row's JSON, plain ASCII; made when first asked for."""
        if self._encoded is None:
            self._encoded = _encode(self.row())
        return self._encoded

    def row(self) -> Row:
        record = self._record
        key_size, value_size, header_count = self._sizes
        row: Row = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": str(record.offset),
            "time": str(record.timestamp_ms),
            "key": _bytes(record.key, key_size),
            "value": _bytes(record.value, value_size),
            "headers": [_header(name, value) for name, value in record.headers],
            "header_count": header_count,
        }
        if record.timestamp_type == 2:
            row["is_append_time"] = True
        return row


def _cut(record: Record) -> Record:
    return Record(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_type,
        record.timestamp_ms,
        None if record.key is None else bytes(record.key[:KEY_SHOWN]),
        None if record.value is None else bytes(record.value[:VALUE_SHOWN]),
        [
            # One byte more than is shown tells that there is more.
            (name[:HEADER_SHOWN], None if value is None else bytes(value[: HEADER_SHOWN + 1]))
            for name, value in record.headers[:HEADERS_SHOWN]
        ],
    )


def _header(name: str, value: bytes | None) -> Header:
    shown = None if value is None else _bytes(value[:HEADER_SHOWN], len(value))
    return {"name": name, "value": shown}


def _bytes(data: bytes | None, size: int) -> Bytes | None:
    if data is None:
        return None
    found: Bytes = {"size": size}
    is_cut = len(data) < size
    if is_cut:
        found["is_cut"] = True
    text = _text(data, is_cut)
    if text is None:
        found["base64"] = base64.b64encode(data).decode()
    else:
        found["text"] = text
    return found


def _text(data: bytes, is_cut: bool) -> str | None:
    """None where it is not UTF-8; a character that the cut has split is left out."""
    for shorter in range(4 if is_cut else 1):
        try:
            return data[: len(data) - shorter].decode()
        except UnicodeDecodeError as error:
            if not is_cut or error.start < len(data) - 4:
                return None
    return None
