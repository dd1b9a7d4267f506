"""One dialled connection on the loop: whole frames in, bytes out, no task and no copy between.

Hot path: a follower's records come through here. A large frame is received in place and handed to ``on_frame``
as it lies; who keeps it longer than that call copies it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from broker.protocol.framing import FrameBuffer, FrameError, ReceiveBudget, Scratch

#: Of an answer: an image of 100,000 partitions takes 8 MB.
MAX_FRAME_BYTES: Final = 256 * 1024 * 1024
#: What is received at once before a frame's length is known; an answer to a fetch of a few records fits.
SCRATCH_BYTES: Final = 16 * 1024
#: The other side is a broker of ours, or soon is known to be none: its lengths are believed so far.
TRUSTED_BYTES: Final = 16 * 1024 * 1024


class PeerSocket:
    """``on_lost`` is called once, with what happened; nothing is called after it."""

    __slots__ = (
        "_budget",
        "_descriptor",
        "_frames",
        "_has_writer",
        "_loop",
        "_socket",
        "_unsent",
        "is_closed",
        "on_frame",
        "on_lost",
    )

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        on_frame: Callable[[memoryview], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._socket = sock
        self._descriptor = sock.fileno()
        self._loop = loop
        self._budget = ReceiveBudget(MAX_FRAME_BYTES)
        scratch = Scratch(SCRATCH_BYTES)
        self._frames = FrameBuffer(scratch, self._budget, MAX_FRAME_BYTES, TRUSTED_BYTES)
        self._unsent = bytearray()
        self._has_writer = False
        self.is_closed = False
        self.on_frame = on_frame
        self.on_lost = on_lost
        loop.add_reader(self._descriptor, self._on_readable)

    def send(self, data: bytes) -> None:
        """One request at a time is under way, so what a full socket leaves is at most one."""
        if self.is_closed:
            return
        sent = 0
        if not self._unsent:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                pass
            except OSError as error:
                # Not from within the caller, who has not noted yet what it waits for.
                self._loop.call_soon(self.lose, repr(error))
                return
        if sent < len(data):
            self._unsent += data[sent:]
            if not self._has_writer:
                self._has_writer = True
                self._loop.add_writer(self._descriptor, self._on_writable)

    def _on_writable(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError as error:
            self.lose(repr(error))
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._has_writer = False
            self._loop.remove_writer(self._descriptor)

    def _on_readable(self) -> None:
        frames = self._frames
        try:
            count = self._socket.recv_into(frames.writable())
            if count == 0:
                self.lose("it closed the connection")
                return
            whole = frames.received(count)
        except BlockingIOError:
            return
        except (OSError, FrameError) as error:
            self.lose(repr(error))
            return
        for frame in whole:
            self._budget.release(frames.charge_of(frame))
            self.on_frame(frame)
            if self.is_closed:
                return

    def lose(self, reason: str) -> None:
        """It is of no use any more."""
        if self.is_closed:
            return
        self.is_closed = True
        self._loop.remove_reader(self._descriptor)
        if self._has_writer:
            self._has_writer = False
            self._loop.remove_writer(self._descriptor)
        self._frames.close()
        self._socket.close()
        self.on_lost(reason)

    def close(self) -> None:
        self.lose("closed here")
