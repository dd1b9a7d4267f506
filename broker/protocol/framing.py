"""Cuts the byte stream of a connection into frames.

Sans-IO. The caller receives into ``writable()`` and tells how much came::

    count = sock.recv_into(frames.writable())
    for frame in frames.received(count):
        ...

Hot path: once per wake-up of a connection, plus one slice per frame: 1.6 us for five small frames that
arrive together, the copy included (``tests.broker.protocol.measure``). All connections of a process
share one scratch buffer, so that a connection at rest holds no memory; frames that lie in it whole
are handed out as slices, without a copy. A frame that is still incomplete gets a buffer of its own
(of the exact size; above ``TRUSTED_BYTES`` it grows as bytes arrive, so that a length alone buys no
memory) and the rest is received straight into place. After such a frame only the first bytes of the
next are received into the scratch, so that little has to be copied.

Slices of the scratch are valid until the next ``writable()`` of *any* connection: ``keep`` copies
where a frame has to wait. Every frame outside the scratch is charged to the ``ReceiveBudget`` with
its whole size; whoever holds it gives ``charge_of(frame)`` back when done.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from broker.protocol.errors import FrameError

__all__ = ["FrameBuffer", "FrameError", "ReceiveBudget", "Scratch"]

_LENGTH: Final = Struct(">i")

#: Shared receive buffer: some hundred small requests, or a dozen batches of 10 KB, a wake-up.
SCRATCH_BYTES: Final = 128 * 1024
#: Behind a frame above ``LARGE_FRAME_BYTES`` another one is expected, and only this much is
#: received before its length is known.
PROBE_BYTES: Final = 4 * 1024
LARGE_FRAME_BYTES: Final = SCRATCH_BYTES // 2
#: A frame up to this size is given its whole buffer at once.
TRUSTED_BYTES: Final = 1024 * 1024


def _ignore() -> None:
    """No one waits for room."""


class ReceiveBudget:
    """Bytes that frames in arrival and in work may hold, all connections together.

    As in Kafka a frame is let in while there is any room, so that one frame above the limit cannot
    wait for ever: the limit is passed by at most one frame.
    """

    def __init__(self, limit_bytes: int, on_room: Callable[[], None] = _ignore) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._on_room = on_room

    @property
    def is_exhausted(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    def reserve(self, size: int) -> bool:
        if self.used_bytes >= self.limit_bytes:
            return False
        self.used_bytes += size
        return True

    def charge(self, size: int) -> None:
        """Takes bytes whether there is room or not: they are in memory already."""
        self.used_bytes += size

    def release(self, size: int) -> None:
        """Gives bytes back; calls ``on_room`` when there is room again after there was none."""
        was_exhausted = self.is_exhausted
        self.used_bytes -= size
        assert self.used_bytes >= 0, (self.used_bytes, size)
        if was_exhausted and not self.is_exhausted:
            self._on_room()


class Scratch:
    """The receive buffer that all connections of one loop share."""

    __slots__ = ("data", "probe", "view")

    def __init__(self, size: int = SCRATCH_BYTES) -> None:
        self.data = bytearray(size)
        self.view = memoryview(self.data)
        self.probe = self.view[: min(size, PROBE_BYTES)]


class FrameBuffer:
    """Receiving side of one connection.

    States: at rest (nothing held), *short* (fewer than four bytes of a length, or the start of a
    frame for which the budget has no room yet), *filling* (a frame's own buffer).
    """

    __slots__ = (
        "_budget",
        "_error",
        "_expects_large",
        "_filled",
        "_max_frame_bytes",
        "_own",
        "_scratch",
        "_short",
        "_size",
        "_target",
        "_trusted_bytes",
    )

    def __init__(
        self,
        scratch: Scratch,
        budget: ReceiveBudget,
        max_frame_bytes: int,
        trusted_bytes: int = TRUSTED_BYTES,
    ) -> None:
        self._scratch = scratch
        self._budget = budget
        self._max_frame_bytes = max_frame_bytes
        self._trusted_bytes = trusted_bytes
        self._short = b""
        self._own: bytearray | None = None
        self._size = 0  # of the frame that fills _own
        self._filled = 0
        self._target: memoryview | None = None
        self._expects_large = False
        self._error: FrameError | None = None

    @property
    def is_at_rest(self) -> bool:
        """No frame is in arrival: closing now cuts nothing off."""
        return self._own is None and not self._short

    @property
    def is_stalled(self) -> bool:
        """The budget has no room for the frame in arrival: stop reading until ``on_room``."""
        return len(self._short) >= 4

    def writable(self) -> memoryview:
        """Where to receive next. Empty while the budget has no room (``is_stalled``)."""
        if self._error is not None:
            raise self._error
        if self._own is not None:
            return self._own_target()
        if self._short:
            return self._target_behind_short()
        if self._expects_large or self._budget.is_exhausted:
            self._target = self._scratch.probe
        else:
            self._target = self._scratch.view
        return self._target

    def received(self, count: int) -> list[memoryview]:
        """The frames that ``count`` bytes, written to ``writable()``, completed.

        Without their length prefix. Raises ``FrameError`` for a length that is negative or too
        large; if frames were complete before it, they are returned and the next ``writable()``
        raises.
        """
        if self._own is not None:
            return self._fill(count)
        return self._cut(len(self._short) + count)

    def keep(self, frame: memoryview) -> memoryview:
        """The frame, to be held beyond this wake-up: itself if it owns its buffer, else a copy.

        The copy is charged to the budget as well: give ``charge_of`` of what is returned back.
        """
        if frame.obj is not self._scratch.data:
            return frame
        self._budget.charge(len(frame))
        return memoryview(bytearray(frame))

    def charge_of(self, frame: memoryview) -> int:
        """Bytes of the budget that the holder of this frame gives back when done with it."""
        return 0 if frame.obj is self._scratch.data else len(frame)

    def close(self) -> None:
        """Gives back what an incomplete frame holds."""
        if self._own is not None:
            self._target = None
            self._own = None
            self._budget.release(self._size)
        self._short = b""

    # --- Frames in the scratch ----------------------------------------------------------------

    def _target_behind_short(self) -> memoryview:
        """Puts the short start back into the scratch, or gives the frame its own buffer."""
        short = self._short
        if len(short) >= 4:
            if not self._begin_own(_LENGTH.unpack_from(short)[0], memoryview(short)[4:]):
                return self._scratch.view[:0]
            self._short = b""
            return self._own_target()
        self._scratch.view[: len(short)] = short
        self._target = self._scratch.view[len(short) :]
        return self._target

    def _cut(self, available: int) -> list[memoryview]:
        """Cuts the first ``available`` bytes of the scratch into frames; keeps what is left."""
        view = self._scratch.view
        frames: list[memoryview] = []
        position = 0
        try:
            while available - position >= 4:
                (size,) = _LENGTH.unpack_from(view, position)
                self._check_size(size)
                end = position + 4 + size
                if end > available:
                    self._expects_large = size > LARGE_FRAME_BYTES
                    self._short = b""
                    if not self._begin_own(size, view[position + 4 : available]):
                        self._short = bytes(view[position:available])
                    return frames
                frames.append(view[position + 4 : end])
                position = end
        except FrameError as error:
            if not frames:
                raise
            self._error = error
            return frames
        self._expects_large = False
        self._short = bytes(view[position:available]) if position < available else b""
        return frames

    def _check_size(self, size: int) -> None:
        if size < 0 or size > self._max_frame_bytes:
            raise FrameError(
                f"a frame of {size} bytes; the limit is {self._max_frame_bytes}"
                " (socket.request.max.bytes)"
            )

    # --- A frame in its own buffer ------------------------------------------------------------

    def _begin_own(self, size: int, start: memoryview) -> bool:
        if not self._budget.reserve(size):
            return False
        own = bytearray(min(size, max(self._trusted_bytes, 2 * len(start))))
        own[: len(start)] = start
        self._own = own
        self._size = size
        self._filled = len(start)
        return True

    def _own_target(self) -> memoryview:
        own = self._own
        assert own is not None
        if self._filled == len(own):
            # Twice what has really arrived: the copies of growing add up to less than the frame.
            own += bytes(min(self._size, 2 * self._filled) - self._filled)
        self._target = memoryview(own)[self._filled :]
        return self._target

    def _fill(self, count: int) -> list[memoryview]:
        own = self._own
        assert own is not None
        if self._target is not None:
            self._target.release()  # else the buffer could not grow
            self._target = None
        self._filled += count
        if self._filled < self._size:
            return []
        self._own = None
        self._expects_large = self._size > LARGE_FRAME_BYTES
        return [memoryview(own)]
