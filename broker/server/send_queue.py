"""Outgoing bytes of one connection: buffers, and regions of log files sent without being read.

Hot path: one ``flush`` per wake-up; adjacent buffers leave in one ``send``, regions by
``os.sendfile`` in pieces of at most ``PIECE_BYTES``, with MSG_MORE on the buffer before a region so
that header and records share a packet.

A non-blocking socket does not make the file side non-blocking: a page that is not in the page
cache would be read inside ``sendfile`` and stop the only loop. So each piece is first checked
(``is_resident``); a cold one is reported, pulled in by a reader thread, and sent afterwards without
another look: some file systems (tmpfs) never tell, and memory may be too short to keep a page.

A region whose file was truncated after the region was made may hold other bytes now: then the
connection must close (``StaleRegionError``), since its frame can no longer be completed.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from enum import Enum
from typing import Final

from broker.model.file_region import FileRegion

PIECE_BYTES: Final = 1024 * 1024
#: Bytes of files that one ``flush`` sends at most, however fast the peer takes them.
TURN_BYTES: Final = 4 * 1024 * 1024
#: Buffers up to this size are joined before they are sent.
JOIN_BYTES: Final = 64 * 1024


class SendStatus(Enum):
    """How a flush ended."""

    DRAINED = 1
    #: The socket is full, or has had its turn: go on when it is writable.
    BLOCKED = 2
    COLD = 3


class StaleRegionError(Exception):
    """A queued region was cut off by a truncation."""


class SendQueue:
    """Buffers and regions in the order in which they leave."""

    __slots__ = ("_descriptor", "_is_pulled", "_items", "_socket", "cold", "queued_bytes")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._descriptor = sock.fileno()
        self._items: deque[bytes | memoryview | FileRegion] = deque()
        #: Bytes in memory (not in files) that wait to be sent.
        self.queued_bytes = 0
        #: After COLD: the piece to be pulled into the page cache before the next flush.
        self.cold: FileRegion | None = None
        #: The next piece was cold and has been pulled in.
        self._is_pulled = False

    def __bool__(self) -> bool:
        return bool(self._items)

    def push(self, item: bytes | FileRegion) -> None:
        if isinstance(item, FileRegion):
            if item.length == 0:
                return
            item.file.pin()
        else:
            self.queued_bytes += len(item)
        self._items.append(item)

    def pulled(self) -> None:
        """The cold piece has been read by a thread."""
        self.cold = None
        self._is_pulled = True

    def flush(self) -> SendStatus:
        """Send until empty, until the socket is full, or until a cold piece is met.

        Raises OSError when the peer is gone and StaleRegionError as described above.
        """
        items = self._items
        left = TURN_BYTES
        try:
            while items:
                item = items[0]
                if isinstance(item, FileRegion):
                    left = self._send_region(item, left)
                    if self.cold is not None:
                        return SendStatus.COLD
                    if left <= 0:
                        return SendStatus.BLOCKED if items else SendStatus.DRAINED
                else:
                    self._send_buffer(item)
        except BlockingIOError:
            return SendStatus.BLOCKED
        return SendStatus.DRAINED

    def _send_buffer(self, buffer: bytes | memoryview) -> None:
        """Send the first item, joined with small ones behind it."""
        items = self._items
        items.popleft()
        if items and len(buffer) < JOIN_BYTES:
            buffer = self._join(buffer)
        try:
            sent = self._socket.send(buffer, socket.MSG_MORE if items else 0)
        except BlockingIOError:
            items.appendleft(buffer)
            raise
        self.queued_bytes -= sent
        if sent < len(buffer):
            items.appendleft(memoryview(buffer)[sent:])

    def _join(self, first: bytes | memoryview) -> bytes | memoryview:
        items = self._items
        parts: list[bytes | memoryview] = [first]
        size = len(first)
        while items and size < JOIN_BYTES:
            following = items[0]
            if isinstance(following, FileRegion):
                break
            parts.append(following)
            size += len(following)
            items.popleft()
        return b"".join(parts) if len(parts) > 1 else first

    def _send_region(self, region: FileRegion, left: int) -> int:
        """Send pieces of ``region`` while bytes of this turn are left; gives how many are.

        Ends early at a cold piece (``cold``).
        """
        file = region.file
        descriptor = file.pin()
        try:
            while region.length and left > 0:
                if region.is_stale:
                    raise StaleRegionError
                count = min(region.length, PIECE_BYTES)
                if not self._is_pulled and not file.is_resident(region.position, count):
                    self.cold = FileRegion(file, region.generation, region.position, count)
                    return left
                sent = os.sendfile(self._descriptor, descriptor, region.position, count)
                if sent == 0:
                    raise StaleRegionError  # the file is shorter than it was
                self._is_pulled = False
                region.position += sent
                region.length -= sent
                left -= sent
        finally:
            file.unpin()
        if not region.length:
            self._items.popleft()
            file.unpin()
        return left

    def clear(self) -> None:
        """Drop everything, giving descriptors back."""
        for item in self._items:
            if isinstance(item, FileRegion):
                item.file.unpin()
        self._items.clear()
        self.queued_bytes = 0
