from __future__ import annotations

import pytest

from broker.protocol.framing import (
    LARGE_FRAME_BYTES,
    PROBE_BYTES,
    SCRATCH_BYTES,
    TRUSTED_BYTES,
    FrameBuffer,
    FrameError,
    ReceiveBudget,
    Scratch,
)

LIMIT = 64 * 1024 * 1024


def frame_buffer(
    scratch: Scratch | None = None, budget: ReceiveBudget | None = None, limit: int = LIMIT
) -> FrameBuffer:
    return FrameBuffer(scratch or Scratch(), budget or ReceiveBudget(LIMIT), limit)


def on_wire(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def receive(frames: FrameBuffer, data: bytes) -> tuple[list[bytes], int]:
    """One wake-up: as much of ``data`` as there is room for. Returns frames and bytes taken."""
    target = frames.writable()
    count = min(len(target), len(data))
    target[:count] = data[:count]
    return [bytes(frame) for frame in frames.received(count)], count


def receive_all(frames: FrameBuffer, data: bytes) -> list[bytes]:
    bodies = []
    while data:
        found, count = receive(frames, data)
        assert count, "no room"
        bodies += found
        data = data[count:]
    return bodies


def test_frames_of_one_wake_up_come_out_in_order() -> None:
    frames = frame_buffer()
    assert receive(frames, on_wire(b"one", b"", b"three")) == ([b"one", b"", b"three"], 20)
    assert frames.is_at_rest


def test_small_frames_are_slices_of_the_scratch_and_writable() -> None:
    scratch = Scratch()
    frames = frame_buffer(scratch)
    frames.writable()[:7] = on_wire(b"abc")
    (frame,) = frames.received(7)
    assert frame.obj is scratch.data
    frame[0] = ord("x")
    assert bytes(frame) == b"xbc"


@pytest.mark.parametrize("cut", range(1, 12))
def test_frame_that_arrives_in_two_parts(cut: int) -> None:
    frames = frame_buffer()
    data = on_wire(b"abc", b"d")
    assert receive_all(frames, data[:cut]) + receive_all(frames, data[cut:]) == [b"abc", b"d"]
    assert frames.is_at_rest


def test_connections_do_not_disturb_each_other_in_the_shared_scratch() -> None:
    scratch = Scratch()
    first, second = frame_buffer(scratch), frame_buffer(scratch)
    one, two = on_wire(b"first"), on_wire(b"second")
    bodies: list[bytes] = []
    for position in range(max(len(one), len(two))):
        for frames, data in ((first, one), (second, two)):
            if position < len(data):
                bodies += receive(frames, data[position : position + 1])[0]
    assert bodies == [b"first", b"second"]


def test_large_frame_is_received_straight_into_its_own_buffer() -> None:
    scratch = Scratch()
    frames = frame_buffer(scratch)
    body = bytes(range(256)) * 2400
    data = on_wire(body)
    assert receive(frames, data) == ([], SCRATCH_BYTES)
    rest = frames.writable()
    assert rest.obj is not scratch.data
    assert len(rest) == len(data) - SCRATCH_BYTES
    rest[:] = data[SCRATCH_BYTES:]
    (frame,) = frames.received(len(rest))
    assert bytes(frame) == body
    assert not frame.readonly


def test_behind_a_large_frame_only_a_probe_is_received() -> None:
    frames = frame_buffer()
    receive_all(frames, on_wire(b"x" * (LARGE_FRAME_BYTES + 1)))
    # The large frame was complete in the scratch; one that was not makes the next a probe.
    assert len(frames.writable()) == SCRATCH_BYTES
    receive_all(frames, on_wire(b"x" * (2 * SCRATCH_BYTES)))
    assert len(frames.writable()) == PROBE_BYTES
    receive_all(frames, on_wire(b"small"))
    assert len(frames.writable()) == SCRATCH_BYTES


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
def test_impossible_length_ends_the_stream(size: int) -> None:
    frames = frame_buffer(limit=100)
    with pytest.raises(FrameError):
        receive(frames, size.to_bytes(4, "big", signed=True))


def test_frame_of_the_limit_is_let_in() -> None:
    frames = frame_buffer(limit=100)
    assert receive_all(frames, on_wire(b"x" * 100)) == [b"x" * 100]


def test_frames_before_an_impossible_length_are_still_served() -> None:
    frames = frame_buffer(limit=100)
    assert receive(frames, on_wire(b"good") + b"\xff\xff\xff\xff")[0] == [b"good"]
    with pytest.raises(FrameError):
        frames.writable()


def test_a_length_alone_buys_no_memory() -> None:
    frames = frame_buffer()
    size = 50 * 1024 * 1024
    receive(frames, size.to_bytes(4, "big"))
    assert len(frames.writable()) == TRUSTED_BYTES
    assert frames.received(TRUSTED_BYTES) == []
    assert len(frames.writable()) == TRUSTED_BYTES


def test_growing_frame_arrives_whole() -> None:
    frames = frame_buffer()
    body = bytes(range(251)) * 20_000
    assert receive_all(frames, on_wire(body, b"next")) == [body, b"next"]


def test_frame_in_arrival_is_charged_and_close_gives_it_back() -> None:
    budget = ReceiveBudget(1000)
    frames = frame_buffer(budget=budget)
    receive(frames, on_wire(b"x" * 300)[:20])
    assert budget.used_bytes == 300
    frames.close()
    assert budget.used_bytes == 0
    assert frames.is_at_rest


def test_holder_of_an_own_frame_gives_its_charge_back() -> None:
    budget = ReceiveBudget(1000)
    frames = frame_buffer(budget=budget)
    data = on_wire(b"x" * 300)
    receive(frames, data[:20])
    frames.writable()[:] = data[20:]
    (frame,) = frames.received(len(data) - 20)
    frames.close()
    assert budget.used_bytes == frames.charge_of(frame) == 300
    assert frames.keep(frame) is frame


def test_kept_slice_of_the_scratch_is_a_charged_copy() -> None:
    budget = ReceiveBudget(1000)
    frames = frame_buffer(budget=budget)
    frames.writable()[:7] = on_wire(b"abc")
    (frame,) = frames.received(7)
    assert frames.charge_of(frame) == 0
    kept = frames.keep(frame)
    frames.writable()[:7] = on_wire(b"xyz")
    assert bytes(kept) == b"abc"
    assert not kept.readonly
    assert budget.used_bytes == frames.charge_of(kept) == 3


def test_connection_stalls_while_the_budget_has_no_room_and_goes_on_after() -> None:
    calls = []
    budget = ReceiveBudget(100, on_room=lambda: calls.append("room"))
    frames = frame_buffer(budget=budget)
    assert budget.reserve(100)
    data = on_wire(b"x" * 300)
    assert receive(frames, data[:20]) == ([], 20)
    assert frames.is_stalled
    assert receive(frames, data[20:]) == ([], 0)
    assert not calls
    budget.release(100)
    assert calls == ["room"]
    assert receive_all(frames, data[20:]) == [b"x" * 300]
    assert not frames.is_stalled


def test_an_exhausted_budget_lets_small_frames_in_by_a_small_window() -> None:
    budget = ReceiveBudget(100)
    frames = frame_buffer(budget=budget)
    budget.charge(100)
    assert len(frames.writable()) == PROBE_BYTES
    assert receive_all(frames, on_wire(b"heartbeat")) == [b"heartbeat"]


def test_one_frame_above_the_budget_is_let_in() -> None:
    budget = ReceiveBudget(100)
    frames = frame_buffer(budget=budget)
    assert receive_all(frames, on_wire(b"x" * (SCRATCH_BYTES + 1))) == [b"x" * (SCRATCH_BYTES + 1)]


def test_stalled_connection_gives_its_start_up_when_closed() -> None:
    budget = ReceiveBudget(100)
    frames = frame_buffer(budget=budget)
    budget.charge(100)
    receive(frames, on_wire(b"x" * 300)[:20])
    frames.close()
    assert frames.is_at_rest
    assert budget.used_bytes == 100
