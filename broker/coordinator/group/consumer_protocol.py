"""The little that the coordinator reads of what consumers tell each other."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final

#: The protocol type of groups whose members are consumers.
CONSUMER: Final = "consumer"

_HEAD = Struct(">hi")
_SHORT = Struct(">h")


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """Topics in a consumer's subscription; None when it is none.

    Read as version 0, with which all versions begin.
    """
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or count < 0:
            return None
        topics: set[str] = set()
        position = _HEAD.size
        for _ in range(count):
            (length,) = _SHORT.unpack_from(metadata, position)
            position += 2
            if length < 0 or position + length > len(metadata):
                return None
            topics.add(metadata[position : position + length].decode(errors="replace"))
            position += length
    except StructError:
        return None
    return topics
