"""One client connection: frames in, answers out, in order.

Hot path: one ``recv_into`` per wake-up, the frames in it handled on the spot, their answers sent by
one ``flush``. The socket is ours (non-blocking, ``add_reader``/``add_writer``), because uvloop's
transports offer neither ``sendfile`` nor ``recv_into`` into the place where a frame shall lie.

Order: requests start in arrival order and are answered in arrival order. While an answer is
outstanding, further Produce requests may start as long as everything outstanding is Produce
(``MAX_OUTSTANDING`` at most); any other request waits, and holds up what is behind it. What waits
is kept in ``_backlog``, and meanwhile nothing is read: the client's own socket is the queue.

Bounds: the backlog holds what one ``recv`` brought, and is charged to the receive budget with what
its objects cost; no request starts while more than ``MAX_QUEUED_BYTES`` of answers wait to be sent,
so a client that never reads costs that much, and one answer, and no more.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.log_limit import caused_by
from broker.model.errors import NoDescriptorError
from broker.model.file_region import FileRegion
from broker.protocol.framing import FrameBuffer, FrameError
from broker.protocol.request import MalformedRequest, RequestHeader, parse_header
from broker.server.send_queue import ColdSend, SendQueue, SendStatus, StaleRegionError

if TYPE_CHECKING:
    from broker.server.cluster.private_wire import Proving
    from broker.server.dispatcher import Dispatcher
    from broker.server.listener import Listener

logger: Final = logging.getLogger(__name__)

PRODUCE: Final = 0
MAX_OUTSTANDING: Final = 16
MAX_QUEUED_BYTES: Final = 128 * 1024
#: Memory of a frame in the backlog besides its bytes: a small frame is mostly this.
KEPT_FRAME_BYTES: Final = 300
#: Requests handled in one turn of the loop before others get theirs.
REQUESTS_PER_TURN: Final = 32

Answer = list[bytes | FileRegion]


class CloseConnection(Exception):
    """The request cannot be answered; the client learns by losing the connection."""


class ResponseSlot:
    """The place of an answer that is not there yet."""

    __slots__ = ("_answer", "_connection", "_is_done", "on_cancel")

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self._answer: Answer | None = None
        self._is_done = False
        #: Called when the connection closes before the answer was given.
        self.on_cancel: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def complete(self, answer: Answer | None) -> None:
        """Give the answer (None: the request has none, acks=0)."""
        connection = self._connection
        if connection is None or self._is_done:
            return
        self._answer = answer
        self._is_done = True
        self.on_cancel = None
        connection.on_slot_done()

    def fail(self) -> None:
        """No answer is possible: close the connection."""
        if self._connection is not None:
            self._connection.close("request failed without an answer")

    def take(self) -> tuple[bool, Answer | None]:
        return self._is_done, self._answer

    def cancel(self) -> None:
        self._connection = None
        on_cancel, self.on_cancel = self.on_cancel, None
        if on_cancel is not None:
            on_cancel()


class Connection:
    """See the module's docstring."""

    __slots__ = (
        "_backlog",
        "_descriptor",
        "_dispatcher",
        "_frames",
        "_has_reader",
        "_has_writer",
        "_is_cold",
        "_is_only_produce",
        "_is_resuming",
        "_listener",
        "_loop",
        "_outstanding",
        "_queue",
        "_socket",
        "client_id",
        "client_software",
        "is_closed",
        "last_active_ms",
        "local_address",
        "peer_host",
        "peer_port",
        "proving",
    )

    def __init__(
        self,
        sock: socket.socket,
        peer_host: str,
        peer_port: int,
        listener: Listener,
        dispatcher: Dispatcher,
        frames: FrameBuffer,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._socket = sock
        self._descriptor = sock.fileno()
        self._listener = listener
        self._dispatcher = dispatcher
        self._frames = frames
        self._loop = loop
        self._queue = SendQueue(sock)
        self._outstanding: deque[ResponseSlot] = deque()
        self._is_only_produce = True
        self._backlog: deque[memoryview] = deque()
        self._has_reader = False
        self._has_writer = False
        self._is_cold = False
        self._is_resuming = False
        self.is_closed = False
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.client_id: str | None = None
        self.client_software = ""
        #: Of another broker: how far it has proved that it is one (``cluster/private_apis.py``).
        self.proving: Proving | None = None
        address = sock.getsockname()
        self.local_address: tuple[str, int] = (address[0], address[1])
        self.last_active_ms = 0
        self._read_on()

    @property
    def listener(self) -> Listener:
        return self._listener

    @property
    def is_waiting(self) -> bool:
        """Whether the client waits for an answer of ours (a long poll, an acknowledgement)."""
        return bool(self._outstanding)

    @property
    def is_producing(self) -> bool:
        """Whether a produce request waits for its acknowledgement."""
        return bool(self._outstanding) and self._is_only_produce

    # -- reading ------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        try:
            target = self._frames.writable()
            if not target:
                self._stall()
                return
            count = self._socket.recv_into(target)
            if count == 0:
                self.close(None)
                return
            self.last_active_ms = self._listener.now_ms
            frames = self._frames.received(count)
            if frames:
                self._handle(frames)
        except BlockingIOError:
            return
        except FrameError as error:
            self.close(f"bad frame: {error}")
        except OSError as error:
            self.close(str(error))
        except Exception as error:  # noqa: BLE001 - the loop would go on, the client wait for ever
            self._break_down(error)

    def _break_down(self, error: Exception) -> None:
        logger.error("a connection broke down", exc_info=error, extra=caused_by(self.peer_host))
        self.close("a fault of the broker")

    def _handle(self, frames: list[memoryview]) -> None:
        for index, frame in enumerate(frames):
            if index == REQUESTS_PER_TURN or self._is_blocked(frame):
                self._keep(frames[index:])
                break
            if not self._start(frame):
                return
        if self._queue and not self._flush():
            return
        if self._backlog:
            # Kept because answers were queued up, they may start now that those have been sent.
            self._maybe_resume()

    def _stall(self) -> None:
        """No room for the frame in arrival: read no further until others have given back."""
        self._read_off()
        self._listener.stalled.add(self)

    def on_room(self) -> None:
        if not self.is_closed and not self._backlog:
            self._read_on()

    def _keep(self, frames: list[memoryview]) -> None:
        """Keep frames that cannot start yet, and read no further."""
        self._listener.budget.charge(KEPT_FRAME_BYTES * len(frames))
        self._backlog.extend(self._frames.keep(frame) for frame in frames)
        self._read_off()

    def _is_blocked(self, frame: memoryview) -> bool:
        """Whether the request in ``frame`` has to wait for answers of earlier ones."""
        if self._queue.queued_bytes > MAX_QUEUED_BYTES:
            return True
        if not self._outstanding:
            return False
        is_produce = len(frame) > 1 and frame[0] == 0 and frame[1] == PRODUCE
        return not (
            is_produce and self._is_only_produce and len(self._outstanding) < MAX_OUTSTANDING
        )

    def _start(self, frame: memoryview) -> bool:
        """Start the request in ``frame``; False when the connection closed over it."""
        try:
            header = parse_header(frame)
            answer = self._dispatcher.dispatch(self, header, frame)
        except (MalformedRequest, CloseConnection) as error:
            if self._queue:
                self._flush()  # what was answered before leaves first
            self.close(str(error))
            return False
        finally:
            charge = self._frames.charge_of(frame)
            if charge:
                self._listener.budget.release(charge)
        if answer is None:
            return not self.is_closed
        if self._outstanding:
            slot = ResponseSlot(self)
            self._outstanding.append(slot)
            slot.complete(answer)
            return not self.is_closed
        return self._push(answer)

    def _push(self, answer: Answer) -> bool:
        """Queue an answer; False when the connection closed over it (a file cannot be opened)."""
        try:
            for item in answer:
                self._queue.push(item)
        except (NoDescriptorError, OSError) as error:
            self.close(f"records cannot be sent: {error}")
            return False
        return True

    def _maybe_resume(self) -> None:
        """Go on soon with the backlog, if its first request may start now."""
        if self._backlog and not self.is_closed and not self._is_blocked(self._backlog[0]):
            self._resume_soon()

    def _resume_soon(self) -> None:
        if not self._is_resuming:
            self._is_resuming = True
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        """Go on with the backlog, then with reading."""
        self._is_resuming = False
        if self.is_closed:
            return
        try:
            self._work_off()
        except Exception as error:  # noqa: BLE001 - as above
            self._break_down(error)

    def _work_off(self) -> None:
        backlog = self._backlog
        for _ in range(REQUESTS_PER_TURN):
            if not backlog or self._is_blocked(backlog[0]):
                break
            frame = backlog.popleft()
            self._listener.budget.release(KEPT_FRAME_BYTES)
            if not self._start(frame):
                return
        if self._queue and not self._flush():
            return
        if not backlog:
            self._read_on()
        self._maybe_resume()

    # -- answering ----------------------------------------------------------------------------

    def defer(self, header: RequestHeader, is_alone: bool = False) -> ResponseSlot:
        """For handlers that answer later: keeps the answer's place.

        ``is_alone``: not even a produce request may start behind this one until it is answered.
        """
        slot = ResponseSlot(self)
        if not self._outstanding:
            self._is_only_produce = True
        self._outstanding.append(slot)
        if is_alone or header.api_key != PRODUCE:
            self._is_only_produce = False
        return slot

    def on_slot_done(self) -> None:
        outstanding = self._outstanding
        while outstanding:
            is_done, answer = outstanding[0].take()
            if not is_done:
                break
            outstanding.popleft()
            if answer is not None and not self._push(answer):
                return
        if self._queue:
            self._flush()
        self._maybe_resume()

    def _flush(self) -> bool:
        """Send what can be sent now; False when the connection closed over it."""
        if self._is_cold:
            return True
        try:
            status = self._queue.flush()
        except (StaleRegionError, NoDescriptorError, OSError) as error:
            self.close(_why_not_sent(error))
            return False
        if status is SendStatus.BLOCKED:
            self._await_writable()
            return True
        if self._has_writer:
            self._has_writer = False
            self._loop.remove_writer(self._descriptor)
        if status is SendStatus.COLD:
            self._send_cold()
        return True

    def _await_writable(self) -> None:
        if not self._has_writer:
            self._has_writer = True
            self._loop.add_writer(self._descriptor, self._on_writable)

    def _on_writable(self) -> None:
        self.last_active_ms = self._listener.now_ms
        self._flush()
        self._maybe_resume()

    def _send_cold(self) -> None:
        cold = self._queue.cold
        assert cold is not None
        self._is_cold = True
        self._dispatcher.threads.read(cold.run, partial(self._on_cold_sent, cold))

    def _on_cold_sent(self, cold: ColdSend, _: None, error: Exception | None) -> None:
        self._is_cold = False
        self._queue.cold_sent()
        if self.is_closed:
            self._socket.close()
        elif error is not None:
            self.close(_why_not_sent(error))
        elif cold.is_full:
            self._await_writable()
        else:
            self._on_writable()

    # -- ending -------------------------------------------------------------------------------

    def _read_on(self) -> None:
        if not self._has_reader:
            self._has_reader = True
            self._loop.add_reader(self._descriptor, self._on_readable)

    def _read_off(self) -> None:
        if self._has_reader:
            self._has_reader = False
            self._loop.remove_reader(self._descriptor)

    def close(self, reason: str | None) -> None:
        """Close now. ``reason`` is logged; None means that the client went away by itself."""
        if self.is_closed:
            return
        self.is_closed = True
        if reason is not None:
            logger.info(
                "closing %s:%d (client id %.100r): %s",
                self.peer_host,
                self.peer_port,
                self.client_id,
                reason,
                extra=caused_by(self.peer_host),
            )
        self._read_off()
        if self._has_writer:
            self._has_writer = False
            self._loop.remove_writer(self._descriptor)
        outstanding, self._outstanding = self._outstanding, deque()
        for slot in outstanding:
            slot.cancel()
        backlog, self._backlog = self._backlog, deque()
        for frame in backlog:
            self._listener.budget.release(KEPT_FRAME_BYTES + self._frames.charge_of(frame))
        self._queue.clear()
        self._frames.close()
        self._listener.on_closed(self)
        if not self._is_cold:  # else a thread sends on this descriptor, which must not be another's
            self._socket.close()


def _why_not_sent(error: Exception) -> str:
    if isinstance(error, StaleRegionError):
        return "records were truncated while they were being sent"
    return str(error)
