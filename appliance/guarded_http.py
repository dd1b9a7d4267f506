"""What one HTTP connection may cost the web process before anybody knows who it is.

Twisted waits as long as a byte comes now and then, takes a body of any size, and takes forms apart on
the loop that everybody shares, only for Daphne to throw the parts away. Here a request's head and its
body have a deadline each, a body has a bound, no form is parsed, and so many connections are kept
at once: for one more the one that has been idle for longest goes.
"""

from __future__ import annotations

from typing import Any, Final

from daphne.http_protocol import HTTPFactory, WebRequest
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from twisted.web.http import HTTPChannel

MAX_CONNECTIONS: Final = 1_000
MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""The same as Django's DATA_UPLOAD_MAX_MEMORY_SIZE; the largest form is a record to produce."""
MAX_THROWN_AWAY_BYTES: Final = 32 * 1024 * 1024
"""So much of a body that is too large is read all the same: a browser shows an answer only when it
could send everything."""
HEAD_S: Final = 60
"""From the connection, or from the end of the answer before, to the end of a request's head."""
BODY_S: Final = 300
LINE_TOO_LONG: Final = b"An address or a header may have 16 KiB at most.\n"
TOO_LARGE: Final = f"A request may hold {MAX_BODY_BYTES // 1024**2} MiB at most.\n".encode()


class GuardedRequest(WebRequest):  # type: ignore[misc]  # daphne has no types
    """Its body is written down as far as the bound, the rest is thrown away."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._parsePOSTFormSubmission = False
        self._body_bytes = 0
        self._is_too_large = False

    def gotLength(self, length: int | None) -> None:
        self._is_too_large = (length or 0) > MAX_BODY_BYTES
        super().gotLength(0 if self._is_too_large else length)
        if (length or 0) > MAX_THROWN_AWAY_BYTES:
            self.channel.refuse_too_large()

    def handleContentChunk(self, data: bytes) -> None:
        self._body_bytes += len(data)
        self._is_too_large |= self._body_bytes > MAX_BODY_BYTES
        if not self._is_too_large:
            super().handleContentChunk(data)
        elif self._body_bytes > MAX_THROWN_AWAY_BYTES:
            self.channel.refuse_too_large()

    def process(self) -> Any:
        if self._is_too_large:
            self._refuse()
            return None
        processed = super().process()
        if self.transport is None:
            # It is a WebSocket now, whose end the channel does not hear of.
            self.channel.factory.forget(self.channel)
        return processed

    def _refuse(self) -> None:
        self.channel.persistent = False
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        self.handle_reply({"type": "http.response.start", "status": 413, "headers": headers})
        self.handle_reply({"type": "http.response.body", "body": TOO_LARGE})


class GuardedChannel(HTTPChannel):
    """One connection. Idle is one that owes us a request, or the rest of one's head."""

    requestFactory = GuardedRequest

    def connectionMade(self) -> None:
        super().connectionMade()
        self.factory.admit(self)

    def resetTimeout(self) -> None:
        """Twisted calls it for each byte that comes: a deadline is no pause, so nothing is reset."""

    def allHeadersReceived(self) -> None:
        self.factory.begins(self)
        self.setTimeout(BODY_S)
        super().allHeadersReceived()

    def allContentReceived(self) -> None:
        # The time out that is saved here is what is allowed from the end of the answer on.
        self.setTimeout(HEAD_S)
        super().allContentReceived()

    def requestDone(self, request: Any) -> None:
        self.factory.is_idle(self)
        super().requestDone(request)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.factory.forget(self)
        super().connectionLost(reason)

    def lineLengthExceeded(self, line: bytes) -> None:
        self._refuse(b"431 Request Header Fields Too Large", LINE_TOO_LONG)

    def refuse_too_large(self) -> None:
        self._refuse(b"413 Content Too Large", TOO_LARGE)

    def _refuse(self, status: bytes, text: bytes) -> None:
        """Without having read it all; whether the client sees the answer is its own affair."""
        transport: Any = self.transport
        transport.write(
            b"HTTP/1.1 %b\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (status, len(text), text)
        )
        self.loseConnection()


class GuardedFactory(HTTPFactory):  # type: ignore[misc]
    """All connections. WebSockets leave the table as soon as they are ones: they have a bound of their
    own (``dashboard.socket_guard``)."""

    protocol = GuardedChannel

    def __init__(self, server: Any) -> None:
        super().__init__(server)
        self.timeOut = HEAD_S
        self._idle: dict[GuardedChannel, None] = {}
        """In the order in which they became so."""
        self._busy: set[GuardedChannel] = set()

    def buildProtocol(self, address: Any) -> Any:
        channel = super().buildProtocol(address)
        channel.requestFactory = GuardedRequest
        return channel

    def admit(self, channel: GuardedChannel) -> None:
        if len(self._idle) + len(self._busy) >= MAX_CONNECTIONS:
            oldest = next(iter(self._idle), channel)
            self._idle.pop(oldest, None)
            oldest.forceAbortClient()
            if oldest is channel:
                return
        self._idle[channel] = None

    def begins(self, channel: GuardedChannel) -> None:
        if self._idle.pop(channel, True) is None:
            self._busy.add(channel)

    def is_idle(self, channel: GuardedChannel) -> None:
        if channel in self._busy:
            self._busy.discard(channel)
            self._idle[channel] = None

    def forget(self, channel: GuardedChannel) -> None:
        self._idle.pop(channel, None)
        self._busy.discard(channel)
