"""A connection to another broker, for one request at a time; it has proved the cluster's secret."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from broker.metadata.image import BrokerImage, Endpoint
from broker.server.cluster.private_wire import (
    PrivateKey,
    decode_length,
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
#: Read ahead of an answer that is large.
BUFFER_BYTES: Final = 1024 * 1024


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

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, host: str, port: int, secret: bytes) -> Peer:
        """Raises PeerError."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(host, port, limit=BUFFER_BYTES)
        except ConnectionRefusedError as error:
            raise PeerRefusedError(f"{host}:{port} refuses") from error
        except OSError as error:  # time-outs are
            raise PeerError(f"{host}:{port}: {error}") from error
        peer = cls(reader, writer)
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

    async def fetch(self, frame: bytes, wait_seconds: float) -> memoryview:
        """A fetch, without its length, which may wait; what comes behind the correlation id.
        Raises PeerError."""
        self._correlation_id += 1
        request = with_correlation_id(frame, self._correlation_id)
        return memoryview(await self._exchange(request, wait_seconds + ANSWER_SECONDS))[4:]

    async def _exchange(self, request: bytes, seconds: float) -> bytes:
        if self._writer.is_closing():
            raise PeerError("closed here")
        try:
            async with asyncio.timeout(seconds):
                self._writer.write(request)
                await self._writer.drain()
                length = decode_length(await self._reader.readexactly(4))
                frame = await self._reader.readexactly(length)
        except (OSError, EOFError, ValueError) as error:
            raise PeerError(f"no answer: {error!r}") from error
        if split_answer(frame)[0] != self._correlation_id:
            raise PeerError("an answer to something else")
        return frame

    def close(self) -> None:
        self._writer.close()
