"""Cuts input into records: lines, lines with keys, lines with headers, or JSON objects. Pure.

The input is read in pieces as they come, so that a slow pipe's lines are sent at once and a
large file is never held in memory.
"""

from __future__ import annotations

import base64
import json
import os
import select
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

MAX_LINE_BYTES = 128 * 1024 * 1024
"""Bound of one record's line: more than any broker takes."""
READ_BYTES = 256 * 1024


class NewRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class BadInput(ValueError):
    """A line that is not a record; the message says why."""


LineParser = Callable[[bytes], NewRecord]


class LineSplitter:
    """Cuts pieces of input into lines at ``delimiter``."""

    def __init__(self, delimiter: bytes = b"\n") -> None:
        self._delimiter = delimiter
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        searched = max(0, len(self._rest) - len(self._delimiter) + 1)
        self._rest += data
        if self._rest.find(self._delimiter, searched) < 0:
            if len(self._rest) > MAX_LINE_BYTES:
                raise BadInput(f"a line is longer than {MAX_LINE_BYTES} bytes")
            return []
        *lines, rest = bytes(self._rest).split(self._delimiter)
        self._rest = bytearray(rest)
        return lines

    def end(self) -> list[bytes]:
        """The last line, when the input does not end with a delimiter."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest else []


def read_pieces(descriptor: int, idle: Callable[[], None], idle_s: float = 0.1) -> Iterator[bytes]:
    """The input as it comes; ``idle`` is called while nothing comes."""
    # poll, not select: that one knows no descriptor above 1,023.
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while True:
        if not poll.poll(idle_s * 1000):
            idle()
            continue
        data = os.read(descriptor, READ_BYTES)
        if not data:
            return
        yield data


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How a line of text becomes a record."""

    key: bytes | None = None
    key_separator: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    empty_is_null: bool = False
    null_marker: bytes | None = None

    def parse(self, line: bytes) -> NewRecord:
        key, value = self.key, line
        if self.key_separator is not None:
            key, found, value = line.partition(self.key_separator)
            if not found:
                raise BadInput(f"no key separator {self.key_separator.decode(errors='replace')!r}")
        return NewRecord(self._nullable(key), self._nullable(value), self.headers)

    def _nullable(self, data: bytes | None) -> bytes | None:
        if data == b"" and self.empty_is_null:
            return None
        return None if self.null_marker is not None and data == self.null_marker else data


def parse_json(line: bytes) -> NewRecord:
    """An object as ``consume -f json`` writes it: key, value and headers count, the rest does not.

    A value that is an object or a list itself is sent as JSON text.
    """
    try:
        found = json.loads(line)
    except ValueError as error:
        raise BadInput(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadInput("not a JSON object with key, value, headers")
    headers = found.get("headers") or []
    if not isinstance(headers, list):
        raise BadInput("headers is not a list of objects with name and value")
    return NewRecord(
        _json_bytes(found, "key"), _json_bytes(found, "value"), [_json_header(h) for h in headers]
    )


def _json_header(header: Any) -> tuple[str, bytes | None]:
    if not isinstance(header, dict) or not isinstance(header.get("name"), str):
        raise BadInput("a header is not an object with name and value")
    return header["name"], _json_bytes(header, "value")


def _json_bytes(found: dict[str, Any], name: str) -> bytes | None:
    value = found.get(name)
    if value is None:
        return None
    if found.get(f"{name}_encoding") == "base64":
        try:
            return base64.b64decode(value, validate=True)
        except (TypeError, ValueError):
            raise BadInput(f"{name} is not base64") from None
    if isinstance(value, str):
        # A lone surrogate is a JSON string, but no text that could be encoded.
        return value.encode(errors="surrogatepass")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
