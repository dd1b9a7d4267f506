"""Kafka's metadata records: bytes to plain values, by the generated table of layouts.

A record's value is a frame (its version, the record's API key and version, all unsigned varints)
around one flexible message. Tags that the table does not know are passed over, as every flexible
message allows; a newer version of a record is refused, because its plain fields cannot be told.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.adopt.layout_types import Field
from broker.adopt.record_layouts import LAYOUTS

FRAME_VERSION: Final = 1
_FIXED: Final = {
    "bool": struct.Struct(">?"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}
_MAX_VARINT_BYTES: Final = 5


class MalformedRecord(Exception):
    """These bytes are not a metadata record that we can read."""


class MetadataRecord(NamedTuple):
    """``values`` by Kafka's field names; fields that the version lacks have their default."""

    name: str
    version: int
    values: Mapping[str, Any]


def decode_record(data: bytes) -> MetadataRecord | None:
    """None for a kind of record that an adoption does not read. Raises ``MalformedRecord``."""
    reader = _Reader(data)
    frame_version = reader.uvarint()
    if frame_version != FRAME_VERSION:
        raise MalformedRecord(f"a frame of version {frame_version}")
    api_key, version = reader.uvarint(), reader.uvarint()
    layout = LAYOUTS.get(api_key)
    if layout is None:
        return None
    if version > layout.last_version:
        raise MalformedRecord(
            f"{layout.name} of version {version}, written by a newer Kafka;"
            f" {layout.last_version} is the newest known"
        )
    values = _message(reader, layout.fields, version)
    if reader.position != len(data):
        raise MalformedRecord(f"{len(data) - reader.position} bytes behind a {layout.name}")
    return MetadataRecord(layout.name, version, values)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise MalformedRecord(f"{size} bytes wanted at {self.position} of {len(self.data)}")
        part = self.data[self.position : end]
        self.position = end
        return part

    def uvarint(self) -> int:
        value = 0
        for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedRecord("a number that does not end")

    def fixed(self, layout: struct.Struct) -> Any:
        return layout.unpack(self.take(layout.size))[0]


def _message(reader: _Reader, fields: Sequence[Field], version: int) -> dict[str, Any]:
    present = [f for f in fields if f.first_version <= version <= f.last_version]
    values = {field.name: field.default for field in fields}
    for field in present:
        if field.tag < 0:
            values[field.name] = _value(reader, field.kind, field, version)
    tagged = {field.tag: field for field in present if field.tag >= 0}
    for _ in range(reader.uvarint()):
        tag, part = reader.uvarint(), _Reader(reader.take(reader.uvarint()))
        known = tagged.get(tag)
        if known is not None:
            values[known.name] = _value(part, known.kind, known, version)
    return values


def _value(reader: _Reader, kind: str, field: Field, version: int) -> Any:
    fixed = _FIXED.get(kind)
    if fixed is not None:
        return reader.fixed(fixed)
    if kind == "uuid":
        return uuid.UUID(bytes=reader.take(16))
    if kind in ("string", "bytes"):
        return _sized(reader, kind, field, version)
    if kind.startswith("[]"):
        count = reader.uvarint() - 1
        if count < 0:
            _check_null(field, version)
            return None
        # Every element takes a byte at least, which bounds what a lie can cost.
        if count > len(reader.data) - reader.position:
            raise MalformedRecord(f"{field.name} claims {count} elements")
        return tuple(_value(reader, kind[2:], field, version) for _ in range(count))
    return _message(reader, field.fields, version)


def _sized(reader: _Reader, kind: str, field: Field, version: int) -> str | bytes | None:
    size = reader.uvarint() - 1
    if size < 0:
        _check_null(field, version)
        return None
    data = reader.take(size)
    if kind == "bytes":
        return data
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise MalformedRecord(f"{field.name} is no text: {error}") from error


def _check_null(field: Field, version: int) -> None:
    if not 0 <= field.nullable_from <= version:
        raise MalformedRecord(f"{field.name} is null")
