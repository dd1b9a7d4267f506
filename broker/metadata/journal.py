"""Bytes of the local store's files: frames of effects, each with a CRC.

A frame is what one group commit wrote (journal) or one slice of the tree (snapshot):

    magic "OJ01" | payload length u32 | crc32c u32 of all that follows | first submission u64
    | submissions u32 | session u64 | payload: effects one after the other

An effect is absolute ("this node is now so", "this node is gone"), never conditional, so replaying
one twice changes nothing. Between writes a journal ends in zeros: space taken in advance, so that
topics can still be deleted on a full disk and a commit needs no new blocks.

Reading never raises past ``read_frames`` but for damage that is not a torn end: a frame is only
started when the one before is durable, so a bad frame with a good one behind it is damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from broker.metadata.store import Node
from broker.metadata.tree import Effect
from broker.records.crc import crc32c

MAGIC = b"OJ01"
_HEADER = struct.Struct(">4sII")
_PREFIX = struct.Struct(">QIQ")
_PUT = struct.Struct(">BHIiQQI")
_DELETE = struct.Struct(">BH")
_KIND_PUT = 1
_KIND_DELETE = 2

#: Everything of a frame but its effects.
FRAME_OVERHEAD = _HEADER.size + _PREFIX.size


class Frame(NamedTuple):
    first_submission: int
    submission_count: int
    session_id: int
    effects: list[tuple[str, Node | None]]


class CorruptStoreError(Exception):
    """Stored metadata does not make sense, in a place that no crash explains."""

    def __init__(self, name: str, position: int, message: str) -> None:
        super().__init__(f"metadata/{name} at byte {position}: {message}")
        self.name = name
        self.position = position


class Scan(NamedTuple):
    """``end``: where the next frame goes. ``is_torn``: bytes that are not zero follow it."""

    frames: list[Frame]
    end: int
    is_torn: bool


def encode_effects(effects: Iterable[Effect]) -> bytes:
    return encode_nodes((effect.path, effect.after) for effect in effects)


def encode_nodes(nodes: Iterable[tuple[str, Node | None]]) -> bytes:
    parts: list[bytes] = []
    for path, node in nodes:
        raw = path.encode()
        if node is None:
            parts += (_DELETE.pack(_KIND_DELETE, len(raw)), raw)
            continue
        data, version, creation_id, owner, next_sequence = node
        head = _PUT.pack(_KIND_PUT, len(raw), len(data), version, creation_id, owner, next_sequence)
        parts += (head, raw, data)
    return b"".join(parts)


def encode_frame(
    first_submission: int, submission_count: int, session_id: int, payload: bytes
) -> bytes:
    body = _PREFIX.pack(first_submission, submission_count, session_id) + payload
    return _HEADER.pack(MAGIC, len(payload), crc32c(body)) + body


def read_frames(name: str, data: bytes, first_submission: int) -> Scan:
    """The frames from ``first_submission`` on, up to the zeros or the torn end."""
    frames: list[Frame] = []
    position = 0
    expected = first_submission
    while (frame_end := _frame_end(data, position)) is not None:
        frame = _decode(data, position, frame_end)
        if frame is None or frame.first_submission != expected:
            raise CorruptStoreError(name, position, f"not the submission {expected}")
        frames.append(frame)
        expected += frame.submission_count
        position = frame_end
    later = _next_frame(data, position, expected)
    if later is not None:
        raise CorruptStoreError(
            name, position, f"damaged, but a good entry follows at byte {later}"
        )
    return Scan(frames, position, is_torn=data.count(0, position) != len(data) - position)


def _frame_end(data: bytes, position: int) -> int | None:
    """End of the whole frame with a right CRC that starts here."""
    if len(data) - position < FRAME_OVERHEAD:
        return None
    magic, length, crc = _HEADER.unpack_from(data, position)
    end: int = position + FRAME_OVERHEAD + length
    if magic != MAGIC or end > len(data):
        return None
    body = memoryview(data)[position + _HEADER.size : end]
    return end if crc32c(body) == crc else None


def _next_frame(data: bytes, position: int, at_least: int) -> int | None:
    """A good frame behind a bad place, newer than all that was read."""
    while (position := data.find(MAGIC, position)) >= 0:
        if _frame_end(data, position) is not None:
            first_submission: int = _PREFIX.unpack_from(data, position + _HEADER.size)[0]
            if first_submission >= at_least:
                return position
        position += 1
    return None


def _decode(data: bytes, position: int, end: int) -> Frame | None:
    """The frame; None when its effects do not fill it (the CRC was right: a fault of ours)."""
    first, count, session_id = _PREFIX.unpack_from(data, position + _HEADER.size)
    try:
        effects = list(_decode_effects(data, position + FRAME_OVERHEAD, end))
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return Frame(first, count, session_id, effects)


def _decode_effects(data: bytes, position: int, end: int) -> Iterator[tuple[str, Node | None]]:
    # Equal nodes are one object in memory: a partition's state differs little between topics.
    pool: dict[Node, Node] = {}
    while position < end:
        kind = data[position]
        if kind == _KIND_DELETE:
            _, path_length = _DELETE.unpack_from(data, position)
            position += _DELETE.size
            yield data[position : position + path_length].decode(), None
            position += path_length
            continue
        if kind != _KIND_PUT:
            raise ValueError(f"unknown kind {kind}")
        _, path_length, length, version, creation_id, owner, sequence = _PUT.unpack_from(
            data, position
        )
        position += _PUT.size
        path = data[position : position + path_length].decode()
        position += path_length
        node = Node(data[position : position + length], version, creation_id, owner, sequence)
        position += length
        yield path, pool.setdefault(node, node)
    if position != end:
        raise ValueError("effects end past their frame")
