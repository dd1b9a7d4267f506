"""A connection to another broker, for one request at a time; it has proved the cluster's secret."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any, Final

from broker.metadata.image import BrokerImage, Endpoint
from broker.server.cluster.peer_socket import PeerSocket
from broker.server.cluster.private_wire import (
    PrivateKey,
    correlation_id_of,
    encode_request,
    is_proof,
    new_nonce,
    proof,
    split_answer,
    with_correlation_id,
)

CONNECT_SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 10.0
#: Of a client's request that was passed on.
RELAY_SECONDS: Final = 60.0


class PeerError(Exception):
    """The other broker did not answer, or not as one of our cluster does."""


class PeerRefusedError(PeerError):
    """Nobody listens on its address: its process is gone."""


def endpoint_of(broker: BrokerImage, listener: str | None) -> Endpoint:
    """Where other brokers dial it: on the listener of this name, as ``inter.broker.listener.name`` of all
    of them says, else on the first that is PLAINTEXT. Raises PeerError."""
    for endpoint in broker.endpoints:
        if (
            endpoint.security_protocol == "PLAINTEXT"
            if listener is None
            else endpoint.listener == listener.upper()
        ):
            return endpoint
    raise PeerError(f"broker {broker.broker_id} has no listener {listener or 'PLAINTEXT'}")


class Peer:
    """Made by ``connect``. After a ``PeerError`` it is of no use."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._correlation_id = 0
        self._answer: asyncio.Future[bytes] | None = None
        self._on_fetched: Callable[[memoryview], None] | None = None
        self._on_lost: Callable[[PeerError], None] | None = None
        self._socket = PeerSocket(sock, loop, self._on_frame, self._on_socket_lost)

    @classmethod
    async def connect(cls, host: str, port: int, secret: bytes) -> Peer:
        """Raises PeerError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                sock = await _open(loop, host, port)
        except ConnectionRefusedError as error:
            raise PeerRefusedError(f"{host}:{port} refuses") from error
        except OSError as error:  # time-outs are
            raise PeerError(f"{host}:{port}: {error}") from error
        peer = cls(sock, loop)
        try:
            await peer._prove(secret)
        except BaseException:
            peer.close()
            raise
        return peer

    async def _prove(self, secret: bytes) -> None:
        own = new_nonce()
        answer = await self.ask_json(PrivateKey.PROVE, {"nonce": own})
        other = str(answer.get("nonce"))
        answer = await self.ask_json(
            PrivateKey.PROVE, {"proof": proof(secret, "caller", own, other)}
        )
        if not is_proof(answer.get("proof"), proof(secret, "called", own, other)):
            raise PeerError("a broker of another cluster answers there")

    async def ask_json(
        self, key: PrivateKey, body: Any, batches: bytearray | None = None
    ) -> dict[str, Any]:
        try:
            answer = json.loads(await self.ask(key, body, batches))
        except ValueError as error:
            raise PeerError(f"no JSON: {error}") from error
        if not isinstance(answer, dict):
            raise PeerError("no JSON object")
        return answer

    async def ask(self, key: PrivateKey, body: Any, batches: bytearray | None = None) -> bytes:
        """Raises PeerError."""
        self._correlation_id += 1
        request = encode_request(key, self._correlation_id, body, batches)
        return split_answer(await self._exchange(request, ANSWER_SECONDS))[1]

    async def relay(self, frame: bytes) -> bytes:
        """A client's request, and the answer to it, without their lengths; the correlation id in
        the answer is ours. Raises PeerError."""
        self._correlation_id += 1
        return await self._exchange(with_correlation_id(frame, self._correlation_id), RELAY_SECONDS)

    async def _exchange(self, request: bytes, seconds: float) -> bytes:
        if self._socket.is_closed:
            raise PeerError("closed here")
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._answer = answer
        self._socket.send(request)
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError as error:
            raise PeerError(f"no answer: {error!r}") from error
        finally:
            self._answer = None

    # Fetches, which are answered without a task ------------------------------------------------

    def begin_fetches(
        self, on_fetched: Callable[[memoryview], None], on_lost: Callable[[PeerError], None]
    ) -> None:
        """From here on there are only fetches. ``on_fetched`` gets what comes behind the correlation id; it
        stays valid until the next fetch."""
        self._on_fetched = on_fetched
        self._on_lost = on_lost

    def fetch(self, frame: bytes) -> None:
        """Without its length. The answer before this one has come. Raises PeerError."""
        if self._socket.is_closed:
            raise PeerError("closed here")
        self._correlation_id += 1
        self._socket.send(with_correlation_id(frame, self._correlation_id))

    def _on_frame(self, frame: memoryview) -> None:
        if len(frame) < 4 or correlation_id_of(frame) != self._correlation_id:
            self._socket.lose("an answer to something else")
        elif self._on_fetched is not None:
            self._on_fetched(frame[4:])
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(bytes(frame))

    def _on_socket_lost(self, reason: str) -> None:
        error = PeerError(f"no answer: {reason}")
        if self._on_lost is not None:
            self._on_lost(error)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def close(self) -> None:
        self._socket.close()


async def _open(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """To the first of its addresses that takes it. Raises OSError."""
    failure: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            sock.close()
            failure = failure or error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure or OSError(f"{host} has no address")
