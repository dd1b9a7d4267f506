"""How records are written out: format strings, JSON lines, and a line for people.

    %t topic  %p partition  %o offset  %T timestamp (ms)  %k key  %v or %s value
    %K key size  %S or %V value size (-1: null)  %h headers  %%  and \\n \\t \\r \\0 \\\\ \\xHH

A format is compiled once and applied to each record; it adds no line end of its own. Key and
value go out byte for byte. JSON carries what is not UTF-8 as base64 and says so beside it, so
that nothing is lost between ``consume -f json`` and ``produce -f json``.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any

from dashboard.cluster import Record

Renderer = Callable[[Record], bytes]

TIMESTAMP_TYPES = {0: None, 1: "CreateTime", 2: "LogAppendTime"}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_NULL = b""


def _number(value: int) -> bytes:
    return b"%d" % value


def _size(value: bytes | None) -> bytes:
    return b"-1" if value is None else _number(len(value))


def _headers(record: Record) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value)
        for name, value in record.headers
    )


_FIELDS: dict[str, Renderer] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: _number(record.partition),
    "o": lambda record: _number(record.offset),
    "T": lambda record: _number(record.timestamp_ms),
    "k": lambda record: _NULL if record.key is None else record.key,
    "v": lambda record: _NULL if record.value is None else record.value,
    "s": lambda record: _NULL if record.value is None else record.value,
    "K": lambda record: _size(record.key),
    "S": lambda record: _size(record.value),
    "V": lambda record: _size(record.value),
    "h": _headers,
}


def compile_format(text: str) -> Renderer:
    """A renderer for a format string. Raises ValueError that names the bad place."""
    parts = _parse(text)
    return lambda record: b"".join(
        [part if isinstance(part, bytes) else part(record) for part in parts]
    )


def _parse(text: str) -> list[bytes | Renderer]:
    parts: list[bytes | Renderer] = []
    literal = bytearray()
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            piece, position = _escape(text, position + 1)
            literal += piece
        elif character == "%":
            name = text[position + 1 : position + 2]
            position += 2
            if name == "%":
                literal += b"%"
                continue
            if name not in _FIELDS:
                known = " ".join(f"%{field}" for field in _FIELDS)
                raise ValueError(f"%{name} is not known in a format; known are {known} %%")
            if literal:
                parts.append(bytes(literal))
                literal.clear()
            parts.append(_FIELDS[name])
        else:
            literal += character.encode(errors="surrogateescape")
            position += 1
    if literal:
        parts.append(bytes(literal))
    return parts


def _escape(text: str, position: int) -> tuple[bytes, int]:
    name = text[position : position + 1]
    if name in _ESCAPES:
        return _ESCAPES[name], position + 1
    if name == "x":
        digits = text[position + 1 : position + 3]
        try:
            if len(digits) == 2:
                return bytes([int(digits, 16)]), position + 3
        except ValueError:
            pass
    raise ValueError(f"\\{name} is not known in a format; known are \\n \\t \\r \\0 \\\\ \\xHH")


def unescape(text: str) -> bytes:
    """A separator as typed in a shell: escapes as in formats, everything else as it is."""
    return b"".join(part for part in _parse(text.replace("%", "%%")) if isinstance(part, bytes))


def rfc3339(timestamp_ms: int, zone: tzinfo | None = UTC) -> str | None:
    """A time for people and programs; None for a timestamp that is no time. Zone None: local."""
    if timestamp_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC).astimezone(zone)
    except (ValueError, OverflowError, OSError):
        return None
    text = moment.replace(microsecond=timestamp_ms % 1000 * 1000).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _text_fields(name: str, value: bytes | None) -> dict[str, Any]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(value).decode(), f"{name}_encoding": "base64"}


def record_object(record: Record, *, meta_only: bool = False) -> dict[str, Any]:
    """The record as JSON shows it."""
    found: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "time": rfc3339(record.timestamp_ms),
        "timestamp_type": TIMESTAMP_TYPES.get(record.timestamp_type),
    }
    if meta_only:
        found["key_size"] = None if record.key is None else len(record.key)
        found["value_size"] = None if record.value is None else len(record.value)
        return found
    found |= _text_fields("key", record.key)
    found |= _text_fields("value", record.value)
    found["headers"] = [
        {"name": name, **_text_fields("value", value)} for name, value in record.headers
    ]
    return found


def json_renderer(*, meta_only: bool = False) -> Renderer:
    """One JSON object a line."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return lambda record: encode(record_object(record, meta_only=meta_only)).encode() + b"\n"


def pretty_renderer(
    zone: tzinfo | None, *, meta_only: bool = False, color: bool = False
) -> Renderer:
    """A line for people: payloads cannot move the cursor or change the terminal's colours."""
    dim, plain = ("\x1b[2m", "\x1b[0m") if color else ("", "")

    def render(record: Record) -> bytes:
        time = rfc3339(record.timestamp_ms, zone) or "-"
        place = f"{record.topic}[{record.partition}]@{record.offset}"
        if meta_only:
            sizes = f"key {_size(record.key).decode()} value {_size(record.value).decode()}"
            return f"{dim}{time} {place}{plain} {sizes}\n".encode()
        pieces = [f"{dim}{time} {place}{plain}"]
        if record.key is not None:
            pieces.append(f"{printable(record.key)}{dim}:{plain}")
        pieces.append("(null)" if record.value is None else printable(record.value))
        if record.headers:
            pieces.append(f"{dim}[{printable(_headers(record))}]{plain}")
        return (" ".join(pieces) + "\n").encode()

    return render


def printable(data: bytes) -> str:
    """Text that is safe on a terminal: what is not printable becomes an escape."""
    text = data.decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\t"
        else character.encode("unicode_escape").decode()
        for character in text
    )
