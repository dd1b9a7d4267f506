"""A listening socket and its connections: accepting, limits, idle clients.

At EMFILE accepting pauses for a moment instead of spinning; over a limit (``quota.py``) the newcomer
is closed at once; a connection idle for ``connections.max.idle.ms`` is closed unless it waits for
an answer of ours.
"""

from __future__ import annotations

import errno
import logging
import socket
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.config.broker_config import BrokerConfig
from broker.protocol.framing import FrameBuffer
from broker.server.connection import Connection

if TYPE_CHECKING:
    from broker.server.app import Broker

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN: Final = 64
EMFILE_PAUSE_SECONDS: Final = 1.0
BACKLOG_SIZE: Final = "socket.listen.backlog.size"


class Endpoint(NamedTuple):
    """Where a listener listens, and what it tells clients to dial.

    ``advertised_host`` None: the local address of each accepted connection, which is right for
    every client that reaches this broker without address translation.
    """

    name: str
    host: str
    port: int
    advertised_host: str | None
    advertised_port: int | None


def _backlog_size(config: BrokerConfig) -> int:
    """How many connections the system may queue: as many as it likes, unless a size was chosen.

    With Kafka's default of 50 clients that come together wait a second: a full queue drops their
    first packet.
    """
    if BACKLOG_SIZE in config.given:
        return config.socket_listen_backlog_size
    return max(config.socket_listen_backlog_size, socket.SOMAXCONN)


class Listener:
    """One listening socket."""

    def __init__(self, broker: Broker, endpoint: Endpoint) -> None:
        self._broker = broker
        self._loop = broker.loop
        self.endpoint = endpoint
        self.connections: set[Connection] = set()
        self._quota = broker.quota
        self.budget = broker.receive_budget
        #: Connections that wait for room in the budget.
        self.stalled: set[Connection] = set()
        #: Coarse monotonic time (one step a second): what idle detection needs.
        self.now_ms = broker.clock.monotonic_ms()
        #: Refusals are logged once a tick.
        self._may_log_refusal = True
        self._socket = socket.create_server(
            (endpoint.host, endpoint.port),
            family=socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET,
            backlog=_backlog_size(broker.config),
        )
        self._socket.setblocking(False)

    @property
    def port(self) -> int:
        """The port listened on (the chosen one when 0 was asked for)."""
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def advertised(self, connection: Connection) -> tuple[str, int]:
        """Host and port that ``connection``'s client shall dial."""
        endpoint = self.endpoint
        if endpoint.advertised_host is None:
            return connection.local_address
        return endpoint.advertised_host, endpoint.advertised_port or self.port

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._on_accept_failed(error)
                return
            try:
                self._admit(sock, address[0], address[1])
            except BaseException:
                sock.close()  # its client need not wait for us
                raise

    def _on_accept_failed(self, error: OSError) -> None:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            logger.error("cannot accept connections for a moment: %s", error)
            self._loop.remove_reader(self._socket.fileno())
            self._loop.call_later(EMFILE_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        if self._socket.fileno() >= 0:
            self.start()

    def _admit(self, sock: socket.socket, host: str, port: int) -> None:
        reason = self._quota.why_refused(host)
        if reason is not None:
            self._refuse(sock, host, reason)
            return
        config = self._broker.config
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._set_buffers(sock)
        frames = FrameBuffer(self._broker.scratch, self.budget, config.socket_request_max_bytes)
        connection = Connection(sock, host, port, self, self._broker.dispatcher, frames, self._loop)
        connection.last_active_ms = self.now_ms
        self._quota.add(host)
        self.connections.add(connection)

    def _refuse(self, sock: socket.socket, host: str, reason: str) -> None:
        self._quota.refused_count += 1
        sock.close()
        if self._may_log_refusal:
            self._may_log_refusal = False
            logger.warning("refusing %s (and maybe others): %s is reached", host, reason)

    def _set_buffers(self, sock: socket.socket) -> None:
        """Only sizes that somebody chose: a fixed size ends the system's own tuning."""
        config = self._broker.config
        for name, option, size in (
            ("socket.send.buffer.bytes", socket.SO_SNDBUF, config.socket_send_buffer_bytes),
            ("socket.receive.buffer.bytes", socket.SO_RCVBUF, config.socket_receive_buffer_bytes),
        ):
            if name in config.given and size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)

    def on_closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.stalled.discard(connection)
        self._quota.remove(connection.peer_host)

    def tick(self, now_ms: int) -> None:
        """Once a second: move the coarse clock, close idle connections."""
        self.now_ms = now_ms
        self._may_log_refusal = True
        oldest = now_ms - self._broker.config.connections_max_idle_ms
        idle = [c for c in self.connections if c.last_active_ms < oldest and not c.is_waiting]
        for connection in idle:
            connection.close("idle for connections.max.idle.ms")

    def on_room(self) -> None:
        """The receive budget has room again."""
        stalled, self.stalled = self.stalled, set()
        for connection in stalled:
            connection.on_room()

    def stop_accepting(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def close_connections(self) -> None:
        for connection in tuple(self.connections):
            connection.close(None)
