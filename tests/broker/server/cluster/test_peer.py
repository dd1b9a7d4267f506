"""A connection to another broker, over real sockets: frames whole however they come, ends told once."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest

from broker.server.cluster import peer as peer_module
from broker.server.cluster.peer import Peer, PeerError, PeerRefusedError
from broker.server.cluster.peer_socket import MAX_FRAME_BYTES, SCRATCH_BYTES
from broker.server.cluster.private_wire import PrivateKey, encode_answer
from tests.support import judge

Read = asyncio.StreamReader
Write = asyncio.StreamWriter
Serving = Callable[[Read, Write], Awaitable[None]]

FETCH = b"\0\x01\0\x11" + bytes(4) + b"rest"


async def next_request(reader: Read) -> tuple[int, bytes]:
    """(correlation id, what is behind it)"""
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    frame = await reader.readexactly(length)
    return struct.unpack_from(">i", frame, 4)[0], frame[8:]


async def answer_with(data: bytes, reader: Read, writer: Write) -> None:
    while True:
        correlation_id, _ = await next_request(reader)
        writer.write(encode_answer(correlation_id, data))
        await writer.drain()


@contextlib.asynccontextmanager
async def peer_of(serving: Serving) -> AsyncIterator[Peer]:
    """One that has not proved anything: what it is connected to is not a broker."""

    async def serve(reader: Read, writer: Write) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, EOFError):
            await serving(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    port = server.sockets[0].getsockname()[1]
    sock = await peer_module._open(loop, "127.0.0.1", port)
    peer = Peer(sock, loop)
    try:
        yield peer
    finally:
        peer.close()
        server.close()
        await server.wait_closed()


class Fetching:
    """What a session hears of its peer."""

    def __init__(self, peer: Peer) -> None:
        self.frames: list[bytes] = []
        self.losses: list[str] = []
        self.heard = asyncio.Event()
        peer.begin_fetches(self.on_fetched, self.on_lost)

    def on_fetched(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self.heard.set()

    def on_lost(self, error: PeerError) -> None:
        self.losses.append(str(error))
        self.heard.set()

    async def next(self) -> None:
        async with asyncio.timeout(10):
            await self.heard.wait()
        self.heard.clear()


SIZES = (0, 1, SCRATCH_BYTES - 8, SCRATCH_BYTES - 7, SCRATCH_BYTES, 3_000_000)


@pytest.mark.parametrize("size", SIZES)
async def test_an_answer_of_any_size_comes_whole(size: int) -> None:
    data = secrets.token_bytes(size)
    async with peer_of(partial(answer_with, data)) as peer:
        for _ in range(3):
            assert await peer.ask(PrivateKey.PULL_IMAGE, {}) == data
        fetching = Fetching(peer)
        for _ in range(3):
            peer.fetch(FETCH)
            await fetching.next()
        assert fetching.frames == [data] * 3
        assert not fetching.losses


async def test_an_answer_that_comes_byte_by_byte_comes_whole() -> None:
    async def dribble(reader: Read, writer: Write) -> None:
        while True:
            correlation_id, _ = await next_request(reader)
            for byte in encode_answer(correlation_id, b"slowly"):
                writer.write(bytes((byte,)))
                await writer.drain()
                await asyncio.sleep(0)

    async with peer_of(dribble) as peer:
        assert await peer.ask(PrivateKey.PULL_IMAGE, {}) == b"slowly"
        fetching = Fetching(peer)
        peer.fetch(FETCH)
        await fetching.next()
        assert fetching.frames == [b"slowly"]


async def test_a_request_larger_than_the_sockets_buffers_arrives_whole() -> None:
    received: list[bytes] = []

    async def hesitate(reader: Read, writer: Write) -> None:
        await asyncio.sleep(0.05)  # so that the buffers of both sockets fill
        correlation_id, request = await next_request(reader)
        received.append(request)
        writer.write(encode_answer(correlation_id, b""))
        await writer.drain()

    request = secrets.token_bytes(30_000_000)
    async with peer_of(hesitate) as peer:
        frame = await peer.relay(FETCH[:8] + request)
    assert len(frame) == 4
    assert received == [request]


async def test_a_peer_that_goes_is_told_once_and_is_of_no_use_then() -> None:
    async def go(reader: Read, writer: Write) -> None:
        await next_request(reader)

    async with peer_of(go) as peer:
        fetching = Fetching(peer)
        peer.fetch(FETCH)
        await fetching.next()
        peer.close()
        assert fetching.losses == ["no answer: it closed the connection"]
        assert not fetching.frames
        with pytest.raises(PeerError, match="closed here"):
            await peer.ask(PrivateKey.PULL_IMAGE, {})
        with pytest.raises(PeerError, match="closed here"):
            peer.fetch(FETCH)


async def test_a_peer_that_goes_while_it_is_asked() -> None:
    async def go(reader: Read, writer: Write) -> None:
        await next_request(reader)

    async with peer_of(go) as peer:
        with pytest.raises(PeerError, match="it closed the connection"):
            await peer.ask(PrivateKey.PULL_IMAGE, {})


async def test_one_that_is_closed_here_ends_the_fetch_under_way() -> None:
    async def say_nothing(reader: Read, writer: Write) -> None:
        await reader.read()

    async with peer_of(say_nothing) as peer:
        fetching = Fetching(peer)
        peer.fetch(FETCH)
        peer.close()
        assert fetching.losses == ["no answer: closed here"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (struct.pack(">ii", 4, 12345), "something else"),
        (struct.pack(">i", 2) + b"ab", "something else"),
        (struct.pack(">i", -1), "a frame of -1 bytes"),
        (struct.pack(">i", MAX_FRAME_BYTES + 1), "a frame of"),
    ],
)
async def test_an_answer_that_is_none_ends_the_connection(answer: bytes, why: str) -> None:
    async def misbehave(reader: Read, writer: Write) -> None:
        await next_request(reader)
        writer.write(answer)
        await reader.read()

    async with peer_of(misbehave) as peer:
        fetching = Fetching(peer)
        peer.fetch(FETCH)
        await fetching.next()
        (loss,) = fetching.losses
        assert why in loss


async def test_where_nobody_listens_is_told_from_where_nobody_answers() -> None:
    with pytest.raises(PeerRefusedError):
        await Peer.connect("127.0.0.1", judge.free_port(), b"secret")
    with pytest.raises(PeerError) as caught:
        await Peer.connect("no-such-host.invalid", 9092, b"secret")
    assert not isinstance(caught.value, PeerRefusedError)


async def test_of_several_addresses_the_first_that_takes_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with peer_of(partial(answer_with, b"")) as peer:
        port = peer._socket._socket.getpeername()[1]
        loop = asyncio.get_running_loop()
        dead = ("127.0.0.1", judge.free_port())
        both = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", address)
            for address in (dead, ("127.0.0.1", port))
        ]

        async def both_addresses(*_: object, **__: object) -> object:
            return both

        monkeypatch.setattr(loop, "getaddrinfo", both_addresses)
        with await peer_module._open(loop, "two", port) as sock:
            assert sock.getpeername()[1] == port
