"""How values lie in the records of internal topics: what all of their formats share.

Keys are never flexible. A value carries its version in front, and its format says from which
version on lengths are compact and tagged fields may follow.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final

_BYTE = Struct(">b")
_SHORT = Struct(">h")
_INT = Struct(">i")
_LONG = Struct(">q")
_NULL_STRING: Final = b"\xff\xff"
#: A version that no record has: keys are not flexible.
NEVER: Final = 1 << 15


class MalformedRecord(ValueError):
    """Bytes that no Kafka wrote."""


# --- Writing ----------------------------------------------------------------------------------


def string(text: str) -> bytes:
    data = text.encode(errors="surrogatepass")
    return _SHORT.pack(len(data)) + data


def nullable(text: str | None) -> bytes:
    return _NULL_STRING if text is None else string(text)


def unsigned(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


# --- Reading ----------------------------------------------------------------------------------


def key_type(key: bytes) -> int:
    if len(key) < 2:
        raise MalformedRecord(f"a key of {len(key)} bytes")
    found: int = _SHORT.unpack_from(key)[0]
    return found


class RecordReader:
    """Walks over a key or a value; a value's version decides how lengths are written."""

    __slots__ = ("_data", "_is_flexible", "_position", "version")

    def __init__(self, data: bytes, first_flexible: int = NEVER) -> None:
        self._data = data
        self._position = 2
        try:
            self.version: int = _SHORT.unpack_from(data)[0]
        except StructError:
            raise MalformedRecord(f"no version in {len(data)} bytes") from None
        if self.version < 0:
            raise MalformedRecord(f"version {self.version}")
        self._is_flexible = self.version >= first_flexible

    def int8(self) -> int:
        return self._fixed(_BYTE)

    def int16(self) -> int:
        return self._fixed(_SHORT)

    def int32(self) -> int:
        return self._fixed(_INT)

    def int64(self) -> int:
        return self._fixed(_LONG)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise MalformedRecord("null where a text must be")
        return text

    def nullable_string(self) -> str | None:
        length = self._unsigned() - 1 if self._is_flexible else self._fixed(_SHORT)
        return None if length < 0 else self._take(length).decode(errors="replace")

    def data(self) -> bytes:
        length = self._unsigned() - 1 if self._is_flexible else self._fixed(_INT)
        return b"" if length < 0 else self._take(length)

    def raw(self, length: int) -> bytes:
        """That many bytes."""
        return self._take(length)

    def array_length(self) -> int:
        length = self._unsigned() - 1 if self._is_flexible else self._fixed(_INT)
        if length > len(self._data) - self._position:
            raise MalformedRecord(f"{length} elements in {len(self._data)} bytes")
        return max(length, 0)

    def tags(self) -> list[tuple[int, bytes]]:
        if not self._is_flexible:
            return []
        return [(self._unsigned(), self._take(self._unsigned())) for _ in range(self._unsigned())]

    def _fixed(self, layout: Struct) -> int:
        try:
            found: int = layout.unpack_from(self._data, self._position)[0]
        except StructError:
            raise MalformedRecord("it ends inside a number") from None
        self._position += layout.size
        return found

    def _unsigned(self) -> int:
        number = shift = 0
        while True:
            if self._position >= len(self._data) or shift > 28:
                raise MalformedRecord("it ends inside a number")
            byte = self._data[self._position]
            self._position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise MalformedRecord(f"{length} bytes reach beyond the end")
        found = self._data[self._position : end]
        self._position = end
        return found
