"""Outgoing bytes of one connection: buffers, and regions of log files sent without being read.

Hot path: one ``flush`` per wake-up; adjacent buffers leave in one ``send``, regions by
``os.sendfile`` in pieces of at most ``PIECE_BYTES``, with MSG_MORE on the buffer before a region so
that header and records share a packet. A region of a few kilobytes is read instead, so that it leaves in the same
``send`` as what is around it: that is two system calls instead of four, and no distrust of what is in memory.

A non-blocking socket does not make the file side non-blocking: a page that is not in the page
cache would be read inside ``sendfile`` and stop the only loop. So each piece is first checked
(``is_resident``), and a cold one is reported (``ColdSend``): a reader thread sends it, waiting for
the disk where it must. It and not the loop sends, since where memory is short what was read ahead
may be gone again between a look and the sending. For the same reason what follows a cold piece on
this connection goes the same way without another look: little where pages are missing here and there, as
where a virtual machine's memory is taken back, and more each time up to ``MAX_DISTRUST_BYTES``.

A region whose file was truncated after the region was made may hold other bytes now: then the
connection must close (``StaleRegionError``), since its frame can no longer be completed.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Final

from broker.model.file_region import FileRegion

PIECE_BYTES: Final = 256 * 1024
#: What a thread sends at once: each trip there and back is a hand-over of the GIL.
COLD_BYTES: Final = 1024 * 1024
#: Buffers and regions among them: an answer of many partitions is many small ones.
COLD_ITEMS: Final = 128
#: What leaves by threads after a cold piece was met; twice as much at the next one, unless as much
#: was found in memory meanwhile.
MIN_DISTRUST_BYTES: Final = 2 * 1024 * 1024
MAX_DISTRUST_BYTES: Final = 256 * 1024 * 1024
#: Bytes of files that one ``flush`` sends at most, however fast the peer takes them: the others' small
#: requests wait for so long (copying 512 KiB into a socket takes some 0.1 ms).
TURN_BYTES: Final = 512 * 1024
#: Buffers up to this size are joined before they are sent.
JOIN_BYTES: Final = 64 * 1024
#: Regions up to this size are read, while no more than ``JOIN_BYTES`` wait in memory.
SMALL_REGION_BYTES: Final = 16 * 1024


Item = bytes | memoryview | FileRegion


class SendStatus(Enum):
    """How a flush ended."""

    DRAINED = 1
    #: The socket is full, or has had its turn: go on when it is writable.
    BLOCKED = 2
    COLD = 3


class StaleRegionError(Exception):
    """A queued region was cut off by a truncation."""


class ColdSend:
    """The first items of a queue, to be sent by a thread. Holds their files until ``release``."""

    __slots__ = ("_items", "_socket", "is_full", "part_bytes", "region_bytes", "whole_count")

    def __init__(self, sock: socket.socket, items: Iterable[Item]) -> None:
        self._socket = sock
        self._items: list[tuple[Item, int]] = []
        #: How far it got: items sent whole, bytes of the one behind them, bytes of regions in all.
        self.whole_count = self.part_bytes = self.region_bytes = 0
        #: Whether the socket took no more: the rest leaves when it is writable.
        self.is_full = False
        size = 0
        for item in items:
            if size >= COLD_BYTES or len(self._items) == COLD_ITEMS:
                break
            if isinstance(item, FileRegion):
                self._items.append((item, item.file.pin()))
                size += item.length
            else:
                self._items.append((item, -1))
                size += len(item)

    def run(self) -> None:
        """Waits for the disk, not for the socket: call it in a thread.

        Raises OSError when the peer is gone or the disk fails, StaleRegionError when a file was cut
        before or meanwhile.
        """
        left = COLD_BYTES
        try:
            for item, descriptor in self._items:
                if isinstance(item, FileRegion):
                    left = self._send_region(item, descriptor, left)
                    if left <= 0 and self.part_bytes < item.length:
                        return
                else:
                    self._send_buffer(item)
                self.whole_count += 1
                self.part_bytes = 0
        except BlockingIOError:
            self.is_full = True

    def _send_region(self, region: FileRegion, descriptor: int, left: int) -> int:
        """Send up to ``left`` bytes of it; gives how many are left then."""
        while self.part_bytes < region.length and left > 0:
            if region.is_stale:
                raise StaleRegionError
            position = region.position + self.part_bytes
            count = min(region.length - self.part_bytes, left)
            sent = os.sendfile(self._socket.fileno(), descriptor, position, count)
            if sent == 0:
                raise StaleRegionError  # the file is shorter than it was
            self.part_bytes += sent
            self.region_bytes += sent
            left -= sent
        if region.is_stale:
            raise StaleRegionError
        return left

    def _send_buffer(self, buffer: bytes | memoryview) -> None:
        is_last = self.whole_count + 1 == len(self._items)
        while self.part_bytes < len(buffer):
            rest = memoryview(buffer)[self.part_bytes :]
            self.part_bytes += self._socket.send(rest, 0 if is_last else socket.MSG_MORE)

    def release(self) -> None:
        for item, _ in self._items:
            if isinstance(item, FileRegion):
                item.file.unpin()


class SendQueue:
    """Buffers and regions in the order in which they leave."""

    __slots__ = (
        "_descriptor",
        "_distrust_bytes",
        "_distrusted_bytes",
        "_found_bytes",
        "_items",
        "_socket",
        "cold",
        "queued_bytes",
    )

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._descriptor = sock.fileno()
        self._items: deque[Item] = deque()
        #: Bytes in memory (not in files) that wait to be sent.
        self.queued_bytes = 0
        #: After COLD: what a thread is to send; ``cold_sent`` comes before the next flush.
        self.cold: ColdSend | None = None
        #: Bytes of regions that are not looked at before a thread sends them; how many they will be
        #: at the next cold piece, and how many were found in memory since.
        self._distrusted_bytes = 0
        self._distrust_bytes = MIN_DISTRUST_BYTES
        self._found_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._items)

    def push(self, item: bytes | FileRegion) -> None:
        if isinstance(item, FileRegion):
            if item.length == 0:
                return
            data = self._read_small(item)
            if data is not None:
                self.queued_bytes += len(data)
                self._items.append(data)
                return
            item.file.pin()
        else:
            self.queued_bytes += len(item)
        self._items.append(item)

    def _read_small(self, region: FileRegion) -> bytes | None:
        """None: it is large, or not in memory, or was cut off meanwhile."""
        if region.length > SMALL_REGION_BYTES or self.queued_bytes > JOIN_BYTES or region.is_stale:
            return None
        data = region.file.peek(region.length, region.position)
        return None if data is None or len(data) < region.length else data

    def cold_sent(self) -> None:
        """The thread has ended with ``cold``: what it sent is no longer the queue's."""
        cold, self.cold = self.cold, None
        assert cold is not None
        cold.release()
        self._distrusted_bytes = max(0, self._distrusted_bytes - cold.region_bytes)
        if not self._items:
            return  # cleared meanwhile
        for _ in range(cold.whole_count):
            item = self._items.popleft()
            if isinstance(item, FileRegion):
                item.file.unpin()
            else:
                self.queued_bytes -= len(item)
        if cold.part_bytes:
            self._shorten_first(cold.part_bytes)

    def _shorten_first(self, sent: int) -> None:
        item = self._items[0]
        if isinstance(item, FileRegion):
            self._advance(item, sent)
        else:
            self._items[0] = memoryview(item)[sent:]
            self.queued_bytes -= sent

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
                if not self._distrusted_bytes:
                    if file.is_resident(region.position, count):
                        self._found_bytes += count
                    else:
                        self._distrust()
                if self._distrusted_bytes:
                    self.cold = ColdSend(self._socket, self._items)
                    return left
                sent = os.sendfile(self._descriptor, descriptor, region.position, count)
                if sent == 0:
                    raise StaleRegionError  # the file is shorter than it was
                self._advance(region, sent)
                left -= sent
        finally:
            file.unpin()
        return left

    def _distrust(self) -> None:
        """A cold piece was met."""
        if self._found_bytes >= self._distrust_bytes:
            self._distrust_bytes = MIN_DISTRUST_BYTES
        self._distrusted_bytes = self._distrust_bytes
        self._distrust_bytes = min(2 * self._distrust_bytes, MAX_DISTRUST_BYTES)
        self._found_bytes = 0

    def _advance(self, region: FileRegion, sent: int) -> None:
        """The first ``sent`` bytes of ``region``, the first item, have gone."""
        region.position += sent
        region.length -= sent
        if not region.length:
            self._items.popleft()
            region.file.unpin()

    def clear(self) -> None:
        """Drop everything, giving descriptors back."""
        for item in self._items:
            if isinstance(item, FileRegion):
                item.file.unpin()
        self._items.clear()
        self.queued_bytes = self._distrusted_bytes = 0
