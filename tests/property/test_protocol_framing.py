"""Frames survive any cut of the stream; a stream of rubbish raises FrameError and nothing else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.protocol.errors import FrameError
from broker.protocol.framing import FrameBuffer, ReceiveBudget, Scratch

SCRATCH = Scratch(64)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.binary(max_size=200), max_size=8),
    st.lists(st.integers(1, 120), min_size=1, max_size=20),
)
def test_any_cut_gives_the_same_frames(bodies: list[bytes], cuts: list[int]) -> None:
    budget = ReceiveBudget(10_000)
    frames = FrameBuffer(SCRATCH, budget, 1000)
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    found = []
    turn = 0
    while stream:
        target = frames.writable()
        count = min(len(target), cuts[turn % len(cuts)], len(stream))
        target[:count] = stream[:count]
        stream = stream[count:]
        turn += 1
        for frame in frames.received(count):
            found.append(bytes(frame))
            budget.release(frames.charge_of(frame))
    assert found == bodies
    assert frames.is_at_rest
    assert budget.used_bytes == 0


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400), st.integers(1, 100))
def test_rubbish_only_raises_frame_error(stream: bytes, step: int) -> None:
    budget = ReceiveBudget(500)
    frames = FrameBuffer(SCRATCH, budget, 300)
    try:
        while stream and not frames.is_stalled:
            target = frames.writable()
            count = min(len(target), step, len(stream))
            target[:count] = stream[:count]
            stream = stream[count:]
            for frame in frames.received(count):
                budget.release(frames.charge_of(frame))
    except FrameError:
        pass
    frames.close()
    assert budget.used_bytes == 0
