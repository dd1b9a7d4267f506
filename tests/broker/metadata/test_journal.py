"""Frames read back; whatever the bytes, reading ends in frames or in ``CorruptStoreError``."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.metadata.journal import (
    FRAME_OVERHEAD,
    CorruptStoreError,
    encode_frame,
    encode_nodes,
    read_frames,
)
from broker.metadata.store import Node

nodes = st.builds(
    Node,
    st.binary(max_size=100),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63),
    st.integers(0, 2**63),
    st.integers(0, 2**31 - 1),
)
effects = st.lists(st.tuples(st.text(max_size=30), st.none() | nodes), max_size=5)


def journal(frames: list[list[tuple[str, Node | None]]], first: int = 1) -> bytes:
    return b"".join(
        encode_frame(first + i, 1, 7, encode_nodes(frame)) for i, frame in enumerate(frames)
    )


@given(st.lists(effects, max_size=5), st.integers(0, 3000))
def test_frames_read_back_up_to_the_zeros(
    frames: list[list[tuple[str, Node | None]]], zeros: int
) -> None:
    data = journal(frames)
    scan = read_frames("j", data + bytes(zeros), 1)
    assert [frame.effects for frame in scan.frames] == frames
    assert (scan.end, scan.is_torn) == (len(data), False)


@given(st.binary(max_size=300))
@example(b"OJ01" + b"\xff" * 100)
@example(b"OJ01" + bytes(100))
def test_any_bytes_are_frames_or_damage(data: bytes) -> None:
    try:
        scan = read_frames("j", data, 1)
    except CorruptStoreError:
        return
    assert scan.frames == []
    assert scan.is_torn == any(data)


@given(effects, effects, st.data())
def test_a_changed_byte_is_never_read_as_something_else(
    first: list[tuple[str, Node | None]], second: list[tuple[str, Node | None]], data: st.DataObject
) -> None:
    whole = journal([first, second])
    position = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[position] ^= data.draw(st.integers(1, 255))
    try:
        scan = read_frames("j", bytes(damaged), 1)
    except CorruptStoreError:
        return
    assert [frame.effects for frame in scan.frames] == [first]
    assert scan.is_torn


@pytest.mark.parametrize("expected", [1, 4, 6])
def test_a_frame_of_another_journal_is_damage(expected: int) -> None:
    data = journal([[("/a", None)]], first=5)
    with pytest.raises(CorruptStoreError, match="at byte 0"):
        read_frames("j", data, expected)


def test_a_frame_has_a_fixed_overhead() -> None:
    assert len(encode_frame(1, 1, 1, b"x" * 10)) == FRAME_OVERHEAD + 10
