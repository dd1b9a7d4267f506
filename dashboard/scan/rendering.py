"""How a record is told to the parent: as text that is safe to show, cut where it is long.

Numbers of JSON keep every digit as it was written: the text is only set anew, never computed.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Final

from dashboard.cluster import Record
from dashboard.scan.requests import LIST_CUT, View

KEY_CUT: Final = 400
HEADER_CUT: Final = 200
MAX_HEADERS: Final = 50
MAX_PRETTY_BYTES: Final = 2_000_000
"""Larger values are shown as the text that they are."""
SAMPLE_BYTES: Final = 16_384
MAX_INDENT: Final = 40
_HEX_ROW: Final = 16

# C0 (but tab and line feed), DEL, C1, and marks that turn the direction of what follows: shown as
# what they are, so that a value cannot hide or reorder what stands beside it.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


def row(record: Record, view: View, cut: int = LIST_CUT) -> dict[str, Any]:
    """An offset is a text of digits from here on: nobody downstream computes with it."""
    return {
        "partition": record.partition,
        "offset": str(record.offset),
        "timestamp_ms": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        "key": part(record.key, view, KEY_CUT if cut == LIST_CUT else cut),
        "value": part(record.value, view, cut),
        "headers": [
            [visible(name[:HEADER_CUT]), header_text(value)]
            for name, value in record.headers[:MAX_HEADERS]
        ],
        "header_count": len(record.headers),
    }


def part(data: bytes | None, view: View, cut: int) -> dict[str, Any]:
    """A key or a value: ``as`` says how it is shown, ``is_cut`` that there is more."""
    if data is None:
        return {"as": "null", "text": "", "size": 0, "is_cut": False}
    shown, text, is_whole = _shown(data, view, cut)
    is_cut = not is_whole or len(text) > cut
    return {"as": shown, "text": visible(text[:cut]), "size": len(data), "is_cut": is_cut}


def header_text(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = value[: HEADER_CUT * 4].decode(errors="replace")
    return visible(text[:HEADER_CUT]) + ("…" if len(text) > HEADER_CUT else "")


def visible(text: str) -> str:
    return _UNSEEN.sub(_picture, text)


def _picture(found: re.Match[str]) -> str:
    code = ord(found.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\\u{code:04x}"


def _shown(data: bytes, view: View, cut: int) -> tuple[str, str, bool]:
    """(as what, the text or enough of it, whether all of the data is in it)."""
    if view in ("auto", "json") and (text := pretty(data, cut)) is not None:
        return "json", text, True
    # A character takes at most four bytes; what is cut in the middle of one loses that one.
    head = data[: cut * 4 + 4]
    is_whole = len(head) == len(data)
    if view == "hex" or (view == "auto" and not _is_text(head, is_whole)):
        count = max(_HEX_ROW, cut // 4)
        return "hex", hex_dump(data[:count]), count >= len(data)
    return "text", head.decode(errors="replace"), is_whole


def _is_text(head: bytes, is_whole: bool) -> bool:
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if is_whole or error.start < len(head) - 3:
            return False
        text = head[: error.start].decode()
    unseen = sum(1 for found in _UNSEEN.finditer(text) if found.group() not in "\r\ufeff")
    return unseen * 10 <= len(text)


def pretty(data: bytes, limit: int = MAX_PRETTY_BYTES) -> str | None:
    """The JSON text with line breaks and indents; None when it is no JSON object or list.

    Ends soon after ``limit`` characters: deep nesting makes much of little.
    """
    stripped = data[:64].lstrip(b" \t\r\n")
    if not stripped.startswith((b"{", b"[")) or len(data) > MAX_PRETTY_BYTES:
        return None
    try:
        text = data.decode()
        json.loads(text, parse_int=_ignore, parse_float=_ignore)
    except (ValueError, RecursionError):
        return None
    return _set_anew(text, limit)


def _ignore(digits: str) -> None:
    """Numbers are not computed: a million digits would take long, and say nothing more."""


def _set_anew(text: str, limit: int) -> str:
    out: list[str] = []
    depth = length = 0
    opened = False
    for found in _TOKEN.finditer(text):
        if length > limit:
            break
        mark = found.group()
        length += len(mark) + 2 * min(depth, MAX_INDENT)
        if opened and mark not in "}]":
            out.append("\n" + _indent(depth))
        if mark in ("{", "["):
            out.append(mark)
            depth += 1
            opened = True
            continue
        if mark in ("}", "]"):
            depth -= 1
            if not opened:
                out.append("\n" + _indent(depth))
            out.append(mark)
        elif mark == ",":
            out.append(",\n" + _indent(depth))
        elif mark == ":":
            out.append(": ")
        else:
            out.append(mark)
        opened = False
    return "".join(out)


def _indent(depth: int) -> str:
    return "  " * min(depth, MAX_INDENT)


def hex_dump(data: bytes) -> str:
    lines = []
    for at in range(0, len(data), _HEX_ROW):
        piece = data[at : at + _HEX_ROW]
        left, right = piece[:8].hex(" "), piece[8:].hex(" ")
        seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        lines.append(f"{at:08x}  {left:<23}  {right:<23}  {seen}")
    return "\n".join(lines)


def sample(record: Record) -> dict[str, Any] | None:
    """A record whole, for trying expressions on; None when it is large."""
    size = len(record.key or b"") + len(record.value or b"")
    size += sum(len(name) + len(value or b"") for name, value in record.headers)
    if size > SAMPLE_BYTES:
        return None
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_type": record.timestamp_type,
        "timestamp_ms": record.timestamp_ms,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
    }


def from_sample(found: dict[str, Any]) -> Record:
    values = dict(found)
    values["key"], values["value"] = _bytes(values["key"]), _bytes(values["value"])
    values["headers"] = [(name, _bytes(value)) for name, value in values["headers"]]
    return Record(**values)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
