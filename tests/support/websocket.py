"""A small WebSocket client on asyncio: what a browser sends, byte by byte, and whatever it would not.

No library: tests forge origins and stop reading, and a benchmark runs hundreds beside the server.
"""

import asyncio
import base64
import contextlib
import json
import os
import ssl
import struct
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlsplit

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
LIMIT = 4 * 1024 * 1024


class Refused(Exception):
    """The handshake was answered with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Closed(Exception):
    """The server closed, with this code and reason; 1006: without a word."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"{code} {reason}")
        self.code = code
        self.reason = reason


class WebSocket:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        origin: str | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """`url` is http://…, or https://… with `tls`; raises Refused."""
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        reader, writer = await asyncio.open_connection(
            parts.hostname, parts.port, limit=LIMIT, ssl=tls
        )
        lines = {
            "Host": parts.netloc,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Version": "13",
            **({"Origin": origin} if origin is not None else {}),
            **(headers or {}),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(f"GET {parts.path} HTTP/1.1\r\n{head}\r\n".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        status = int(answer.split(b" ", 2)[1])
        if status != 101:
            await _end(writer)
            raise Refused(status)
        return cls(reader, writer)

    def send(self, text: str) -> None:
        self.send_bytes(TEXT, text.encode())

    def send_json(self, value: Any) -> None:
        self.send(json.dumps(value))

    def send_bytes(self, opcode: int, data: bytes) -> None:
        # A mask of zeros is a mask: it leaves the bytes as they are.
        size = len(data)
        if size < 126:
            head = struct.pack("!BB4x", 0x80 | opcode, 0x80 | size)
        elif size < 65536:
            head = struct.pack("!BBH4x", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ4x", 0x80 | opcode, 0x80 | 127, size)
        self.writer.write(head + data)

    async def receive(self) -> str:
        """The next text; pings are answered. Raises Closed."""
        while True:
            try:
                opcode, data = await self._frame()
            except (asyncio.IncompleteReadError, ConnectionError):
                raise Closed(1006) from None
            if opcode == TEXT:
                return data.decode()
            if opcode == PING:
                self.send_bytes(PONG, data)
            elif opcode == CLOSE:
                self.writer.close()
                code = struct.unpack("!H", data[:2])[0] if data else 1005
                raise Closed(code, data[2:].decode())

    async def receive_json(self, seconds: float = 20) -> Any:
        async with asyncio.timeout(seconds):
            return json.loads(await self.receive())

    async def close(self) -> None:
        if not self.writer.is_closing():
            self.send_bytes(CLOSE, struct.pack("!H", 1000))
            await _end(self.writer)

    async def _frame(self) -> tuple[int, bytes]:
        first, second = await self.reader.readexactly(2)
        assert first & 0x80, "the server does not send parts of messages"
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", await self.reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
        return first & 0x0F, await self.reader.readexactly(size)


async def _end(writer: asyncio.StreamWriter) -> None:
    """Not before the socket is closed: with TLS that takes a word of the other side."""
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(5):
            await writer.wait_closed()
