"""Where a page of records begins or ends, as a word in its address: partition to offset."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Final

MAX_PLAIN: Final = 1_500
"""A longer word is packed: the server takes addresses of 16,000 characters."""
MAX_UNPACKED: Final = 200_000
MAX_OFFSET: Final = 2**63 - 1


class CursorError(ValueError):
    """An address that was not made here, or was cut."""


def encode(positions: Mapping[int, int]) -> str:
    plain = ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))
    if len(plain) <= MAX_PLAIN:
        return plain
    return "z" + base64.urlsafe_b64encode(zlib.compress(plain.encode(), 9)).decode().rstrip("=")


def decode(text: str) -> dict[int, int]:
    if text.startswith("z"):
        text = _unpack(text[1:])
    positions = {}
    for part in text.split(","):
        partition, _, offset = part.partition(":")
        if not (_is_number(partition) and _is_number(offset)):
            raise CursorError("the place in this address is not one")
        positions[int(partition)] = min(int(offset), MAX_OFFSET)
    return positions


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


def _unpack(packed: str) -> str:
    try:
        data = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(data, MAX_UNPACKED)
        if unpacker.unconsumed_tail or not unpacker.eof:
            raise CursorError("the place in this address is not one")
        return text.decode("ascii")
    except (binascii.Error, zlib.error, UnicodeDecodeError):
        raise CursorError("the place in this address is not one") from None
