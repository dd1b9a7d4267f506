"""The control socket: JSON lines over a unix socket in the data directory, for the local appliance.

One request a line, ``{"command": "...", ...}``; one answer a line, ``{"ok": true, ...}`` or
``{"ok": false, "error": "..."}``. The socket's mode is 0600: whoever can open it may command.
Its path may be longer than a unix address allows (107 bytes), so it is bound through the
directory's descriptor.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from broker.server.app import Broker

logger = logging.getLogger(__name__)

SOCKET_NAME: Final = "control.sock"
MAX_LINE_BYTES: Final = 64 * 1024
MAX_CLIENTS: Final = 32

Command = Callable[["Broker", dict[str, Any]], Awaitable[dict[str, Any]]]


class ControlSocket:
    """Serves ``commands`` by name."""

    def __init__(self, broker: Broker, directory: Path, commands: dict[str, Command]) -> None:
        self._broker = broker
        self._directory = directory
        self._commands = commands
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self) -> None:
        listening = self._bind()
        self._server = await asyncio.start_unix_server(
            self._serve, sock=listening, limit=MAX_LINE_BYTES
        )

    def _bind(self) -> socket.socket:
        path = self._directory / SOCKET_NAME
        path.unlink(missing_ok=True)
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(f"/proc/self/fd/{directory}/{SOCKET_NAME}")
        except OSError:
            listening.close()
            raise
        finally:
            os.close(directory)
        path.chmod(0o600)
        listening.listen(MAX_CLIENTS)
        listening.setblocking(False)
        return listening

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        clients = tuple(self._clients)
        for task in clients:
            task.cancel()  # a command under way must not meet logs that are being closed
        await asyncio.gather(*clients, return_exceptions=True)
        (self._directory / SOCKET_NAME).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._clients) >= MAX_CLIENTS:
            writer.close()
            return
        self._clients[task] = writer
        try:
            while line := await reader.readline():
                writer.write(await self._answer(line))
                await writer.drain()
        except (OSError, ValueError) as error:  # gone, or a line over the limit
            logger.info("control client left: %s", error)
        finally:
            del self._clients[task]
            writer.close()

    async def _answer(self, line: bytes) -> bytes:
        try:
            request = json.loads(line)
            command = self._commands[request["command"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            known = ", ".join(sorted(self._commands))
            answer: dict[str, Any] = {"ok": False, "error": f"no such command; known are {known}"}
        else:
            try:
                answer = {"ok": True, **await command(self._broker, request)}
            except Exception as error:
                logger.warning("control command %s failed", request["command"], exc_info=error)
                answer = {"ok": False, "error": str(error) or type(error).__name__}
        return json.dumps(answer).encode() + b"\n"
