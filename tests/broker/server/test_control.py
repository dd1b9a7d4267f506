"""The control socket: one line in, one line out, for its owner alone, within bounds."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.server.control import MAX_CLIENTS, MAX_LINE_BYTES, SOCKET_NAME, ControlSocket
from tests.broker.server.running import on_loop

Answering = Callable[[Any, dict[str, Any]], Awaitable[dict[str, Any]]]


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, line: bytes | dict[str, Any]) -> dict[str, Any]:
        self.writer.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        async with asyncio.timeout(20):
            found: dict[str, Any] = json.loads(await self.reader.readline())
        return found

    async def is_closed(self) -> bool:
        async with asyncio.timeout(20):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self.writer.close()


async def connect(directory: Path) -> Client:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return Client(
            *await asyncio.open_unix_connection(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}")
        )
    finally:
        os.close(descriptor)


async def echo(broker: Any, request: dict[str, Any]) -> dict[str, Any]:
    return {"said": request.get("say")}


async def fail(broker: Any, request: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError("a fault of ours")


@asynccontextmanager
async def control(directory: Path, **more: Answering) -> AsyncIterator[ControlSocket]:
    made = ControlSocket(
        SimpleNamespace(),
        directory,
        {"echo": echo, "fail": fail, **more},  # type: ignore[arg-type]
    )
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@on_loop
async def test_a_command_is_answered_in_a_line(tmp_path: Path) -> None:
    async with control(tmp_path):
        client = await connect(tmp_path)
        assert await client.ask({"command": "echo", "say": 1}) == {"ok": True, "said": 1}
        assert await client.ask({"command": "echo", "say": "two"}) == {"ok": True, "said": "two"}
        client.close()


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"what?\n",
        b"[]\n",
        b"3\n",
        b'{"command": "nothing"}\n',
        b'{"command": ["echo"]}\n',
        b'{"command": null}\n',
        b"{}\n",
        b"\xff\xfe\n",
        b"[" * 3000 + b"\n",
    ],
)
def test_what_is_no_command_names_those_that_are(tmp_path: Path, line: bytes) -> None:
    @on_loop
    async def test() -> None:
        async with control(tmp_path):
            client = await connect(tmp_path)
            answer = await client.ask(line)
            assert not answer["ok"]
            assert "echo, fail" in answer["error"]
            assert (await client.ask({"command": "echo"}))["ok"]
            client.close()

    test()


@on_loop
async def test_a_command_that_fails_is_told_and_the_next_one_served(tmp_path: Path) -> None:
    async with control(tmp_path):
        client = await connect(tmp_path)
        answer = await client.ask({"command": "fail"})
        assert answer == {"ok": False, "error": "a fault of ours"}
        assert (await client.ask({"command": "echo"}))["ok"]
        client.close()


@on_loop
async def test_a_line_has_a_bound(tmp_path: Path) -> None:
    async with control(tmp_path):
        client = await connect(tmp_path)
        client.writer.write(b"x" * (MAX_LINE_BYTES + 1))
        assert await client.is_closed()
        client.close()
        again = await connect(tmp_path)
        assert (await again.ask({"command": "echo"}))["ok"]
        again.close()


@on_loop
async def test_clients_have_a_bound(tmp_path: Path) -> None:
    async with control(tmp_path):
        clients = []
        for _ in range(MAX_CLIENTS):
            clients.append(await connect(tmp_path))
            assert (await clients[-1].ask({"command": "echo"}))["ok"]
        surplus = await connect(tmp_path)
        assert await surplus.is_closed()
        surplus.close()
        clients.pop().close()
        async with asyncio.timeout(20):
            while not await is_served(tmp_path):
                await asyncio.sleep(0.001)
        for each in clients:
            each.close()


async def is_served(directory: Path) -> bool:
    client = await connect(directory)
    try:
        return bool((await client.ask({"command": "echo"}))["ok"])
    except (ConnectionError, json.JSONDecodeError):
        return False
    finally:
        client.close()


@on_loop
async def test_only_its_owner_may_command(tmp_path: Path) -> None:
    async with control(tmp_path):
        assert stat.S_IMODE((tmp_path / SOCKET_NAME).stat().st_mode) == 0o600
    assert not (tmp_path / SOCKET_NAME).exists()


@on_loop
async def test_a_path_longer_than_a_socket_address(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 40)
    directory.mkdir()
    async with control(directory):
        client = await connect(directory)
        assert (await client.ask({"command": "echo"}))["ok"]
        client.close()


@on_loop
async def test_a_socket_that_a_dead_broker_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / SOCKET_NAME).write_text("left behind")
    async with control(tmp_path):
        client = await connect(tmp_path)
        assert (await client.ask({"command": "echo"}))["ok"]
        client.close()


@on_loop
async def test_a_stop_ends_commands_under_way(tmp_path: Path) -> None:
    ended: list[str] = []

    async def slow(broker: Any, request: dict[str, Any]) -> dict[str, Any]:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append("slow")
        return {}

    async with control(tmp_path, slow=slow) as made:
        client = await connect(tmp_path)
        client.writer.write(b'{"command": "slow"}\n')
        async with asyncio.timeout(20):
            while not made._clients:
                await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
    assert ended == ["slow"]
    assert await client.is_closed()
    client.close()


@on_loop
async def test_a_client_that_goes_away_harms_nobody(tmp_path: Path) -> None:
    async with control(tmp_path) as made:
        client = await connect(tmp_path)
        client.writer.write(b'{"command": "ec')
        client.close()
        async with asyncio.timeout(20):
            while made._clients:
                await asyncio.sleep(0.001)
        again = await connect(tmp_path)
        assert (await again.ask({"command": "echo"}))["ok"]
        again.close()
