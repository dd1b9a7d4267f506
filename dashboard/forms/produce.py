"""The form of new records: text, Base64 or hex into bytes, headers in their order, several at once."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from django.http import QueryDict

from dashboard.cluster import Record
from dashboard.services.producing import COMPRESSIONS, NewRecord

FORMATS = {"text": "text", "base64": "Base64", "hex": "hex"}
SEPARATORS = {
    "line": ("one a line", "\n"),
    "blank": ("parted by empty lines", "\n\n"),
    "own": ("parted by the text beside", ""),
}
MOST_RECORDS = 1000
MOST_HEADERS = 100
LONGEST_SEPARATOR = 20


NULL = "null"


class HeaderField(NamedTuple):
    name: str = ""
    value: str = ""
    format: str = "text"
    """One of FORMATS, or NULL."""


@dataclass(slots=True)
class ProduceForm:
    key: str = ""
    key_format: str = "text"
    key_is_null: bool = True
    value: str = ""
    value_format: str = "text"
    value_is_null: bool = False
    headers: list[HeaderField] = field(default_factory=list)
    partition: str = ""
    """Empty: the key decides."""
    compression: str = "none"
    is_several: bool = False
    separator: str = "line"
    own_separator: str = ""
    key_separator: str = ""
    """With several: what parts key and value; empty: all have the key above."""
    errors: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, data: QueryDict) -> ProduceForm:
        form = cls(
            # A browser sends the ends of lines as CR LF, whatever was typed.
            key=data.get("key", "").replace("\r\n", "\n"),
            key_format=_one_of(data, "key_format", FORMATS),
            key_is_null="key_is_null" in data,
            value=data.get("value", "").replace("\r\n", "\n"),
            value_format=_one_of(data, "value_format", FORMATS),
            value_is_null="value_is_null" in data,
            partition=data.get("partition", "").strip(),
            compression=_one_of(data, "compression", dict.fromkeys(COMPRESSIONS)),
            is_several="several" in data,
            separator=_one_of(data, "separator", SEPARATORS),
            own_separator=data.get("own_separator", "")[:LONGEST_SEPARATOR],
            key_separator=data.get("key_separator", "")[:LONGEST_SEPARATOR],
        )
        columns = zip(
            data.getlist("header_name"),
            data.getlist("header_value"),
            data.getlist("header_format"),
            strict=False,
        )
        form.headers = [
            HeaderField(name, value, each if each in (*FORMATS, NULL) else "text")
            for name, value, each in columns
            if name or value
        ][:MOST_HEADERS]
        return form

    @classmethod
    def again(cls, record: Record) -> ProduceForm:
        """The form that produces this record once more, bytes that are no text as Base64."""
        key, key_format = _shown(record.key)
        value, value_format = _shown(record.value)
        headers = []
        for name, content in record.headers:
            text, each = _shown(content)
            headers.append(HeaderField(name, text, NULL if content is None else each))
        return cls(
            key=key,
            key_format=key_format,
            key_is_null=record.key is None,
            value=value,
            value_format=value_format,
            value_is_null=record.value is None,
            headers=headers,
            partition=str(record.partition),
        )

    @property
    def header_rows(self) -> list[HeaderField]:
        """Those that are there, and one to fill in."""
        return [*self.headers, HeaderField()]

    @property
    def partition_index(self) -> int | None:
        return int(self.partition) if self.partition else None

    def records(self) -> list[NewRecord]:
        """What is to be sent; with ``errors``, nothing is."""
        if self.partition and not (self.partition.isascii() and self.partition.isdigit()):
            self.errors["partition"] = "That is not a partition."
        key = None if self.key_is_null else self._bytes("key", self.key, self.key_format)
        headers = [
            (
                header.name,
                None
                if header.format == NULL
                else self._bytes("headers", header.value, header.format),
            )
            for header in self.headers
        ]
        if any(not header.name for header in self.headers):
            self.errors["headers"] = "A header needs a name."
        if self.value_is_null:
            if key is None:
                self.errors["key"] = "A tombstone marks a key as deleted: it needs one."
            return [NewRecord(key, None, headers)]
        if self.is_several:
            return self._several(key, headers)
        return [NewRecord(key, self._bytes("value", self.value, self.value_format), headers)]

    def _several(
        self, key: bytes | None, headers: list[tuple[str, bytes | None]]
    ) -> list[NewRecord]:
        separator = SEPARATORS[self.separator][1] or self.own_separator
        if not separator:
            self.errors["separator"] = "Say what parts the records."
            return []
        pieces = [piece for piece in self.value.split(separator) if piece]
        if not pieces or len(pieces) > MOST_RECORDS:
            self.errors["value"] = f"1 to {MOST_RECORDS} records at once; these are {len(pieces)}."
            return []
        records = []
        for piece in pieces:
            own_key, text = key, piece
            if self.key_separator:
                typed, found, rest = piece.partition(self.key_separator)
                if not found:
                    self.errors["value"] = f"A record without “{self.key_separator}” has no key."
                    return []
                own_key, text = self._bytes("key", typed, self.key_format), rest
            records.append(
                NewRecord(own_key, self._bytes("value", text, self.value_format), headers)
            )
        return records

    def _bytes(self, place: str, text: str, written: str) -> bytes:
        try:
            if written == "base64":
                return base64.b64decode("".join(text.split()), validate=True)
            if written == "hex":
                return bytes.fromhex(text)
            return text.encode()
        except (binascii.Error, ValueError):
            self.errors[place] = f"That is not {FORMATS[written]}."
            return b""


def _one_of(data: QueryDict, name: str, allowed: Mapping[str, object]) -> str:
    said = data.get(name, "")
    return said if said in allowed else next(iter(allowed))


def _shown(content: bytes | None) -> tuple[str, str]:
    """Text where the bytes are text that a form gives back as it is, Base64 otherwise."""
    if content is None:
        return "", "text"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), "base64"
    if "\r" in text or "\0" in text:
        return base64.b64encode(content).decode(), "base64"
    return text, "text"
